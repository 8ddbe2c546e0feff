// The neighbours of a row that LABOR takes: those whose random number is below a limit.
// `NumberKeys` in jgs/sampling/algorithms/labor_plain.py defines the numbers.
//
// 32 neighbours are handled at a time, lane by lane, so that the compiler turns every loop over
// lanes into vector instructions.
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
constexpr int kScanAhead = 512;  // how many neighbours ahead are prefetched

// What names the random numbers of a hop's nodes; with cutoffs, of those under one of them.
struct NumberKeys {
  NumberKeys(const Hop& hop) : key(hop.key), next_key(hop.next_key), phase(hop.phase) {}

  NumberKeys(const Hop& hop, int64_t cutoff) : NumberKeys(hop) {
    key = WithCutoff(key, cutoff);
    next_key = WithCutoff(next_key, cutoff);
  }

  Key key, next_key;
  uint32_t phase;
};

// A node's random number. It is the 64 bits that `key` gives to the node. In `dependent` hops,
// once the node's time has come, it is the 64 bits that `next_key` gives.
template <bool dependent>
struct Numbers {
  explicit Numbers(const NumberKeys& keys)
      : key(keys.key), next_key(keys.next_key), phase(keys.phase) {}

  JGS_INLINE uint64_t Of(uint32_t node) const {
    uint32_t x0 = node, x1 = 0;
    Threefry(dependent && Moved(node) ? next_key : key, x0, x1);
    return static_cast<uint64_t>(x0) << 32 | x1;
  }

  // The upper halves of the numbers of kScanLanes nodes.
  JGS_INLINE void Upper(const int32_t* node, uint32_t* upper) const {
    for (int r = 0; r < kScanLanes; ++r) {
      uint32_t x0 = static_cast<uint32_t>(node[r]), x1 = 0;
      Threefry(key, x0, x1);
      upper[r] = x0;
    }
    if (!dependent) return;
    for (int r = 0; r < kScanLanes; ++r) {
      uint32_t x0 = static_cast<uint32_t>(node[r]), x1 = 0;
      Threefry(next_key, x0, x1);
      upper[r] = Moved(static_cast<uint32_t>(node[r])) ? x0 : upper[r];
    }
  }

  JGS_INLINE bool Moved(uint32_t node) const {
    uint32_t x0 = node, x1 = 1;
    Threefry(key, x0, x1);
    return x0 < phase;
  }

  // Whether the node's number, whose upper half is given, is below `limit`.
  JGS_INLINE bool Below(uint64_t limit, int32_t node, uint32_t upper) const {
    const uint32_t most = static_cast<uint32_t>(limit >> 32);
    return upper < most || (upper == most && Of(static_cast<uint32_t>(node)) < limit);
  }

  const Key key, next_key;
  const uint32_t phase;
};

// One over the probability that a target takes a neighbour; at most 1 if it is certain.
JGS_INLINE inline float Inverse(float rate, float rarity) {
  return std::min(rate * rarity, 0x1p31f);
}

// At most kPiece consecutive neighbours of one row, and which of them are taken.
struct Piece {
  static constexpr int kPiece = 4096;

  const int32_t* neighbors;
  int count;
  int ahead;  // neighbours of the row from the piece's first on, also after the piece
  int num_taken;
  int32_t position[kPiece + 1];  // positions of the taken neighbours in the piece
  float inverse[kPiece + 1];     // with importances: one over their probabilities

  // kScanLanes neighbours from `first` on. Beyond the piece they are node 0, stored in `some`.
  JGS_INLINE const int32_t* Lanes(int first, int32_t (&some)[kScanLanes]) const {
    if (count - first >= kScanLanes) return neighbors + first;
    for (int r = 0; r < kScanLanes; ++r) some[r] = r < count - first ? neighbors[first + r] : 0;
    return some;
  }

  // A row is read in order, but the CPU's own prefetching stops at the end of every page.
  JGS_INLINE void PrefetchAhead(int first) const {
    const int at = first + kScanAhead;
    if (at >= ahead) return;
    __builtin_prefetch(neighbors + at, 0, 2);
    __builtin_prefetch(neighbors + at + kScanLanes / 2, 0, 2);
  }
};

// Takes the neighbours whose numbers are below one limit. For most neighbours the upper half of
// the number shows that they are not.
template <bool dependent>
struct TakeBelow {
  const NumberKeys keys;
  uint64_t limit;
  Piece& p;

  JGS_INLINE void operator()() const {
    const Numbers<dependent> numbers(keys);
    const uint32_t most = static_cast<uint32_t>(limit >> 32);
    // Separate loops, because a branch on a number that is still being drawn is mispredicted
    // half of the time, and everything begun after it is then lost.
    uint32_t upper[Piece::kPiece];
    uint8_t hit[Piece::kPiece];
    for (int first = 0; first < p.count; first += kScanLanes) {
      p.PrefetchAhead(first);
      int32_t some[kScanLanes];
      numbers.Upper(p.Lanes(first, some), upper + first);
      for (int i = first; i < first + kScanLanes; ++i) hit[i] = upper[i] <= most ? 1 : 0;
    }
    int taken = 0;
    for (int first = 0; first < p.count; first += 8) {
      uint64_t hits;
      std::memcpy(&hits, hit + first, sizeof hits);
      for (; hits != 0; hits &= hits - 1) {
        const int i = first + __builtin_ctzll(hits) / 8;
        p.position[taken] = i;
        taken += i < p.count && numbers.Below(limit, p.neighbors[i], upper[i]);
      }
    }
    p.num_taken = taken;
  }
};

// Takes each neighbour with the probability that follows from the target's rate and its rarity.
template <bool dependent>
struct TakeByImportance {
  const NumberKeys keys;
  float rate;
  const float* rarity;  // of every node
  Piece& p;

  JGS_INLINE void operator()() const {
    const Numbers<dependent> numbers(keys);
    int taken = 0;
    for (int first = 0; first < p.count; first += kScanLanes) {
      p.PrefetchAhead(first);
      const int count = std::min(p.count - first, kScanLanes);
      int32_t some[kScanLanes];
      uint32_t upper[kScanLanes];
      const int32_t* const lanes = p.Lanes(first, some);
      numbers.Upper(lanes, upper);
      for (int r = 0; r < count; ++r) {
        const int32_t node = lanes[r];
        const float inverse = Inverse(rate, rarity[node]);
        const bool sure = inverse <= 1.0f;
        const float chance = 1.0f / (sure ? 2.0f : inverse);
        const uint64_t limit = static_cast<uint64_t>(chance * 0x1p64f);
        p.position[taken] = first + r;
        p.inverse[taken] = inverse;
        taken += sure || numbers.Below(limit, node, upper[r]);
      }
    }
    p.num_taken = taken;
  }
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_SCAN_H_
