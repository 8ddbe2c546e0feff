#include "push.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "walkers.h"

namespace jgs {
namespace {

constexpr int64_t kWhole = int64_t{1} << 62;  // the mass of a seed
constexpr int kParts = 31;
constexpr int32_t kFree = -1;
constexpr int64_t kAhead = 8;  // edges whose heads' places are asked for early

// A node that mass has reached.
struct alignas(64) Reached {
  int64_t left = 0, stopped = 0;  // its mass
  int64_t most = 0;               // what the best edge carried in the round of the first mass
  int64_t edge, total = 0;        // that edge; the weight of the eligible edges
  int32_t node, parent, hop;
  int32_t degree = -1;            // the number of eligible edges, -1 as long as it is not known
  bool got = true, fresh = true;  // whether it got mass in this round, and none before
};

// The nodes that mass has reached, in the order in which they were. The hash table is emptied
// entry by entry, so that its size costs nothing.
class ReachedNodes {
 public:
  JGS_INLINE void Prefetch(int32_t node) const { __builtin_prefetch(&table_[Hash(node)]); }

  // The place of a node; one more than the last for a node that was not there, which then has
  // nothing but its id.
  int32_t Place(int32_t node) {
    uint32_t at = Hash(node);
    while (table_[at].place != kFree) {
      if (table_[at].node == node) return table_[at].place;
      at = (at + 1) & mask_;
    }
    const auto place = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
    nodes_.back().node = node;
    table_[at] = {node, place};
    if (2 * nodes_.size() > table_.size()) Grow();
    return place;
  }

  void Clear() {
    for (const Reached& one : nodes_) {
      uint32_t at = Hash(one.node);
      while (table_[at].node != one.node) at = (at + 1) & mask_;
      table_[at].place = kFree;
      table_[at].node = kFree;
    }
    nodes_.clear();
  }

  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  Reached& operator[](int32_t place) { return nodes_[place]; }
  const std::vector<Reached>& all() const { return nodes_; }

 private:
  struct Slot {
    int32_t node = kFree, place = kFree;
  };

  uint32_t Hash(int32_t node) const {
    return (static_cast<uint32_t>(node) * 0x9E3779B1u) >> shift_;
  }

  void Grow() {
    --shift_;
    table_.assign(2 * table_.size(), Slot{});
    mask_ = static_cast<uint32_t>(table_.size() - 1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      uint32_t at = Hash(nodes_[i].node);
      while (table_[at].place != kFree) at = (at + 1) & mask_;
      table_[at] = {nodes_[i].node, static_cast<int32_t>(i)};
    }
  }

  int shift_ = 22;
  uint32_t mask_ = (1u << 10) - 1;
  std::vector<Slot> table_ = std::vector<Slot>(1 << 10);
  std::vector<Reached> nodes_;
};

// The search of one seed after the other.
class Pusher {
 public:
  Pusher(const GraphView& graph, const PushOptions& options, std::atomic<bool>& bad)
      : g_(graph), o_(options), bad_(bad) {}

  // Stops early and sets `bad` if the graph's arrays are damaged.
  void Search(int32_t seed, int64_t cutoff) {
    reached_.Clear();
    cutoff_ = cutoff;
    Reached& first = reached_[reached_.Place(seed)];
    first.left = kWhole;
    first.hop = 0;
    first.parent = static_cast<int32_t>(g_.num_nodes);
    first.edge = g_.num_edges;
    got_.assign(1, 0);
    for (;;) {
      FindPushing();
      if (pushing_.empty() || bad_.load(std::memory_order_relaxed)) return;
      Stop();
      got_.clear();
      for (const Push& push : pushing_) {
        if (push.share > 0) Carry(push);
      }
    }
  }

