// Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
// the generator of jax.random: one block of counters in, 64 random bits out.
#ifndef JGS_KERNELS_THREEFRY_H_
#define JGS_KERNELS_THREEFRY_H_

#include <cstdint>

namespace jgs {

struct Key {
  uint32_t word[2];
};

namespace internal {

inline uint32_t Rotate(uint32_t x, int n) { return (x << n) | (x >> (32 - n)); }

__attribute__((always_inline)) inline uint64_t Threefry(Key key, uint32_t x0, uint32_t x1) {
  constexpr int kRotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t schedule[3] = {key.word[0], key.word[1],
                                key.word[0] ^ key.word[1] ^ 0x1BD11BDAu};
  x0 += schedule[0];
  x1 += schedule[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int round = 0; round < 4; ++round) {
      x0 += x1;
      x1 = Rotate(x1, kRotation[group % 2][round]) ^ x0;
    }
    x0 += schedule[(group + 1) % 3];
    x1 += schedule[(group + 2) % 3] + group + 1;
  }
  return (static_cast<uint64_t>(x0) << 32) | x1;
}

__attribute__((always_inline)) inline void ThreefryLoop(Key key, const uint32_t* node,
                                                        const uint32_t* draw, int64_t n,
                                                        uint64_t* bits) {
  for (int64_t i = 0; i < n; ++i) bits[i] = Threefry(key, node[i], draw[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vl"))) inline void ThreefryAvx512(
    Key key, const uint32_t* node, const uint32_t* draw, int64_t n, uint64_t* bits) {
  ThreefryLoop(key, node, draw, n, bits);
}
__attribute__((target("avx2"))) inline void ThreefryAvx2(Key key, const uint32_t* node,
                                                         const uint32_t* draw, int64_t n,
                                                         uint64_t* bits) {
  ThreefryLoop(key, node, draw, n, bits);
}
#endif

}  // namespace internal

// bits[i] = the 64 bits that `key` gives for draw[i] of node[i]. The vector width is chosen at
// run time, so that one binary serves every CPU; the bits are the same on all of them.
inline void ThreefryBatch(Key key, const uint32_t* node, const uint32_t* draw, int64_t n,
                          uint64_t* bits) {
#if defined(__x86_64__)
  static const int level = __builtin_cpu_supports("avx512vl") ? 2
                           : __builtin_cpu_supports("avx2")   ? 1
                                                              : 0;
  if (level == 2) return internal::ThreefryAvx512(key, node, draw, n, bits);
  if (level == 1) return internal::ThreefryAvx2(key, node, draw, n, bits);
#endif
  internal::ThreefryLoop(key, node, draw, n, bits);
}

}  // namespace jgs

#endif  // JGS_KERNELS_THREEFRY_H_
