#include "visits.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "isa.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr int64_t kBlock = 64;  // walks whose random bits are drawn together
constexpr int32_t kFree = -1;

// The number of visits to each node, in the order of first visits. The hash table is emptied
// entry by entry, so that its size costs nothing.
class Counts {
 public:
  struct Entry {
    int32_t node, count;
    uint32_t place;
  };

  void Add(int32_t node) {
    uint32_t at = (static_cast<uint32_t>(node) * 0x9E3779B1u) >> shift_;
    while (table_[at] != kFree) {
      Entry& entry = entries_[table_[at]];
      if (entry.node == node) {
        ++entry.count;
        return;
      }
      at = (at + 1) & mask_;
    }
    table_[at] = static_cast<int32_t>(entries_.size());
    entries_.push_back({node, 1, at});
    if (2 * entries_.size() > table_.size()) Grow();
  }

  void Clear() {
    for (const Entry& entry : entries_) table_[entry.place] = kFree;
    entries_.clear();
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void Grow() {
    --shift_;
    table_.assign(2 * table_.size(), kFree);
    mask_ = static_cast<uint32_t>(table_.size() - 1);
    for (size_t i = 0; i < entries_.size(); ++i) {
      uint32_t at = (static_cast<uint32_t>(entries_[i].node) * 0x9E3779B1u) >> shift_;
      while (table_[at] != kFree) at = (at + 1) & mask_;
      table_[at] = static_cast<int32_t>(i);
      entries_[i].place = at;
    }
  }

  int shift_ = 22;
  uint32_t mask_ = (1u << 10) - 1;
  std::vector<int32_t> table_ = std::vector<int32_t>(1 << 10, kFree);
  std::vector<Entry> entries_;
};

// The walks of one target, all of them a step at a time. Each stage prefetches what the next
// one reads, so that the reads of one walk overlap with those of the others.
class TargetWalks {
 public:
  TargetWalks(const GraphView& graph, Key key, const VisitOptions& options,
              std::atomic<bool>& bad)
      : g_(graph), key_(key), o_(options), bad_(bad) {
    const int64_t padded = (o_.num_walks + kBlock - 1) / kBlock * kBlock;
    for (auto* words : {&key0_, &key1_, &high_, &low_}) words->resize(padded);
    here_.resize(padded);
    edge_.resize(padded);
  }

  // Counts the nodes that the target's walks visit; sets `bad` if the graph's arrays are
  // damaged.
  void Visit(int32_t target, Counts& counts) {
    RunOn(isa_, Keys{*this, static_cast<uint32_t>(target)});
    num_ = o_.num_walks;
    std::fill_n(here_.begin(), num_, target);
    const int64_t per = std::max<int64_t>(1, o_.num_path);
    for (int64_t round = 0; round < o_.length && num_ > 0; ++round) {
      step_ = static_cast<uint32_t>(round * per + 1);
      if (round > 0 && o_.stop > 0) Stop();
      for (int64_t i = 0; i < per; ++i, ++step_) {
        Rows(o_.num_path > 0 ? o_.path[i] : kAny);
        if (!Step()) return;
      }
      for (int64_t w = 0; w < num_; ++w) {
        if (here_[w] != target) counts.Add(here_[w]);
      }
    }
  }

 private:
  static constexpr int64_t kAny = -1;

  struct Keys {
    TargetWalks& t;
    uint32_t target;
    JGS_INLINE void operator()() const {
      const int64_t num = static_cast<int64_t>(t.key0_.size());
      uint32_t *key0 = t.key0_.data(), *key1 = t.key1_.data();
      for (int64_t begin = 0; begin < num; begin += kBlock) {
        for (int64_t w = begin; w < begin + kBlock; ++w) {
          uint32_t x0 = target, x1 = static_cast<uint32_t>(w);
          Threefry(t.key_, x0, x1);
          key0[w] = x0;
          key1[w] = x1;
        }
      }
    }
  };

  // The random words of one draw, for all walks that go on.
  struct Bits {
    TargetWalks& t;
    uint32_t number;
    JGS_INLINE void operator()() const {
      const uint32_t *key0 = t.key0_.data(), *key1 = t.key1_.data();
      uint32_t *high = t.high_.data(), *low = t.low_.data();
      for (int64_t begin = 0; begin < t.num_; begin += kBlock) {
        for (int64_t w = begin; w < begin + kBlock; ++w) {
          uint32_t x0 = t.step_, x1 = number;
          Threefry({{key0[w], key1[w]}}, x0, x1);
          high[w] = x0;
          low[w] = x1;
        }
      }
    }
  };

  void Move(int64_t from, int64_t to) {
    key0_[to] = key0_[from];
    key1_[to] = key1_[from];
    here_[to] = here_[from];
  }

  void Stop() {
    RunOn(isa_, Bits{*this, kJumps});
    int64_t kept = 0;
    for (int64_t w = 0; w < num_; ++w) {
      if (low_[w] >= o_.stop) Move(w, kept++);
    }
    num_ = kept;
  }

