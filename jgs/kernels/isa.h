// Instruction sets, chosen at run time: one library runs everywhere, and its results have the
// same bits.
#ifndef JGS_KERNELS_ISA_H_
#define JGS_KERNELS_ISA_H_

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>

namespace jgs {

enum class Isa { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

namespace internal {

// `Body` must be inlined, so that it is compiled for the caller's instruction set.
#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx512f,avx512vl,avx512dq,prefer-vector-width=512"))) void OnAvx512(
    const Body& body) {
  body();
}
template <typename Body>
__attribute__((target("avx2"))) void OnAvx2(const Body& body) {
  body();
}
#endif

// What the environment variable JGS_MAX_ISA allows, as a number; everything if it is not set.
inline Isa MaxIsa() {
  const char* given = std::getenv("JGS_MAX_ISA");
  return given == nullptr ? Isa::kAvx512 : static_cast<Isa>(std::atoi(given));
}

#if defined(__x86_64__)
// What the CPU has and the system saves. This asks the CPU itself, because
// __builtin_cpu_supports needs a part of GCC's runtime that other compilers' runtimes may lack.
inline Isa CpuIsa() {
  unsigned a, b, c, d, saved, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return Isa::kBaseline;
  const bool fma = (c & bit_FMA) && (c & bit_F16C);
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Isa::kBaseline;
  const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL;
  if ((b & avx512) == avx512 && (saved & 0xe6) == 0xe6) return Isa::kAvx512;
  if ((b & bit_AVX2) && fma && (saved & 0x6) == 0x6) return Isa::kAvx2;
  return Isa::kBaseline;
}
#else
inline Isa CpuIsa() { return Isa::kBaseline; }
#endif

inline Isa BestIsa() { return std::min(MaxIsa(), CpuIsa()); }

}  // namespace internal

// The best instruction set that this CPU has and the environment allows at the first call.
inline Isa BestIsa() {
  static const Isa best = internal::BestIsa();
  return best;
}

// For what must be part of its caller: code for an instruction set; and functions that only
// prefetch, since GCC drops calls of them as without effect.
#define JGS_INLINE __attribute__((always_inline))

// Calls `body`, a functor whose operator() is JGS_INLINE, compiled for `isa`.
template <typename Body>
inline void RunOn(Isa isa, const Body& body) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return internal::OnAvx512(body);
  if (isa == Isa::kAvx2) return internal::OnAvx2(body);
#endif
  body();
}

}  // namespace jgs

#endif  // JGS_KERNELS_ISA_H_
