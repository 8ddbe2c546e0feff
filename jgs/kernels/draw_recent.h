// Draws in proportion to recency: an edge's weight halves with each half-life of its age.
// jgs/sampling/edges/recency.py defines the weights, their sums and the results.
#ifndef JGS_KERNELS_DRAW_RECENT_H_
#define JGS_KERNELS_DRAW_RECENT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draw.h"
#include "draw_weighted.h"
#include "eligible.h"
#include "sample_stream.h"

namespace jgs {

// Draws by recency from the edges of one run, of which some are removed. The search begins at
// the latest edge and goes back in growing steps, because most of the weight is near it.
class RecentRow {
 public:
  // `run` is where the edges of the run begin.
  RecentRow(const Recency& recency, int64_t run) : recency_(recency), begin_(run) {}

  // The edge of [start, latest] that the bits draw. The removed edges ascend, and `latest` is
  // none of them.
  int64_t Draw(int64_t start, int64_t latest, const int64_t* removed, int64_t num_removed,
               uint64_t bits) {
    scale_ = Octave(latest);
    const int64_t base = Through(start - 1);
    int64_t left = Minus(Through(latest), base);
    for (int64_t i = 0; i < num_removed && removed[i] <= latest; ++i) {
      left = Minus(left, Minus(Through(removed[i]), Through(removed[i] - 1)));
    }
    int64_t point = Plus(Below(bits, left), base);
    for (int64_t i = 0; i < num_removed && removed[i] <= latest; ++i) {
      const int64_t before = Through(removed[i] - 1);
      if (before > point) break;
      point = Plus(point, Minus(Through(removed[i]), before));
    }
    return Search(start, latest, point);
  }

 private:
  int64_t Octave(int64_t edge) const {
    const int64_t time = recency_.time[edge], whole = time / recency_.half_life;
    return whole - (time % recency_.half_life < 0);
  }

  // The weight of the run's edges up to and with `edge`, in units of scale_.
  int64_t Through(int64_t edge) const {
    if (edge < begin_) return 0;
    const uint64_t apart =
        static_cast<uint64_t>(scale_) - static_cast<uint64_t>(Octave(edge));
    return recency_.sums[edge] >> std::min<uint64_t>(apart, 63);
  }

  // The first edge of [start, latest] with more weight up to it than `point`; `latest` has.
  int64_t Search(int64_t start, int64_t latest, int64_t point) const {
    int64_t high = latest, low = start;
    for (int64_t step = 1; high > low; step *= 2) {
      const int64_t at = std::max(latest - step, low);
      if (Through(at) <= point) {
        low = at + 1;
        break;
      }
      high = at;
    }
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Through(middle) > point) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return high;
  }

  const Recency& recency_;
  const int64_t begin_;
  int64_t scale_ = 0;
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
    for (int r = 0; r < batch_.num_rows; ++r) DrawRow(r);
  }

 private:
  struct Bits {
    Key key;
    const Draws& d;
    int64_t draw;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const { RandomBits<true>(key, d, draw, high, low); }
  };

  void DrawRow(int row) {
    const Stretch& edges = edges_[row];
    RecentRow own(recency_, run_[row]);
    removed_.assign(edges.holes.edge, edges.holes.edge + edges.holes.num);
    int64_t latest = edges.holes.Edge(edges.start, edges.count - 1);
    const int64_t draws = std::min<int64_t>(batch_.fanout, batch_.own_fanout[row]);
    for (int64_t i = 0; i < draws; ++i) {
      while (std::binary_search(removed_.begin(), removed_.end(), latest)) --latest;
      const int64_t found = own.Draw(edges.start, latest, removed_.data(),
                                     static_cast<int64_t>(removed_.size()),
                                     bits_[i * kLanes + row]);
      batch_.position[i * kLanes + row] = static_cast<int32_t>(found - edges.start);
      if (replace_) continue;
      removed_.insert(std::lower_bound(removed_.begin(), removed_.end(), found), found);
    }
  }

  Draws& batch_;
  const Recency& recency_;
  const bool replace_;
  Stretch edges_[kLanes];
  int64_t run_[kLanes];
  std::vector<uint64_t> bits_;   // [fanout][kLanes]
  std::vector<int64_t> removed_;  // of a row, ascending
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_RECENT_H_
