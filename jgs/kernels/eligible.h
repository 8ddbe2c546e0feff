// The edges that a row may be drawn from: a stretch of the row, without the holes in it.
// jgs/sampling/edges/eligible.py defines the results.
#ifndef JGS_KERNELS_ELIGIBLE_H_
#define JGS_KERNELS_ELIGIBLE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "isa.h"

namespace jgs {

// What a batch is drawn for.
struct Seeds {
  const int32_t* nodes;
  int64_t num;
  const int64_t* time = nullptr;      // [num] cutoffs, or null
  const int64_t* excluded = nullptr;  // [num_excluded] ascending, the graph's edges as padding
  int64_t num_excluded = 0;
};

// The excluded edges in a stretch.
struct Holes {
  const int64_t* edge = nullptr;  // ascending
  int32_t num = 0;

  // The eligible edge number `position` of a stretch that begins at `start`.
  int64_t Edge(int64_t start, int64_t position) const {
    int32_t low = 0, high = num;
    while (low < high) {  // hole h lies after edge[h] - start - h eligible edges
      const int32_t middle = low + (high - low) / 2;
      if (edge[middle] - start - middle > position) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return start + position + low;
  }

  // The number of holes before an edge.
  int32_t Before(int64_t at) const {
    return static_cast<int32_t>(std::lower_bound(edge, edge + num, at) - edge);
  }
};

// Sums that may wrap around: damaged prefix sums give a wrong draw, not undefined behaviour.
JGS_INLINE inline int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
JGS_INLINE inline int64_t Minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// The weights of the holes of a stretch. See Limits::WeightsOf.
struct HoleWeights {
  int64_t base;  // the weight in the row before the stretch
  int32_t num = 0;
  int64_t extra = 0;  // what `lost` counts too little for the first hole
  const int64_t *begin = nullptr, *lost = nullptr;  // of the stretch's first hole on

  // The weight of the first `count` holes.
  int64_t Lost(int32_t count) const {
    return count == 0 ? 0 : Plus(Minus(lost[count], lost[0]), extra);
  }

  // The point of the row that a point of its eligible edges is: it steps over the holes before.
  int64_t InRow(int64_t point) const {
    int32_t low = 0, high = num;
    while (low < high) {  // the first hole with more eligible weight before it than the point
      const int32_t middle = low + (high - low) / 2;
      const int64_t before = middle == 0 ? Minus(begin[0], extra) : begin[middle];
      if (Minus(Minus(before, base), Lost(middle)) > point) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return Plus(Plus(point, base), Lost(low));
  }
};

// Part of a row: `count` eligible edges and the holes among them, from `start` on.
struct Stretch {
  int64_t start;
  int32_t count;
  Holes holes;

  int32_t length() const { return count + holes.num; }
};

// What limits the rows of a batch.
struct Limits {
  const int64_t* excluded = nullptr;  // [num_excluded], without padding
  int64_t num_excluded = 0;
  const int64_t* time = nullptr;  // of the graph's edges; null: there are no cutoffs
  int64_t window = -1;            // the oldest edges drawn, before the cutoff; -1: any
  // [stretches + 1] the excluded edges before each stretch of 2^shift edges. Most rows are in
  // stretches without any, so that a row costs one look and no search. See IndexExcluded.
  std::vector<int32_t> before;
  int shift = 0;
  // If draws are by weight: [num_excluded] the prefix sum of the edge before each excluded one,
  // and [num_excluded + 1] the sum of all excluded edges before. Sums are of a row, so for a
  // row's first edge these are of the row before.
  std::vector<int64_t> begin, lost;

  bool any() const { return num_excluded > 0 || time != nullptr; }

  Holes In(int64_t start, int64_t length) const {
    if (num_excluded == 0) return {};
    const uint64_t last = before.size() - 2;  // also for a bad `start`, which others report
    const int32_t* const near = &before[std::min(static_cast<uint64_t>(start) >> shift, last)];
    const int64_t* const end = excluded + num_excluded;
    const int64_t* const first =
        std::lower_bound(excluded + near[0], excluded + near[1], start);
    if (first == end || *first >= start + length) return {};
    return {first, static_cast<int32_t>(std::lower_bound(first, end, start + length) - first)};
  }

