// Which neighbours of a row LABOR takes: a random number of each, below a limit or not.
// The meaning is `node_numbers` in jgs/sampling/algorithms/labor_plain.py.
//
// Neighbours are looked at 32 at a time, lane by lane, so that the compiler turns every
// loop over lanes into vector instructions.
#ifndef JGS_KERNELS_LABOR_SCAN_H_
#define JGS_KERNELS_LABOR_SCAN_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "isa.h"
#include "sample.h"
#include "threefry.h"

namespace jgs {

constexpr int kScanLanes = 32;

// The 64-bit numbers of some nodes.
struct Numbers {
  uint32_t high[kScanLanes], low[kScanLanes];

  JGS_INLINE uint64_t Of(int r) const { return static_cast<uint64_t>(high[r]) << 32 | low[r]; }
};

// One over the probability with which a target takes a neighbour, if above 1.
JGS_INLINE inline float Inverse(float rate, float rarity) {
  return std::min(rate * rarity, 0x1p31f);
}

// Draws the numbers of kScanLanes nodes; `dependent` where the hop has a phase.
template <bool dependent>
JGS_INLINE inline void DrawNumbers(const Hop& hop, const int32_t* node, Numbers& n) {
  for (int r = 0; r < kScanLanes; ++r) {
    uint32_t x0 = static_cast<uint32_t>(node[r]), x1 = 0;
    Threefry(hop.key, x0, x1);
    n.high[r] = x0;
    n.low[r] = x1;
  }
  if (!dependent) return;
  for (int r = 0; r < kScanLanes; ++r) {
    uint32_t when = static_cast<uint32_t>(node[r]), unused = 1;
    Threefry(hop.key, when, unused);
    uint32_t x0 = static_cast<uint32_t>(node[r]), x1 = 0;
    Threefry(hop.next_key, x0, x1);
    const bool moved = when < hop.phase;
    n.high[r] = moved ? x0 : n.high[r];
    n.low[r] = moved ? x1 : n.low[r];
  }
}

// As DrawNumbers, of `count` nodes.
template <bool dependent>
JGS_INLINE inline void DrawSome(const Hop& hop, const int32_t* node, int count, Numbers& n) {
  if (count == kScanLanes) return DrawNumbers<dependent>(hop, node, n);
  int32_t some[kScanLanes] = {};
  for (int r = 0; r < count; ++r) some[r] = node[r];
  DrawNumbers<dependent>(hop, some, n);
}

// Some neighbours of one row, kPiece at most, and which of them are taken.
struct Piece {
  static constexpr int kPiece = 1024;

  const int32_t* neighbors;
  int count;
  int num_taken;
  int32_t position[kPiece + 1];  // of those taken, among the neighbours
  float inverse[kPiece + 1];     // of those taken, by importance: one over the probability
};

// Takes the neighbours whose numbers are below a limit that they have in common.
template <bool dependent>
struct TakeBelow {
  const Hop& hop;
  uint64_t limit;
  Piece& p;

  JGS_INLINE void operator()() const {
    const uint32_t upper = static_cast<uint32_t>(limit >> 32);
    int taken = 0;
    for (int first = 0; first < p.count; first += kScanLanes) {
      const int count = std::min(p.count - first, kScanLanes);
      Numbers n;
      DrawSome<dependent>(hop, p.neighbors + first, count, n);
      uint8_t hit[kScanLanes];  // 1 where the upper half does not rule it out
      for (int r = 0; r < kScanLanes; ++r) hit[r] = n.high[r] <= upper ? 1 : 0;
      for (int eight = 0; eight < kScanLanes; eight += 8) {
        uint64_t hits;
        std::memcpy(&hits, hit + eight, sizeof hits);
        for (; hits != 0; hits &= hits - 1) {
          const int r = eight + __builtin_ctzll(hits) / 8;
          p.position[taken] = first + r;
          taken += r < count && n.Of(r) < limit;
        }
      }
    }
    p.num_taken = taken;
  }
};

// Takes each neighbour with the probability that a target of this rate and its rarity give.
template <bool dependent>
struct TakeByImportance {
  const Hop& hop;
  float rate;
  const float* rarity;  // of every node
  Piece& p;

  JGS_INLINE void operator()() const {
    int taken = 0;
    for (int first = 0; first < p.count; first += kScanLanes) {
      const int count = std::min(p.count - first, kScanLanes);
      Numbers n;
      DrawSome<dependent>(hop, p.neighbors + first, count, n);
      for (int r = 0; r < count; ++r) {
        const float inverse = Inverse(rate, rarity[p.neighbors[first + r]]);
        const bool sure = inverse <= 1.0f;
        const float chance = 1.0f / (sure ? 2.0f : inverse);
        const uint64_t limit = static_cast<uint64_t>(chance * 0x1p64f);
        p.position[taken] = first + r;
        p.inverse[taken] = inverse;
        taken += sure || n.Of(r) < limit;
      }
    }
    p.num_taken = taken;
  }
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_SCAN_H_
