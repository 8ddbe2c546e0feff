// Large buffers on huge pages, if the system provides them.
#ifndef JGS_KERNELS_HUGE_PAGES_H_
#define JGS_KERNELS_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace jgs {

constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages for every page that a buffer touches, before its first write, which then
// faults once for 512 small pages. XLA allocates its outputs anew at every call, and its
// temporaries as one block, so the memory beside a buffer usually belongs to another buffer.
// This is advice only: contents do not change, and a system without huge pages behaves as
// before.
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
