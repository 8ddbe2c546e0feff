// One loop, compiled for several instruction sets; the best that the CPU has runs.
#ifndef JGS_KERNELS_ISA_H_
#define JGS_KERNELS_ISA_H_

#include <cstdint>

#if defined(__GNUC__)
#define JGS_INLINE inline __attribute__((always_inline))
#else
#define JGS_INLINE inline
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#define JGS_X86 1
#endif

namespace jgs {

enum class Isa { kBaseline, kAvx2, kAvx512 };

inline Isa BestIsa() {
#ifdef JGS_X86
  static const Isa best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                  __builtin_cpu_supports("avx512vl")
                              ? Isa::kAvx512
                          : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                              ? Isa::kAvx2
                              : Isa::kBaseline;
  return best;
#else
  return Isa::kBaseline;
#endif
}

// Not `target_clones`: its resolver runs before the sanitizers are ready.
template <typename Loop>
void RunBaseline(const Loop& loop, int64_t begin, int64_t end) {
  loop.Run(begin, end);
}

#ifdef JGS_X86
template <typename Loop>
__attribute__((target("avx2"))) void RunAvx2(const Loop& loop, int64_t begin, int64_t end) {
  loop.Run(begin, end);
}

template <typename Loop>
__attribute__((target("avx512f,avx512dq,avx512vl,prefer-vector-width=512"))) void RunAvx512(
    const Loop& loop, int64_t begin, int64_t end) {
  loop.Run(begin, end);
}
#endif

// loop.Run(begin, end), an always-inline loop that the compiler turns into vectors.
template <typename Loop>
void RunBest(const Loop& loop, int64_t begin, int64_t end) {
#ifdef JGS_X86
  if (BestIsa() == Isa::kAvx512) return RunAvx512(loop, begin, end);
  if (BestIsa() == Isa::kAvx2) return RunAvx2(loop, begin, end);
#endif
  RunBaseline(loop, begin, end);
}

}  // namespace jgs

#endif  // JGS_KERNELS_ISA_H_
