// Walks of first order from one seed, many together. All their steps have the seed's cutoff,
// and they come back to the same nodes. jgs/sampling/walks.py defines the draws.
#ifndef JGS_KERNELS_SEED_WALKS_H_
#define JGS_KERNELS_SEED_WALKS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "isa.h"
#include "walk_runs.h"
#include "walkers.h"

namespace jgs {

// Walks that draw uniformly. Each stage of a step is a loop over all walks, which prefetches
// what the next stage reads, and mostly has no branch that depends on a draw. What was found
// for a node is remembered: half of the steps come back to one of the latest nodes.
class SeedWalks {
 public:
  static constexpr int kTogether = 48;

  SeedWalks(const GraphView& graph, Key key, const WalkOptions& options, std::atomic<bool>& bad)
      : g_(graph), key_(key), o_(options), bad_(bad), runs_(graph, options, bad) {}

  // Begins the walks of a seed that is a node; `cutoff` is null if there are no times.
  void Begin(int32_t seed, const int64_t* cutoff) {
    seed_ = seed;
    cutoff_ = cutoff != nullptr ? *cutoff : 0;
    since_ = o_.limits.window < 0 ? std::numeric_limits<int64_t>::min()
                                  : o_.limits.Since(cutoff_);
    of_seed_ = cutoff != nullptr ? WithCutoff(key_, cutoff_) : key_;
    std::fill_n(cutoffs_, kLanes, cutoff_);
    Forget();
  }

  // Makes `num` walks, at most kTogether, from the one with the number `first` on: their nodes
  // [num, length + 1], num_nodes after their ends, and the edges [num, length] of their steps,
  // undefined where they jumped and after their ends.
  void Walk(int64_t first, int num, int32_t* nodes, int64_t* edges) {
    first_ = static_cast<uint32_t>(first);
    RunOn(isa_, Keys{*this});
    num_ = num;
    for (int r = 0; r < num; ++r) {
      walk_[r] = r;
      here_[r] = seed_;
      nodes[r * (o_.length + 1)] = seed_;
    }
    for (step_ = 1; step_ <= o_.length && num_ > 0; ++step_) {
      RunOn(isa_, Bits{*this, 0, high_, low_});
      FindRows();
      RunOn(isa_, Positions{*this});
      FindOdd();
      if (o_.restart != 0 && step_ > 1) Jump();
      for (int r = 0; r < num_; ++r) {
        __builtin_prefetch(&g_.indices[std::max<int64_t>(edge_[r], 0)]);
      }
      Step(nodes, edges);
      if (bad_.load(std::memory_order_relaxed)) return;
    }
  }

 private:
  static constexpr int64_t kNone = -1, kBack = -2;  // in place of an edge
  static constexpr int kWhole = 16;                 // lanes of the widest vectors
  static constexpr int kFew = 32;                   // edges of a row that are all looked at
  static constexpr int kMemoBits = 12;
  static constexpr size_t kMostParts = 1 << 14;
  // In place of where a lane's eligible edges begin, if they do not follow each other: this, or
  // a negative number whose complement is the first of the parts.
  static constexpr int64_t kScattered = std::numeric_limits<int64_t>::min();

  // What was found for a node.
  struct Entry {
    int32_t node, count;  // of its eligible edges
    int64_t start;
  };

  struct Part {
    int64_t start, size;
    Holes holes;
  };

  struct Keys {
    SeedWalks& w;
    JGS_INLINE void operator()() const {
      for (int r = 0; r < kTogether; ++r) {
        uint32_t x0 = static_cast<uint32_t>(w.seed_), x1 = w.first_ + r;
        Threefry(w.of_seed_, x0, x1);
        w.key0_[r] = x0;
        w.key1_[r] = x1;
      }
    }
  };

  struct Bits {
    SeedWalks& w;
    uint32_t number;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const {
      const int used = (w.num_ + kWhole - 1) / kWhole * kWhole;
      for (int r = 0; r < used; ++r) {
        uint32_t x0 = static_cast<uint32_t>(w.step_), x1 = number;
        Threefry({{w.key0_[r], w.key1_[r]}}, x0, x1);
        high[r] = x0;
        low[r] = x1;
      }
    }
  };