  // Writes the context of the last search to row `row` of the results.
  void Write(const PushedContexts& to, int64_t row) {
    ranked_.clear();
    const auto& all = reached_.all();
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t score = all[i].stopped + Stopping(all[i].left);
      if (score > 0) ranked_.emplace_back(-score, all[i].hop, all[i].node, i);
    }
    // The seed, which was reached first, stays in front.
    const int64_t num = std::min(to.size, static_cast<int64_t>(ranked_.size()));
    if (num > 1) {
      const auto begin = ranked_.begin() + 1, end = begin + (num - 1);
      if (end < ranked_.end()) std::nth_element(begin, end, ranked_.end());
      std::sort(begin, end);
    }
    int64_t at = row * to.size;
    for (int64_t i = 0; i < num; ++i, ++at) {
      const Reached& one = all[std::get<3>(ranked_[i])];
      to.nodes[at] = one.node;
      to.hop[at] = one.hop;
      to.parent[at] = one.parent;
      to.edge[at] = one.edge;
      to.score[at] = -std::get<0>(ranked_[i]);
    }
    Pad(to, at, to.size - num);
  }

  // Writes `num` places without a node from place `at` on.
  void Pad(const PushedContexts& to, int64_t at, int64_t num) const {
    std::fill_n(to.nodes + at, num, static_cast<int32_t>(g_.num_nodes));
    std::fill_n(to.hop + at, num, 0);
    std::fill_n(to.parent + at, num, static_cast<int32_t>(g_.num_nodes));
    std::fill_n(to.edge + at, num, g_.num_edges);
    std::fill_n(to.score + at, num, int64_t{0});
  }

 private:
  struct Push {
    int32_t place;
    int64_t share;  // what an edge of weight 1 carries
  };

  int64_t Stopping(int64_t mass) const {
    const int64_t low = mass & ((int64_t{1} << kParts) - 1);
    return (mass >> kParts) * o_.restart + (low * o_.restart >> kParts);
  }

  // Calls use(stretch, weight) for the eligible edges of each type in a node's row, or for those
  // of all types together, where there are any.
  template <typename Use>
  void ForRuns(int32_t node, const Use& use) {
    const EdgeRange row = RowOf(g_, node, bad_);
    const auto limited = [&](int64_t start, int64_t stop, int64_t weight) {
      if (start == stop || weight == 0) return;
      const Stretch run = o_.limits.Of(start, stop - start, cutoff_);
      if (run.count > 0) use(run, weight);
    };
    const int64_t end = row.start + row.count;
    if (o_.edge_type == nullptr) return limited(row.start, end, 1);
    for (int64_t at = row.start; at < end;) {
      const int64_t type = o_.edge_type[at];
      const int64_t stop =
          std::upper_bound(o_.edge_type + at, o_.edge_type + end, type) - o_.edge_type;
      const bool known = type >= 0 && type < o_.num_weights;
      limited(at, stop, o_.num_weights == 0 ? 1 : known ? o_.weight[type] : 0);
      at = stop;
    }
  }

  // Finds who pushes next, among those who got mass: all others did not push before either.
  void FindPushing() {
    pushing_.clear();
    for (int32_t place : got_) {
      Reached& one = reached_[place];
      one.got = one.fresh = false;
      if (one.left < o_.least) continue;
      if (one.degree < 0) PrefetchRow(g_, one.node);
      pushing_.push_back({place, 0});
    }
    for (const Push& push : pushing_) {
      if (reached_[push.place].degree >= 0) continue;
      const EdgeRange row = RowOf(g_, reached_[push.place].node, bad_);
      const int64_t middle = row.start + row.count / 2;
      __builtin_prefetch(&g_.indices[row.start]);
      if (o_.edge_type != nullptr) {
        __builtin_prefetch(&o_.edge_type[row.start]);
        __builtin_prefetch(&o_.edge_type[middle]);
      }
      if (o_.limits.time != nullptr) {
        __builtin_prefetch(&o_.limits.time[row.start]);
        __builtin_prefetch(&o_.limits.time[middle]);
      }
    }
    size_t kept = 0;
    for (const Push& push : pushing_) {
      Reached& one = reached_[push.place];
      if (one.degree < 0) {
        one.degree = 0;
        ForRuns(one.node, [&](const Stretch& run, int64_t weight) {
          one.degree += run.count;
          one.total += run.count * weight;
        });
      }
      if (one.left / std::max(one.degree, 1) >= o_.least) pushing_[kept++] = push;
    }
    pushing_.resize(kept);
  }

