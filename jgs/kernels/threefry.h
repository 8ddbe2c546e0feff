// Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
// the generator of jax.random: one block of counters in, 64 random bits out.
#ifndef JGS_KERNELS_THREEFRY_H_
#define JGS_KERNELS_THREEFRY_H_

#include <cstdint>

#include "steps.h"

namespace jgs {

struct Key {
  uint32_t word[2];
};

JGS_BOTH JGS_ALWAYS inline uint32_t Rotate(uint32_t x, int n) {
  return (x << n) | (x >> (32 - n));
}

// Turns the counters (x0, x1) into random bits, in place.
JGS_BOTH JGS_ALWAYS inline void Threefry(Key key, uint32_t& x0, uint32_t& x1) {
  constexpr int kRotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t schedule[3] = {key.word[0], key.word[1],
                                key.word[0] ^ key.word[1] ^ 0x1BD11BDAu};
  x0 += schedule[0];
  x1 += schedule[1];
#if !defined(__CUDACC__)
#pragma GCC unroll 5
#endif
  for (uint32_t group = 0; group < 5; ++group) {
#if !defined(__CUDACC__)
#pragma GCC unroll 4
#endif
    for (int round = 0; round < 4; ++round) {
      x0 += x1;
      x1 = Rotate(x1, kRotation[group % 2][round]) ^ x0;
    }
    x0 += schedule[(group + 1) % 3];
    x1 += schedule[(group + 2) % 3] + group + 1;
  }
}

// jax.random.fold_in(key, number).
JGS_BOTH inline Key Fold(Key key, uint32_t number) {
  Key folded{{0, number}};
  Threefry(key, folded.word[0], folded.word[1]);
  return folded;
}

// The key of the draws under a cutoff, see `cutoff_keys` in jgs/sampling/edges/random.py.
inline Key WithCutoff(Key key, int64_t cutoff) {
  const uint64_t bits = static_cast<uint64_t>(cutoff);
  Key own{{static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits)}};
  Threefry(key, own.word[0], own.word[1]);
  return own;
}

}  // namespace jgs

#endif  // JGS_KERNELS_THREEFRY_H_
