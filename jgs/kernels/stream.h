// Stores that bypass the caches, for results that leave the caches before they are read. This
// saves reading every line before it is filled.
#ifndef JGS_KERNELS_STREAM_H_
#define JGS_KERNELS_STREAM_H_

#include <algorithm>
#include <cstdint>

#include "isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace jgs {

// Whether Stream can store rows of `width` floats at `to` past the caches; otherwise it copies.
inline bool CanStream(const float* to, int64_t width) {
#if defined(__x86_64__)
  return width % 4 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0;
#else
  (void)to, (void)width;
  return false;
#endif
}

#if defined(__x86_64__)
// Storing whole lines at once is a few percent faster.
__attribute__((target("avx512f"))) inline void StreamLines(const float* from, int64_t size,
                                                           float* to) {
  for (int64_t i = 0; i < size; i += 16) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
}
#endif

// Copies `size` floats to `to`, for which CanStream must be true.
inline void Stream(const float* from, int64_t size, float* to) {
#if defined(__x86_64__)
  const auto pieces = [&](int64_t i, int64_t end) {
    for (; i < end; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  };
  int64_t begin = 0, end = 0;  // those of the whole lines
  if (BestIsa() == Isa::kAvx512) {
    begin = std::min<int64_t>(size, -(reinterpret_cast<uintptr_t>(to) / 4) & 15);
    end = begin + (size - begin) / 16 * 16;
    pieces(0, begin);
    StreamLines(from + begin, end - begin, to + begin);
  }
  pieces(end, size);
#else
  std::copy_n(from, size, to);
#endif
}

// Makes the streamed floats visible to threads that this thread wakes afterwards.
inline void EndStream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace jgs

#endif  // JGS_KERNELS_STREAM_H_