  // The weights of the holes of a stretch from `start` on, `base` after its row's begin.
  HoleWeights WeightsOf(const Holes& holes, int64_t start, int64_t base) const {
    if (holes.num == 0) return {base};
    const int64_t first = holes.edge - excluded;
    const int64_t extra = holes.edge[0] == start ? Minus(begin[first], base) : 0;
    return {base, holes.num, extra, &begin[first], &lost[first]};
  }

  // When the window before a cutoff begins.
  int64_t Since(int64_t cutoff) const {
    constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
    return cutoff < kLeast + window ? kLeast : cutoff - window;
  }

  // The holes in a stretch of `length` edges from `start` on, by whose number it makes `length`
  // less.
  Holes StepOver(int64_t start, int64_t& length) const {
    const Holes holes = In(start, length);
    length -= holes.num;
    return holes;
  }

  // The eligible edges of a row of `length` edges from `start` on.
  Stretch Of(int64_t start, int64_t length, int64_t cutoff) const {
    if (time != nullptr) {
      const int64_t* const row = time + start;
      int64_t begin = 0;
      if (window >= 0) {
        begin = std::lower_bound(row, row + length, Since(cutoff)) - row;
      }
      length = std::max<int64_t>(std::lower_bound(row, row + length, cutoff) - row - begin, 0);
      start += begin;
    }
    const Holes holes = StepOver(start, length);
    return {start, static_cast<int32_t>(length), holes};
  }
};

// Fills `before` and `shift` of the limits of a graph with `num_edges` edges.
inline void IndexExcluded(Limits& limits, int64_t num_edges) {
  constexpr int64_t kStretches = 8;  // for each excluded edge, so that few have one
  while (num_edges >> limits.shift > kStretches * limits.num_excluded) ++limits.shift;
  limits.before.resize((num_edges >> limits.shift) + 2);
  for (int64_t i = 0, stretch = 0, size = limits.before.size(); stretch < size; ++stretch) {
    while (i < limits.num_excluded && limits.excluded[i] >> limits.shift < stretch) ++i;
    limits.before[stretch] = static_cast<int32_t>(i);
  }
}

// Fills `begin` and `lost` of the limits of a graph with these prefix sums.
inline void WeighExcluded(Limits& limits, const int64_t* weight_prefix) {
  limits.begin.resize(limits.num_excluded);
  limits.lost.assign(limits.num_excluded + 1, 0);
  for (int64_t i = 0; i < limits.num_excluded; ++i) {
    const int64_t edge = limits.excluded[i];
    limits.begin[i] = edge == 0 ? 0 : weight_prefix[edge - 1];
    limits.lost[i + 1] =
        Plus(limits.lost[i], Minus(weight_prefix[edge], limits.begin[i]));
  }
}

// The limits of a batch of a graph with `num_edges` edges; sets `error` if they are invalid.
// `weight_prefix` is null where no draw is by weight.
inline Limits LimitsOf(const Seeds& seeds, const int64_t* edge_time, int64_t num_edges,
                       const int64_t* weight_prefix, int64_t window, std::string& error) {
  Limits limits;
  limits.time = seeds.time != nullptr ? edge_time : nullptr;
  limits.window = window;
  limits.excluded = seeds.excluded;
  int64_t i = 0, before = -1;
  for (; i < seeds.num_excluded && seeds.excluded[i] != num_edges; ++i) {
    if (seeds.excluded[i] <= before || seeds.excluded[i] > num_edges) break;
    before = seeds.excluded[i];
  }
  limits.num_excluded = i;
  for (; i < seeds.num_excluded; ++i) {
    if (seeds.excluded[i] == num_edges) continue;
    error = "excluded edges must be positions below " + std::to_string(num_edges) +
            " that ascend without repetition, then " + std::to_string(num_edges) +
            " for padding; got " + std::to_string(seeds.excluded[i]) + " at position " +
            std::to_string(i) +
            (seeds.excluded[i] == -1
                 ? ". They did not fit: give edges_between more room, or Links more copies"
                 : ". Use numpy.unique");
    return limits;
  }
  if (limits.num_excluded > 0) IndexExcluded(limits, num_edges);
  if (weight_prefix != nullptr) WeighExcluded(limits, weight_prefix);
  return limits;
}

}  // namespace jgs

#endif  // JGS_KERNELS_ELIGIBLE_H_
