// Subnormal numbers as in XLA's CPU programs: they are read as 0, and become 0 as results.
#ifndef JGS_KERNELS_FLUSH_H_
#define JGS_KERNELS_FLUSH_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace jgs {

// Active on this thread during its lifetime. XLA does this where it calls a kernel, but not in
// its pool.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(static_cast<uint32_t>(before_)); }
#elif defined(__aarch64__)
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | uint64_t{1} << 24));
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }
#else
  FlushSubnormals() : before_(0) {}
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  uint64_t before_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_FLUSH_H_
