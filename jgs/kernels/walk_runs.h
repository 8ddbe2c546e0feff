// What steps under cutoffs draw from in a graph of several relations: the eligible edges of all
// runs of a row, which are the edges of one relation. jgs/sampling/walks.py defines the draws.
#ifndef JGS_KERNELS_WALK_RUNS_H_
#define JGS_KERNELS_WALK_RUNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "draw.h"
#include "time_search.h"
#include "walkers.h"

namespace jgs {

// The runs of the rows in which some lanes are. Each stage prefetches what the next one reads.
class WalkRuns {
 public:
  // The eligible edges of a run.
  struct Part {
    int64_t start;
    int32_t length;  // holes and all
    int32_t lane;
    Holes holes;
    int64_t size;  // the number of eligible edges, or their weight
  };

  // Without an index a row is one run.
  WalkRuns(const GraphView& graph, const WalkOptions& options, std::atomic<bool>& bad)
      : g_(graph), index_(options.index), limits_(options.limits), bad_(bad) {}

  void AskFor(int32_t node) const {
    if (index_.indptr == nullptr) return;
    __builtin_prefetch(&index_.indptr[node]);
    __builtin_prefetch(&index_.ends[node]);
  }

  // Finds the eligible edges of the nodes in which `num` lanes are, before their cutoffs.
  void Find(int num, const int32_t* here, const int64_t* cutoff) {
    parts_.clear();
    cutoff_ = cutoff;
    if (index_.indptr != nullptr) {
      FindRuns(num, here);
    } else {
      FindRows(num, here);
    }
    if (limits_.time != nullptr) CutAll();
    for (int r = 0; r < num; ++r) {
      int64_t total = 0;
      for (int32_t p = first_[r]; p < last_[r]; ++p) {
        Part& part = parts_[p];
        part.size = part.length;
        part.holes = limits_.StepOver(part.start, part.size);
        total += part.size;
      }
      if (total > std::numeric_limits<int32_t>::max()) {
        bad_.store(true);
        total = 0;
      }
      total_[r] = total;
    }
  }

  // The number of eligible edges of a lane's node; after Weigh their weight.
  int64_t Total(int r) const { return total_[r]; }

  // The parts of a lane's node.
  const Part* begin(int r) const { return parts_.data() + first_[r]; }
  const Part* end(int r) const { return parts_.data() + last_[r]; }

  // The part of a lane's node that has a number below Total, which becomes one of the part.
  const Part& At(int r, int64_t& number) const {
    int32_t p = first_[r];
    while (p + 1 < last_[r] && number >= parts_[p].size) number -= parts_[p++].size;
    return parts_[p];
  }

  // The weights of the holes of a part, after Weigh.
  const HoleWeights& WeightsOf(const Part& part) const {
    return weights_[&part - parts_.data()];
  }

  // Makes `size` and Total weights, of a graph that has some.
  void Weigh(int num, const int32_t* here) {
    const int64_t* const prefix = g_.weight_prefix;
    for (const Part& part : parts_) {
      if (part.length == 0) continue;
      __builtin_prefetch(&prefix[std::max<int64_t>(part.start - 1, 0)]);
      __builtin_prefetch(&prefix[part.start + part.length - 1]);
    }
    weights_.resize(parts_.size());
    for (int r = 0; r < num; ++r) {
      total_[r] = 0;
      for (int32_t p = first_[r]; p < last_[r]; ++p) {
        Part& part = parts_[p];
        if (part.length == 0) continue;
        const int64_t before = part.start > g_.indptr[here[r]] ? prefix[part.start - 1] : 0;
        const int64_t all = Minus(prefix[part.start + part.length - 1], before);
        weights_[p] = limits_.WeightsOf(part.holes, part.start, before);
        const int64_t lost = weights_[p].Lost(part.holes.num);
        part.size = std::max<int64_t>(Minus(all, lost), 0);
        total_[r] = Plus(total_[r], part.size);
      }
    }
  }

 private:
  static constexpr int32_t kShort = 16;  // edges whose times are read without a search
  static constexpr int kRelationBits = 15, kTimesOfLine = 8;

