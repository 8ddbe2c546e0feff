// The draws of one row, as jgs/sampling/edges/draw.py defines them. draw.h draws many rows side
// by side on a CPU, and device_sample.h a row for each thread of a GPU.
#ifndef JGS_KERNELS_DRAW_ROW_H_
#define JGS_KERNELS_DRAW_ROW_H_

#include <cstdint>

#include "steps.h"
#include "threefry.h"

namespace jgs {

// A uniform position below n, from 64 random bits: the high part of their product with n.
JGS_BOTH JGS_ALWAYS inline int32_t PositionBelow(uint32_t high, uint32_t low, uint32_t n) {
  const uint64_t carry = static_cast<uint64_t>(low) * n >> 32;
  return static_cast<int32_t>((static_cast<uint64_t>(high) * n + carry) >> 32);
}

// The position that draw number `draw` of a node gives, uniform below n.
JGS_BOTH inline int32_t DrawBelow(Key key, uint32_t node, int64_t draw, uint32_t n) {
  uint32_t x0 = node, x1 = static_cast<uint32_t>(draw);
  Threefry(key, x0, x1);
  return PositionBelow(x0, x1, n);
}

// Writes k distinct positions of a row of more than k edges, every subset equally likely
// (Floyd's algorithm, see draw.h).
JGS_BOTH inline void DrawDistinct(Key key, uint32_t node, uint32_t degree, int64_t k,
                                  int32_t* position) {
  for (int64_t i = 0; i < k; ++i) {
    const uint32_t last = degree - static_cast<uint32_t>(k - i);
    const int32_t drawn = DrawBelow(key, node, i, last + 1);
    bool taken = false;
    for (int64_t j = 0; j < i; ++j) taken |= position[j] == drawn;
    position[i] = taken ? static_cast<int32_t>(last) : drawn;
  }
}

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_ROW_H_