  // Draws an edge of each walk's row, or of the row's part of one type. Walks without an edge
  // end.
  void Rows(int64_t type) {
    RunOn(isa_, Bits{*this, 0});
    int64_t kept = 0;
    for (int64_t w = 0; w < num_; ++w) {
      const EdgeRange row = RowOf(g_, here_[w], bad_);
      int64_t start = row.start, end = row.start + row.count;
      if (type != kAny) {
        const int16_t* types = o_.edge_type;
        start = std::lower_bound(types + start, types + end, type) - types;
        end = std::upper_bound(types + start, types + end, type) - types;
      }
      const Holes holes = o_.limits.any() ? o_.limits.In(start, end - start) : Holes{};
      if (start + holes.num == end) continue;
      const uint64_t n = static_cast<uint64_t>(end - start - holes.num);
      const uint64_t carry = low_[w] * n >> 32;
      const int64_t position = static_cast<int64_t>((high_[w] * n + carry) >> 32);
      const int64_t edge = holes.num > 0 ? holes.Edge(start, position) : start + position;
      __builtin_prefetch(&g_.indices[edge]);
      Move(w, kept);
      edge_[kept++] = edge;
    }
    num_ = kept;
  }

  // False if the graph's arrays are damaged.
  bool Step() {
    for (int64_t w = 0; w < num_; ++w) {
      const int32_t there = g_.indices[edge_[w]];
      if (there < 0 || there >= g_.num_nodes) {
        bad_.store(true);
        return false;
      }
      PrefetchRow(g_, there);
      here_[w] = there;
    }
    return true;
  }

  const GraphView& g_;
  const Key key_;
  const VisitOptions& o_;
  std::atomic<bool>& bad_;
  const Isa isa_ = BestIsa();
  int64_t num_ = 0;    // the walks that go on; they come first, in the order of their numbers
  uint32_t step_ = 0;  // counts from 1
  std::vector<uint32_t> key0_, key1_, high_, low_;
  std::vector<int32_t> here_;
  std::vector<int64_t> edge_;
};

bool IsIn(const VisitGroup& group, int64_t node) {
  const int64_t *first = group.bounds, *last = first + group.num_bounds;
  if (first == last || node < *first || node >= last[-1]) return false;
  return group.num_bounds == 2 || (std::upper_bound(first, last, node) - first) % 2 == 1;
}

// Writes the most visited nodes of a group; among equal ones the first visited comes first.
void Rank(const Counts& counts, const VisitGroup& group, int64_t num_nodes,
          std::vector<uint64_t>& score, int32_t* nodes, int32_t* times) {
  score.clear();
  const auto& entries = counts.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!IsIn(group, entries[i].node)) continue;
    score.push_back(static_cast<uint64_t>(entries[i].count) << 32 |
                    (UINT32_MAX - static_cast<uint32_t>(i)));
  }
  const int64_t num = std::min<int64_t>(group.size, static_cast<int64_t>(score.size()));
  std::partial_sort(score.begin(), score.begin() + num, score.end(), std::greater<uint64_t>());
  for (int64_t i = 0; i < num; ++i) {
    const auto& entry = entries[UINT32_MAX - static_cast<uint32_t>(score[i])];
    nodes[i] = entry.node;
    times[i] = entry.count;
  }
  std::fill(nodes + num, nodes + group.size, static_cast<int32_t>(num_nodes));
  std::fill(times + num, times + group.size, 0);
}

}  // namespace

std::string MostVisited(const GraphView& graph, Key key, const int32_t* targets,
                        int64_t num_targets, const VisitOptions& options, int32_t* nodes,
                        int32_t* counts, const Executor& executor) {
  int64_t width = 0;
  for (int64_t g = 0; g < options.num_groups; ++g) width += options.groups[g].size;
  std::atomic<bool> bad{false};
  const int64_t share = num_targets / (8 * std::max<int64_t>(executor.num_threads, 1));
  const int64_t size = std::min<int64_t>(std::max<int64_t>(share, 1), 64);
  ParallelFor(executor, (num_targets + size - 1) / size, [&](int64_t task) {
    TargetWalks walks(graph, key, options, bad);
    Counts visits;
    std::vector<uint64_t> score;
    const int64_t end = std::min((task + 1) * size, num_targets);
    for (int64_t t = task * size; t < end; ++t) {
      if (bad.load(std::memory_order_relaxed)) return;
      visits.Clear();
      if (targets[t] >= 0 && targets[t] < graph.num_nodes) walks.Visit(targets[t], visits);
      int64_t at = t * width;
      for (int64_t g = 0; g < options.num_groups; ++g) {
        const VisitGroup& group = options.groups[g];
        Rank(visits, group, graph.num_nodes, score, nodes + at, counts + at);
        at += group.size;
      }
    }
  });
  return bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