  // Finds the parts of the lanes' nodes, whatever the cutoffs are.
  void FindRows(int num, const int32_t* here) {
    for (int r = 0; r < num; ++r) {
      const EdgeRange row = RowOf(g_, here[r], bad_);
      first_[r] = static_cast<int32_t>(parts_.size());
      if (row.count > 0) Take(row, r);
      last_[r] = static_cast<int32_t>(parts_.size());
    }
  }

  void FindRuns(int num, const int32_t* here) {
    int64_t begin[kLanes], count[kLanes];
    for (int r = 0; r < num; ++r) {
      begin[r] = index_.indptr[here[r]];
      count[r] = Minus(index_.ends[here[r]], begin[r]);
      if (begin[r] < 0 || count[r] < 0 || count[r] > int64_t{1} << kRelationBits ||
          count[r] > index_.num_runs - begin[r]) {
        bad_.store(true);
        begin[r] = count[r] = 0;
      }
      __builtin_prefetch(&index_.runs[begin[r]]);
      __builtin_prefetch(&index_.runs[begin[r] + count[r]]);
    }
    for (int r = 0; r < num; ++r) {
      first_[r] = static_cast<int32_t>(parts_.size());
      const int64_t* const runs = index_.runs + begin[r];
      for (int64_t j = 0; j < count[r]; ++j) {
        const int64_t start = runs[j] >> kRelationBits, stop = runs[j + 1] >> kRelationBits;
        const EdgeRange run = RangeOf(g_, start, stop - start, bad_);
        if (run.count > 0) Take(run, r);
      }
      last_[r] = static_cast<int32_t>(parts_.size());
    }
  }

  void Take(const EdgeRange& run, int lane) {
    parts_.push_back({run.start, run.count, lane, {}, 0});
    if (limits_.time == nullptr) return;
    const int64_t* const time = limits_.time + run.start;
    __builtin_prefetch(time);
    __builtin_prefetch(time + run.count - 1);
    if (run.count > kTimesOfLine && run.count <= kShort) __builtin_prefetch(time + kTimesOfLine);
  }

  // Makes all parts those of their eligible edges, holes and all.
  void CutAll() {
    long_.clear();
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].length > kShort) {
        long_.push_back(static_cast<int32_t>(p));
      } else {
        Cut(parts_[p]);
      }
    }
    if (!long_.empty()) SearchLong();
  }

  void Cut(Part& part) const {
    const int64_t cutoff = cutoff_[part.lane];
    part.length = Less(part, cutoff);
    if (limits_.window >= 0) Drop(part, Less(part, limits_.Since(cutoff)));
  }

  int32_t Less(const Part& part, int64_t bound) const {
    const int64_t* const time = limits_.time + part.start;
    int32_t less = 0;
    for (int32_t i = 0; i < part.length; ++i) less += time[i] < bound;
    return less;
  }

  static void Drop(Part& part, int32_t count) {
    part.start += count;
    part.length -= count;
  }

  void SearchLong() {
    for (bool window : {false, true}) {
      if (window && limits_.window < 0) return;
      SearchTimes(
          static_cast<int64_t>(long_.size()),
          [&](int64_t i, const int64_t*& values, int32_t& count, int64_t& target) {
            const Part& part = parts_[long_[i]];
            values = limits_.time + part.start;
            count = part.length;
            target = window ? limits_.Since(cutoff_[part.lane]) : cutoff_[part.lane];
          },
          [&](int64_t i, int32_t found) {
            Part& part = parts_[long_[i]];
            window ? Drop(part, found) : static_cast<void>(part.length = found);
          });
    }
  }

  const GraphView& g_;
  const RelationIndex& index_;
  const Limits& limits_;
  std::atomic<bool>& bad_;
  const int64_t* cutoff_ = nullptr;
  std::vector<Part> parts_;    // those of a lane follow each other
  std::vector<HoleWeights> weights_;
  std::vector<int32_t> long_;  // parts whose times are searched
  int32_t first_[kLanes], last_[kLanes];  // the parts of each lane
  int64_t total_[kLanes];
};

}  // namespace jgs

#endif  // JGS_KERNELS_WALK_RUNS_H_
