// Work sharing for the kernels: a loop over chunks that any number of threads may join.
//
// The kernels never own threads. XLA lends its pool through an `Executor`; tests lend their
// own. A chunk's result may depend on its number only, never on the thread that ran it.
#ifndef JGS_KERNELS_PARALLEL_H_
#define JGS_KERNELS_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace jgs {

// Where to run helpers: `schedule` may run the task at any later time on any thread.
struct Executor {
  int64_t num_threads = 1;
  std::function<void(std::function<void()>)> schedule;
};

// Calls body(chunk) for every chunk in [0, num_chunks), on the calling thread and on up to
// num_threads - 1 helpers, and returns when all calls have. The caller takes its share and
// waits only for helpers that have started, so a pool that never runs them costs time but
// cannot deadlock. An exception of `body` ends the loop and is thrown to the caller.
template <typename Body>
void ParallelFor(const Executor& executor, int64_t num_chunks, const Body& body) {
  const int64_t helpers = std::min(executor.num_threads, num_chunks) - 1;
  if (helpers <= 0) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk);
    return;
  }
  struct State {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable idle;
    int64_t active = 0;   // guarded by mutex
    bool closed = false;  // guarded by mutex; no helper may start any more
    std::exception_ptr error;  // guarded by mutex
  };
  auto state = std::make_shared<State>();
  auto drain = [num_chunks, &body](State& s) {
    try {
      for (;;) {
        const int64_t chunk = s.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= num_chunks) return;
        body(chunk);
      }
    } catch (...) {
      s.next.store(num_chunks, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(s.mutex);
      s.error = std::current_exception();
    }
  };
  // `drain` and `body` live on the caller's stack: a helper touches them only while it is
  // counted as active, and the caller does not leave before `active` is 0, nor by exception.
  struct Close {
    State& state;
    ~Close() {
      std::unique_lock<std::mutex> lock(state.mutex);
      state.closed = true;
      state.idle.wait(lock, [this] { return state.active == 0; });
    }
  };
  {
    Close close{*state};
    for (int64_t i = 0; i < helpers; ++i) {
      executor.schedule([state, drain_ptr = &drain] {
        {
          std::lock_guard<std::mutex> lock(state->mutex);
          if (state->closed) return;
          ++state->active;
        }
        (*drain_ptr)(*state);
        std::lock_guard<std::mutex> lock(state->mutex);
        if (--state->active == 0) state->idle.notify_one();
      });
    }
    drain(*state);
  }
  if (state->error) std::rethrow_exception(state->error);
}

}  // namespace jgs

#endif  // JGS_KERNELS_PARALLEL_H_
