// Threads of the library's own, for work that waits for a disk and not for a core.
#ifndef JGS_KERNELS_OWN_THREADS_H_
#define JGS_KERNELS_OWN_THREADS_H_

#include <cstdint>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace jgs {

// Calls work() in `num` threads at once, of which the calling one is one. The calls share what
// there is to do; where the system gives fewer threads, these do all of it.
template <typename Work>
void InOwnThreads(int64_t num, const Work& work) {
  std::vector<std::thread> threads;
  try {
    threads.reserve(num);
    while (static_cast<int64_t>(threads.size()) + 1 < num) threads.emplace_back(work);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace jgs

#endif  // JGS_KERNELS_OWN_THREADS_H_
