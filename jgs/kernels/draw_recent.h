// Draws in proportion to recency: an edge's weight halves with each half-life of its age.
// jgs/sampling/edges/recency.py defines the weights, their sums and the results.
#ifndef JGS_KERNELS_DRAW_RECENT_H_
#define JGS_KERNELS_DRAW_RECENT_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "draw.h"
#include "draw_weighted.h"
#include "eligible.h"
#include "sample_stream.h"

namespace jgs {

// The weight of a run's edges up to one of them, in units that its octave names.
struct DecayedSum {
  int64_t octave, sum;

  // In units of a later octave, rounded down.
  int64_t In(int64_t scale) const {
    const uint64_t apart = static_cast<uint64_t>(scale) - static_cast<uint64_t>(octave);
    return sum >> std::min<uint64_t>(apart, 63);
  }
};

// Draws by recency from the edges of one run, of which some are removed. The search begins at
// the latest edge and goes back in growing steps, because most of the weight is near it.
class RecentRow {
 public:
  explicit RecentRow(const Recency& recency) : recency_(recency) {}

  // Searches in all rows side by side, so that they wait for memory together. Those without a
  // draw have found theirs already.
  static void SearchAll(RecentRow* rows, int num_rows) {
    for (bool open = true; open;) {
      open = false;
      for (int r = 0; r < num_rows; ++r) open |= rows[r].Step();
    }
  }

  // Begins with the edges of [start, latest], of which the holes are removed. `run` is where the
  // edges of their run begin. `latest` is no hole.
  void Begin(int64_t run, int64_t start, int64_t latest, const Holes& holes) {
    run_ = run;
    start_ = start;
    latest_ = latest;
    before_ = Through(start - 1);
    removed_.clear();
    for (int64_t i = 0; i < holes.num && holes.edge[i] <= latest; ++i) Push(holes.edge[i]);
  }

  // Begins to search for the edge that the bits draw.
  void Draw(uint64_t bits) {
    scale_ = Octave(latest_);
    const int64_t base = before_.In(scale_), all = Through(latest_).In(scale_);
    int64_t left = Minus(all, base);
    for (const Removed& each : removed_) left = Minus(left, each.Weight(scale_));
    point_ = Plus(Below(bits, left), base);
    for (const Removed& each : removed_) {
      if (each.before.In(scale_) > point_) break;
      point_ = Plus(point_, each.Weight(scale_));
    }
    low_ = start_;
    high_ = latest_;
    // No edge weighs more than 2**32, so at least so many are after the edge that is drawn.
    step_ = std::max<int64_t>(1, Minus(all, point_) >> 32);
    Aim();
  }

  // The edge that was found.
  int64_t Found() const { return high_; }

  // Removes an edge, which must not be the last one that is left.
  void Remove(int64_t edge) {
    Push(edge);
    for (size_t i = removed_.size() - 1; i > 0 && removed_[i - 1].edge > edge; --i) {
      std::swap(removed_[i - 1], removed_[i]);
    }
    while (!removed_.empty() && removed_.back().edge == latest_) {
      removed_.pop_back();
      --latest_;
    }
  }

 private:
  struct Removed {
    int64_t edge;
    DecayedSum before, through;  // up to the edge without it, and with it

    int64_t Weight(int64_t scale) const { return Minus(through.In(scale), before.In(scale)); }
  };

  void Push(int64_t edge) { removed_.push_back({edge, Through(edge - 1), Through(edge)}); }

  int64_t Octave(int64_t edge) const {
    const int64_t time = recency_.time[edge], whole = time / recency_.half_life;
    return whole - (time % recency_.half_life < 0);
  }

  // The weight of the run's edges up to and with `edge`.
  DecayedSum Through(int64_t edge) const {
    if (edge < run_) return {0, 0};
    return {Octave(edge), recency_.sums[edge]};
  }

