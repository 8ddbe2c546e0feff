// Large buffers on huge pages, where the system gives them.
#ifndef JGS_KERNELS_HUGE_PAGES_H_
#define JGS_KERNELS_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace jgs {

constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages in all that a buffer touches: before its first write, which then faults
// once for 512 small pages. XLA makes its outputs anew at every call, and its temporaries as one
// block, so that what lies beside a buffer is mostly another. Advice only: contents, and what
// happens where the system has no huge pages, stay the same.
inline void AdviseHugePages(void* buffer, size_t bytes) {
#if defined(__linux__)
  if (bytes < 2 * kHugePage) return;
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  const uintptr_t begin = address / kHugePage * kHugePage;
  const uintptr_t end = (address + bytes + kHugePage - 1) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)buffer, (void)bytes;
#endif
}

}  // namespace jgs

#endif  // JGS_KERNELS_HUGE_PAGES_H_