  // The position of each lane's draw among its eligible edges, and the edge if these follow
  // each other.
  struct Positions {
    SeedWalks& w;
    JGS_INLINE void operator()() const {
      const int used = (w.num_ + kWhole - 1) / kWhole * kWhole;
      for (int r = 0; r < used; ++r) {
        const uint64_t n = static_cast<uint32_t>(w.count_[r]), carry = w.low_[r] * n >> 32;
        const int64_t position = static_cast<int64_t>((w.high_[r] * n + carry) >> 32);
        w.position_[r] = position;
        w.edge_[r] = n > 0 ? w.start_[r] + position : kNone;
      }
    }
  };

  static uint32_t Place(int32_t node) {
    return (static_cast<uint32_t>(node) * 0x9E3779B1u) >> (32 - kMemoBits);
  }

  void Forget() {
    memo_.assign(size_t{1} << kMemoBits, Entry{-1, 0, 0});
    parts_.clear();
  }

  // Finds the eligible edges of each lane's node.
  void FindRows() {
    if (parts_.size() > kMostParts) Forget();
    int unknown[kTogether], far[kTogether];
    int num_unknown = 0, num_near = 0, num_far = 0;
    for (int r = 0; r < num_; ++r) {
      const Entry& entry = memo_[Place(here_[r])];
      start_[r] = entry.start;
      count_[r] = entry.count;
      unknown[num_unknown] = r;
      num_unknown += entry.node != here_[r];
    }
    const bool timed = o_.limits.time != nullptr, any_holes = o_.limits.num_excluded != 0;
    const int64_t cutoff = cutoff_;
    Entry* const memo = memo_.data();
    const int32_t few = timed ? kFew : std::numeric_limits<int32_t>::max();
    for (int u = 0; u < num_unknown; ++u) {
      const int r = unknown[u];
      int64_t latest = std::numeric_limits<int64_t>::max();
      const EdgeRange row = Row(here_[r], latest);
      start_[r] = row.start;
      count_[r] = row.count;
      __builtin_prefetch(&g_.indices[row.start]);
      const bool has_holes = any_holes && o_.limits.In(row.start, row.count).num > 0;
      // The times of a row that lies before the cutoff as a whole are not read.
      if (latest < cutoff && !has_holes) {
        memo[Place(here_[r])] = {here_[r], row.count, row.start};
        continue;
      }
      const bool is_far = row.count > few || has_holes;
      far[num_far] = near_[num_near] = r;
      num_far += is_far;
      num_near += !is_far;
      if (is_far) runs_.AskFor(here_[r]);
      if (!timed) continue;
      __builtin_prefetch(&o_.limits.time[row.start]);
      __builtin_prefetch(&o_.limits.time[row.start + row.count / 2]);
      __builtin_prefetch(&o_.limits.time[row.start + row.count - 1]);
    }
    num_near_ = num_near;
    if (timed) {
      RunOn(isa_, Cuts{*this});
      for (int n = 0; n < num_near; ++n) {
        const int r = near_[n];
        Entry& entry = memo_[Place(here_[r])];
        // What took a search stays.
        if (start_[r] >= 0 && entry.count <= kFew) entry = {here_[r], count_[r], start_[r]};
      }
    }
    for (int i = 0; i < num_far; i += kLanes) FindFar(far + i, std::min(num_far - i, kLanes));
  }

  // The row of a node, and the time of its latest edge if that is known.
  EdgeRange Row(int32_t node, int64_t& latest) {
    if (o_.rows == nullptr) return RowOf(g_, node, bad_);
    const RowTime& row = o_.rows[node];
    latest = row.latest;
    if (row.count() == RowTime::kMany) return RowOf(g_, node, bad_);
    return RangeOf(g_, row.start(), row.count(), bad_);
  }

  void AskForRow(int32_t node) const {
    if (o_.rows == nullptr) return PrefetchRow(g_, node);
    __builtin_prefetch(&o_.rows[node]);
  }

  // Makes the few edges of lanes' rows those that are eligible by their times.
  struct Cuts {
    SeedWalks& w;
    JGS_INLINE void operator()() const {
      const int64_t cutoff = w.cutoff_, since = w.since_;
      for (int n = 0; n < w.num_near_; ++n) {
        const int r = w.near_[n];
        const int64_t count = w.count_[r], *const time = w.o_.limits.time + w.start_[r];
        int64_t sum = 0;  // of the eligible edges: 2**32, and the place in the row
        for (int64_t i = 0; i < count; ++i) {
          const bool eligible = (time[i] < cutoff) & (time[i] >= since);
          sum += eligible ? (int64_t{1} << 32) + i : 0;
        }
        const int64_t found = sum >> 32;
        // The places have the least sum if they are the first ones.
        const bool first = 2 * (sum & 0xFFFFFFFF) == found * (found - 1);
        w.row_[r] = w.start_[r];
        w.count_[r] = static_cast<int32_t>(found);
        w.start_[r] = first ? w.start_[r] : kScattered;
      }
    }
  };

