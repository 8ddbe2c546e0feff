// Work sharing for the kernels: loops over chunks that any number of threads may join.
//
// The kernels never own threads. XLA lends them its pool through an `Executor`; tests lend
// their own threads. The result of a chunk may depend on its number only, never on the thread.
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
#include <thread>
#include <utility>

namespace jgs {

// Where helpers run. `schedule` may run the task later on any thread, or at once on this one,
// as XLA's pool does when its queue is full.
struct Executor {
  int64_t num_threads = 1;
  std::function<void(std::function<void()>)> schedule;
};

// A thread and up to num_threads - 1 helpers that stay for several loops, so that the pool is
// asked only once. Between loops a helper spins for some microseconds, and then sleeps.
//
// The calling thread takes its share of every loop, and waits only for helpers that are inside
// a loop. So a pool that never runs the helpers costs time, but cannot cause a deadlock.
class Team {
 public:
  explicit Team(const Executor& executor) : executor_(executor) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    if (state_ == nullptr) return;
    state_->gate.fetch_or(kFinished);
    state_->Wake();
  }

  int64_t num_threads() const { return executor_.num_threads; }

  // Calls body(chunk) once for every chunk in [0, num_chunks), on the threads that are
  // available, and returns when all calls have returned. An exception of `body` ends the loop
  // and is thrown to the caller. Only the thread that made the team may call this.
  template <typename Body>
  void For(int64_t num_chunks, const Body& body) {
    if (num_chunks <= 1 || executor_.num_threads <= 1) {
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk);
      return;
    }
    if (state_ == nullptr) Gather();
    State& s = *state_;
    s.body = &body;
    s.run = [](const void* b, int64_t chunk) { (*static_cast<const Body*>(b))(chunk); };
    s.num_chunks = num_chunks;
    s.next.store(0, std::memory_order_relaxed);
    s.gate.store(++loop_ * kLoop + kOpen);
    s.Wake();
    s.Drain();
    s.gate.fetch_sub(kOpen);
    // `body` is on this thread's stack, so no helper may be inside the loop when it is
    // destroyed.
    s.Wait([](uint64_t gate) { return gate % kOpen == 0; });
    if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
  }

 private:
  // The gate has the number of helpers inside the loop, whether more may enter, whether there
  // are no more loops, and the loop's number.
  static constexpr uint64_t kOpen = 1u << 16, kFinished = 1u << 17, kLoop = 1u << 18;
  static constexpr int kSpins = 2000;  // about 50 microseconds

  struct State {
    std::atomic<uint64_t> gate{0};
    std::atomic<int64_t> next{0};
    // The loop, which is written while no helper is inside.
    const void* body = nullptr;
    void (*run)(const void*, int64_t) = nullptr;
    int64_t num_chunks = 0;
    std::mutex mutex;
    std::condition_variable changed;  // signals changes of the gate
    std::atomic<int> sleepers{0};
    std::exception_ptr error;  // guarded by mutex

    void Drain() {
      try {
        for (;;) {
          const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
          if (chunk >= num_chunks) return;
          run(body, chunk);
        }
      } catch (...) {
        next.store(num_chunks, std::memory_order_relaxed);
        std::lock_guard<std::mutex> lock(mutex);
        error = std::current_exception();
      }
    }

    // Returns the gate as soon as `enough` is true of it.
    template <typename Enough>
    uint64_t Wait(const Enough& enough) {
      for (int spin = 0; spin < kSpins; ++spin) {
        const uint64_t now = gate.load(std::memory_order_acquire);
        if (enough(now)) return now;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      std::unique_lock<std::mutex> lock(mutex);
      sleepers.fetch_add(1);
      uint64_t now;
      changed.wait(lock, [&] { return enough(now = gate.load()); });
      sleepers.fetch_sub(1);
      return now;
    }

    // Called after every change of the gate. A sleeper counts itself before it looks at the
    // gate for the last time, so it either sees the change or is seen here.
    void Wake() {
      if (sleepers.load() == 0) return;
      { std::lock_guard<std::mutex> lock(mutex); }
      changed.notify_all();
    }

    void Help() {
      uint64_t last = 0;  // the loop that this helper joined last
      for (;;) {
        uint64_t now = Wait([last](uint64_t g) {
          return (g & kFinished) != 0 || ((g & kOpen) != 0 && g / kLoop != last);
        });
        if ((now & kFinished) != 0) return;
        if (!gate.compare_exchange_weak(now, now + 1)) continue;
        last = now / kLoop;
        Drain();
        gate.fetch_sub(1);
        Wake();
      }
    }
  };

  // Asks the pool for helpers. A helper that comes late finds the team finished and leaves.
  void Gather() {
    state_ = std::make_shared<State>();
    const int64_t helpers = std::min<int64_t>(executor_.num_threads, kOpen) - 1;
    // If a helper ran on this thread, it would wait for a loop that this thread never reaches.
    const std::thread::id here = std::this_thread::get_id();
    for (int64_t i = 0; i < helpers; ++i) {
      executor_.schedule([state = state_, here] {
        if (std::this_thread::get_id() != here) state->Help();
      });
    }
  }

  const Executor& executor_;
  std::shared_ptr<State> state_;
  uint64_t loop_ = 0;
};

// One loop with a team of its own.
template <typename Body>
void ParallelFor(const Executor& executor, int64_t num_chunks, const Body& body) {
  Team(executor).For(num_chunks, body);
}

}  // namespace jgs

#endif  // JGS_KERNELS_PARALLEL_H_
