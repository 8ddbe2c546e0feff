// Threads for the self-tests, in place of XLA's pool.
#ifndef JGS_TESTS_THREADS_H_
#define JGS_TESTS_THREADS_H_

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "parallel.h"

// An Executor that starts a thread for each task, and joins them all at the end.
struct Threads {
  std::vector<std::thread> threads;
  jgs::Executor Get(int64_t num_threads) {
    return {num_threads,
            [this](std::function<void()> task) { threads.emplace_back(std::move(task)); }};
  }
  ~Threads() {
    for (std::thread& thread : threads) thread.join();
  }
};

#endif  // JGS_TESTS_THREADS_H_