  void FindFar(const int* lanes, int num) {
    int32_t here[kLanes];
    for (int i = 0; i < num; ++i) here[i] = here_[lanes[i]];
    runs_.Find(num, here, cutoffs_);
    for (int i = 0; i < num; ++i) {
      const size_t before = parts_.size();
      for (auto* part = runs_.begin(i); part != runs_.end(i); ++part) {
        if (part->size > 0) parts_.push_back({part->start, part->size, part->holes});
      }
      Entry entry{here[i], static_cast<int32_t>(runs_.Total(i)), ~static_cast<int64_t>(before)};
      if (parts_.size() == before) entry.start = 0;
      if (parts_.size() == before + 1 && parts_[before].holes.num == 0) {
        entry.start = parts_[before].start;
        parts_.pop_back();
      }
      memo_[Place(here[i])] = entry;
      start_[lanes[i]] = entry.start;
      count_[lanes[i]] = entry.count;
    }
  }

  // Finds the edges that were drawn among such as do not follow each other.
  void FindOdd() {
    for (int r = 0; r < num_; ++r) {
      if (start_[r] >= 0 || count_[r] == 0) continue;
      int64_t position = position_[r];
      if (start_[r] == kScattered) {
        edge_[r] = row_[r] - 1;
        do {
          const int64_t time = o_.limits.time[++edge_[r]];
          position -= time < cutoff_ && time >= since_;
        } while (position >= 0);
      } else {
        const Part* part = &parts_[~start_[r]];
        while (position >= part->size) position -= part++->size;
        edge_[r] = part->holes.Edge(part->start, position);
      }
    }
  }

  void Jump() {
    RunOn(isa_, Bits{*this, kJumps, back_, low_});
    for (int r = 0; r < num_; ++r) edge_[r] = back_[r] < o_.restart ? kBack : edge_[r];
  }

  void Step(int32_t* nodes, int64_t* edges) {
    int kept = 0;
    for (int r = 0; r < num_; ++r) {
      const int walk = walk_[r];
      int32_t there = seed_;
      if (edge_[r] >= 0) {
        there = g_.indices[edge_[r]];
        if (there < 0 || there >= g_.num_nodes) {
          bad_.store(true);
          return;
        }
      }
      int32_t* const path = nodes + walk * (o_.length + 1);
      if (edge_[r] == kNone) {
        std::fill(path + step_, path + o_.length + 1, static_cast<int32_t>(g_.num_nodes));
        continue;
      }
      path[step_] = there;
      edges[walk * o_.length + step_ - 1] = edge_[r];
      AskForRow(there);
      here_[kept] = there;
      if (kept != r) {
        walk_[kept] = walk;
        key0_[kept] = key0_[r];
        key1_[kept] = key1_[r];
      }
      ++kept;
    }
    num_ = kept;
  }

  const GraphView& g_;
  const Key key_;
  const WalkOptions& o_;
  std::atomic<bool>& bad_;
  const Isa isa_ = BestIsa();
  WalkRuns runs_;
  int32_t seed_ = 0;
  int64_t cutoff_ = 0, since_ = 0;
  Key of_seed_{};
  uint32_t first_ = 0;  // the number of the first walk
  std::vector<Entry> memo_;
  std::vector<Part> parts_;  // those of a node follow each other
  int64_t cutoffs_[kLanes];
  int num_ = 0;  // lanes in use, which come first
  int64_t step_ = 0;
  int walk_[kTogether], near_[kTogether], num_near_ = 0;
  int32_t here_[kTogether];
  int32_t count_[kTogether] = {};  // of the eligible edges of each lane's node
  uint32_t key0_[kTogether], key1_[kTogether];
  uint32_t high_[kTogether], low_[kTogether], back_[kTogether];
  int64_t start_[kTogether] = {};  // where they begin; see kScattered
  int64_t position_[kTogether], edge_[kTogether];
  int64_t row_[kTogether];  // where the rows begin of which few edges are scattered
};

}  // namespace jgs

#endif  // JGS_KERNELS_SEED_WALKS_H_
