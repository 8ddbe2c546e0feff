// Which of a node's neighbours are drawn: positions within its row, by integer arithmetic only.
// The meaning is jgs/sampling/draw.py.
//
// Rows are drawn 64 at a time, lane by lane, so that the compiler turns every loop over lanes
// into vector instructions. The instruction set is chosen at run time; the integers are the
// same on all of them.
#ifndef JGS_KERNELS_DRAW_H_
#define JGS_KERNELS_DRAW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "threefry.h"

namespace jgs {

constexpr int kLanes = 64;

// The rows of one batch, and what is drawn from them: `[fanout][kLanes]`, lane by lane.
struct Draws {
  explicit Draws(int64_t fanout) : fanout(fanout) {}

  // Before the first draw: rows that take all their neighbours need no room, whatever the
  // fanout.
  void MakeRoom() {
    if (!high.empty()) return;
    high.resize(fanout * kLanes);
    low.resize(fanout * kLanes);
    position.resize(fanout * kLanes);
  }

  int64_t fanout;
  int num_rows = 0;
  uint32_t node[kLanes] = {};   // lanes from num_rows on are drawn too, and not used
  uint32_t degree[kLanes] = {};
  std::vector<uint32_t> high, low;  // 64 random bits a draw
  std::vector<int32_t> position;

  uint64_t Bits(int64_t draw, int row) const {
    return static_cast<uint64_t>(high[draw * kLanes + row]) << 32 | low[draw * kLanes + row];
  }
};

// A uniform integer below n from 64 random bits; its bias is below n / 2**64.
inline int64_t Below(uint64_t bits, uint64_t n) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

enum class Mode { kBits, kDistinct, kRepeated };

namespace internal {

// `fanout` positions of every row. kDistinct: distinct ones, every subset equally likely, for
// rows of more than `fanout` neighbours (Floyd; Bentley and Floyd, "A sample of brilliance",
// CACM 1987). kRepeated: each uniform. kBits: the random bits only.
template <Mode mode>
__attribute__((always_inline)) inline void DrawRows(Key key, Draws& d) {
  for (int64_t i = 0; i < d.fanout; ++i) {
    uint32_t* high = &d.high[i * kLanes];
    uint32_t* low = &d.low[i * kLanes];
    for (int r = 0; r < kLanes; ++r) {
      uint32_t x0 = d.node[r], x1 = static_cast<uint32_t>(i);
      Threefry(key, x0, x1);
      high[r] = x0;
      low[r] = x1;
    }
    if (mode == Mode::kBits) continue;
    int32_t* drawn = &d.position[i * kLanes];
    int32_t taken[kLanes] = {};
    for (int r = 0; r < kLanes; ++r) {
      const uint32_t n = mode == Mode::kRepeated
                             ? d.degree[r]
                             : d.degree[r] - static_cast<uint32_t>(d.fanout - i - 1);
      const uint64_t carry = static_cast<uint64_t>(low[r]) * n >> 32;
      drawn[r] = static_cast<int32_t>((static_cast<uint64_t>(high[r]) * n + carry) >> 32);
    }
    if (mode == Mode::kRepeated) continue;
    for (int64_t j = 0; j < i; ++j) {
      const int32_t* earlier = &d.position[j * kLanes];
      for (int r = 0; r < kLanes; ++r) taken[r] |= earlier[r] == drawn[r] ? -1 : 0;
    }
    for (int r = 0; r < kLanes; ++r) {
      const int32_t last = static_cast<int32_t>(d.degree[r] - (d.fanout - i));
      drawn[r] = taken[r] ? last : drawn[r];
    }
  }
}

#if defined(__x86_64__)
template <Mode mode>
__attribute__((target("avx512f,avx512vl,avx512dq,prefer-vector-width=512"))) void DrawAvx512(
    Key key, Draws& d) {
  DrawRows<mode>(key, d);
}
template <Mode mode>
__attribute__((target("avx2"))) void DrawAvx2(Key key, Draws& d) {
  DrawRows<mode>(key, d);
}
#endif

}  // namespace internal

template <Mode mode>
inline void Draw(Key key, Draws& d) {
#if defined(__x86_64__)
  static const int level = __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                               ? 2
                           : __builtin_cpu_supports("avx2") ? 1
                                                            : 0;
  if (level == 2) return internal::DrawAvx512<mode>(key, d);
  if (level == 1) return internal::DrawAvx2<mode>(key, d);
#endif
  internal::DrawRows<mode>(key, d);
}

// The first position whose prefix sum exceeds `point`; the last if the sums are damaged.
inline int64_t Find(const int64_t* prefix, int64_t degree, int64_t point) {
  return std::min<int64_t>(std::upper_bound(prefix, prefix + degree, point) - prefix,
                           degree - 1);
}

// `fanout` positions of one row, each with probability its weight / the row's weight; returns
// how many (0 if the row weighs nothing). `prefix` are the row's inclusive prefix sums.
inline int64_t WeightedRepeated(const Draws& d, int row, const int64_t* prefix,
                                int64_t* position) {
  const int64_t degree = d.degree[row];
  if (degree == 0 || prefix[degree - 1] == 0) return 0;
  for (int64_t i = 0; i < d.fanout; ++i) {
    position[i] = Find(prefix, degree, Below(d.Bits(i, row), prefix[degree - 1]));
  }
  return d.fanout;
}

// What one row has drawn so far: intervals of its weight, ascending.
struct Interval {
  int64_t begin, weight;
};

// Up to `fanout` distinct positions by successive draws, each in proportion to the weights
// not drawn yet. The next draw is a point below the remaining weight; stepping over the
// intervals already drawn, in ascending order, makes it a point of the whole row. So each draw
// is exact and none is repeated. Stops when no weight is left.
inline int64_t WeightedDistinct(const Draws& d, int row, const int64_t* prefix,
                                std::vector<Interval>& drawn, int64_t* position) {
  const int64_t degree = d.degree[row];
  int64_t left = prefix[degree - 1];
  drawn.clear();
  for (int64_t i = 0; i < d.fanout; ++i) {
    if (left == 0) return i;
    int64_t point = Below(d.Bits(i, row), left);
    size_t at = 0;
    for (; at < drawn.size() && point >= drawn[at].begin; ++at) point += drawn[at].weight;
    position[i] = Find(prefix, degree, point);
    const int64_t begin = position[i] == 0 ? 0 : prefix[position[i] - 1];
    const int64_t weight = prefix[position[i]] - begin;
    drawn.insert(drawn.begin() + at, {begin, weight});
    left -= weight;
  }
  return d.fanout;
}

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_H_