  // Takes from each that pushes what stops there and what its edges carry away.
  void Stop() {
    for (Push& push : pushing_) {
      Reached& one = reached_[push.place];
      const int64_t stops = one.degree > 0 ? Stopping(one.left) : one.left;
      push.share = (one.left - stops) / std::max<int64_t>(one.total, 1);
      one.stopped += stops;
      one.left -= stops + push.share * one.total;
    }
  }

  void Carry(const Push& push) {
    const int32_t parent = reached_[push.place].node, hop = reached_[push.place].hop + 1;
    ForRuns(parent, [&](const Stretch& run, int64_t weight) {
      const int64_t mass = push.share * weight, end = run.start + run.length();
      int32_t hole = 0;
      for (int64_t edge = run.start; edge < end; ++edge) {
        if (hole < run.holes.num && run.holes.edge[hole] == edge) {
          ++hole;
          continue;
        }
        if (edge + kAhead < end) reached_.Prefetch(g_.indices[edge + kAhead]);
        const int32_t head = g_.indices[edge];
        if (head < 0 || head >= g_.num_nodes) {
          bad_.store(true);
          return;
        }
        Give(head, mass, edge, parent, hop);
      }
    });
  }

  void Give(int32_t node, int64_t mass, int64_t edge, int32_t parent, int32_t hop) {
    const int64_t known = reached_.size();
    const int32_t place = reached_.Place(node);
    Reached& one = reached_[place];
    one.left += mass;
    if (place == known || !one.got) {
      one.got = true;
      got_.push_back(place);
    }
    if (!one.fresh) return;
    // Edges of a parent come in their order, so the last of equal ones stays.
    if (mass > one.most || (mass == one.most && parent <= one.parent)) {
      one.most = mass;
      one.edge = edge;
      one.parent = parent;
      one.hop = hop;
    }
  }

  const GraphView& g_;
  const PushOptions& o_;
  std::atomic<bool>& bad_;
  int64_t cutoff_ = 0;
  ReachedNodes reached_;
  std::vector<int32_t> got_;  // the places of those who got mass in this round
  std::vector<Push> pushing_;
  std::vector<std::tuple<int64_t, int32_t, int32_t, size_t>> ranked_;
};

}  // namespace

std::string PushContexts(const GraphView& graph, const Seeds& seeds, const PushOptions& options,
                         const PushedContexts& contexts, const Executor& executor) {
  std::string error = CheckSeeds(seeds.nodes, seeds.num, graph.num_nodes);
  if (!error.empty()) return error;
  std::atomic<bool> bad{false};
  std::mutex mutex;
  std::vector<std::unique_ptr<Pusher>> free;  // as many as threads were ever busy
  const auto exchange = [&](std::unique_ptr<Pusher> done) {
    std::lock_guard<std::mutex> lock(mutex);
    if (done != nullptr) {
      free.push_back(std::move(done));
    } else if (!free.empty()) {
      done = std::move(free.back());
      free.pop_back();
    }
    return done;
  };
  ParallelFor(executor, seeds.num, [&](int64_t i) {
    if (bad.load(std::memory_order_relaxed)) return;
    std::unique_ptr<Pusher> pusher = exchange(nullptr);
    if (pusher == nullptr) pusher = std::make_unique<Pusher>(graph, options, bad);
    if (seeds.nodes[i] == graph.num_nodes) {
      pusher->Pad(contexts, i * contexts.size, contexts.size);
    } else {
      pusher->Search(seeds.nodes[i], seeds.time != nullptr ? seeds.time[i] : 0);
      pusher->Write(contexts, i);
    }
    exchange(std::move(pusher));
  });
  return bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