  // What is looked for is the first edge of [low_, high_] with more weight up to it than point_;
  // high_ has. Looks at one edge; returns whether others are left to look at.
  bool Step() {
    if (low_ >= high_) return false;
    if (Through(at_).In(scale_) > point_) {
      high_ = at_;
      step_ *= 2;
    } else {
      low_ = at_ + 1;
      step_ = 0;
    }
    Aim();
    return low_ < high_;
  }

  // Decides which edge to look at next: in growing steps until one has too little, then halfway.
  void Aim() {
    if (low_ >= high_) return;
    at_ = step_ > 0 ? std::max(latest_ - step_, low_) : low_ + (high_ - low_) / 2;
    __builtin_prefetch(&recency_.sums[at_]);
    __builtin_prefetch(&recency_.time[at_]);
  }

  const Recency& recency_;
  int64_t run_ = 0, start_ = 0, latest_ = 0;
  int64_t scale_ = 0, point_ = 0, low_ = 0, high_ = 0, step_ = 0, at_ = 0;  // of the search
  DecayedSum before_{0, 0};
  std::vector<Removed> removed_;  // those up to `latest_`, ascending
};

// Draws by recency for the rows of a batch. Removed edges, which are the excluded and, without
// replacement, the drawn ones, are stepped over.
class RecentDraws {
 public:
  RecentDraws(Draws& batch, const Recency& recency, bool replace)
      : batch_(batch), recency_(recency), replace_(replace) {}

  // The eligible edges of a row, and where the edges of its run begin.
  void Limit(int row, const Stretch& edges, int64_t run) {
    edges_[row] = edges;
    run_[row] = run;
    const int64_t last = edges.start + edges.length() - 1;
    PrefetchFar(&recency_.sums[last]);
    PrefetchFar(&recency_.time[last]);
  }

  // Draws for the batch's rows, into its `position`: positions in the stretch, holes and all.
  void Draw(Key key, Isa isa) {
    bits_.resize(batch_.fanout * kLanes);
    for (int64_t i = 0; i < batch_.fanout; ++i) {
      uint32_t high[kLanes], low[kLanes];
      RunOn(isa, Bits{key, batch_, i, high, low});
      for (int r = 0; r < kLanes; ++r) {
        bits_[i * kLanes + r] = static_cast<uint64_t>(high[r]) << 32 | low[r];
      }
    }
    while (rows_.size() < kLanes) rows_.emplace_back(recency_);
    int64_t draws[kLanes], most = 0;
    for (int r = 0; r < batch_.num_rows; ++r) {
      const Stretch& edges = edges_[r];
      draws[r] = std::min<int64_t>(batch_.fanout, batch_.own_fanout[r]);
      most = std::max(most, draws[r]);
      if (draws[r] == 0) continue;
      rows_[r].Begin(run_[r], edges.start, edges.holes.Edge(edges.start, edges.count - 1),
                     edges.holes);
    }
    for (int64_t i = 0; i < most; ++i) {
      for (int r = 0; r < batch_.num_rows; ++r) {
        if (i < draws[r]) rows_[r].Draw(bits_[i * kLanes + r]);
      }
      RecentRow::SearchAll(rows_.data(), batch_.num_rows);
      for (int r = 0; r < batch_.num_rows; ++r) {
        if (i >= draws[r]) continue;
        const int64_t found = rows_[r].Found();
        batch_.position[i * kLanes + r] = static_cast<int32_t>(found - edges_[r].start);
        if (!replace_ && i + 1 < draws[r]) rows_[r].Remove(found);
      }
    }
  }

 private:
  struct Bits {
    Key key;
    const Draws& d;
    int64_t draw;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const { RandomBits<true>(key, d, draw, high, low); }
  };

  Draws& batch_;
  const Recency& recency_;
  const bool replace_;
  Stretch edges_[kLanes];
  int64_t run_[kLanes];
  std::vector<RecentRow> rows_;
  std::vector<uint64_t> bits_;  // [fanout][kLanes]
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_RECENT_H_
