// What all XLA bindings share: the pool as an Executor, and a way to run a handler.
#ifndef JGS_KERNELS_FFI_H_
#define JGS_KERNELS_FFI_H_

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "huge_pages.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace jgs {

// XLA's thread pool, limited to max_threads (0: no limit). The pool must outlive the Executor.
inline Executor PoolExecutor(xla::ffi::ThreadPool& pool, int64_t max_threads) {
  const int64_t size = std::max<int64_t>(1, pool.num_threads());
  return {max_threads > 0 ? max_threads : size,
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

// Advises huge pages for the buffer of a result that is about to be written.
template <typename Result>
void AdviseHugePages(Result& result) {
  AdviseHugePages(result->untyped_data(), result->size_bytes());
}

// Runs `body`, which returns an error message or "", and catches every exception.
template <typename Body>
xla::ffi::Error Guarded(const Body& body) {
  try {
    const std::string message = body();
    if (message.empty()) return xla::ffi::Error::Success();
    return xla::ffi::Error::InvalidArgument(message);
  } catch (const std::bad_alloc&) {
    return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted,
                           "jgs: out of memory in a kernel");
  } catch (const std::exception& error) {
    return xla::ffi::Error::Internal(error.what());
  }
}

}  // namespace jgs

#endif  // JGS_KERNELS_FFI_H_
