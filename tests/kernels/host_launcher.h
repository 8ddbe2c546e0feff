// A launcher of steps (steps.h) on the host, in place of a GPU's.
#ifndef JGS_TESTS_HOST_LAUNCHER_H_
#define JGS_TESTS_HOST_LAUNCHER_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#if defined(JGS_EMULATED)
#include "xla/ffi/api/ffi.h"
#endif

namespace jgs {

// In which order the steps of a loop run: a GPU may choose any.
enum class Order { kForward, kBackward, kShuffled, kThreads };

class Launcher {
 public:
  explicit Launcher(Order order = Order::kBackward) : order_(order) {}

  template <typename Step>
  void For(int64_t n, const Step& step) {
    if (order_ == Order::kThreads) {
      std::vector<std::thread> threads;
      for (int64_t part = 0; part < 4; ++part) {
        threads.emplace_back([=] {
          for (int64_t i = part; i < n; i += 4) step(i);
        });
      }
      for (std::thread& thread : threads) thread.join();
      return;
    }
    // A stride that shares no factor with n visits every number once.
    int64_t stride = order_ == Order::kShuffled ? n / 3 * 2 + 1 : 1;
    while (std::gcd(stride, std::max<int64_t>(n, 1)) != 1) ++stride;
    for (int64_t i = 0, at = 0; i < n; ++i, at = (at + stride) % n) {
      step(order_ == Order::kBackward ? n - 1 - at : at);
    }
  }

  // Not zero, as a GPU's memory is not.
  template <typename T>
  T* Take(int64_t n) {
    const size_t size = static_cast<size_t>(n) * sizeof(T);
    scratch_.emplace_back(new char[size]);
    std::memset(scratch_.back().get(), 0xA5, size);
    return reinterpret_cast<T*>(scratch_.back().get());
  }

  template <typename T>
  void Scan(T* values, int64_t n) {
    std::partial_sum(values, values + n, values);
  }

  const int32_t* Sort(int32_t* keys, int64_t n, int32_t most) {
    auto* order = Take<int32_t>(n);
    std::iota(order, order + n, 0);
    std::stable_sort(order, order + n, [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
    std::sort(keys, keys + n);
    if (n > 0 && (keys[0] < 0 || keys[n - 1] > most)) std::abort();
    return order;
  }

 private:
  Order order_;
  std::vector<std::unique_ptr<char[]>> scratch_;
};

}  // namespace jgs

#if defined(JGS_EMULATED)
template <>
struct xla::ffi::CtxDecoding<jgs::Launcher> {
  using Type = jgs::Launcher;

  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return jgs::Launcher();
  }
};
#endif

#endif  // JGS_TESTS_HOST_LAUNCHER_H_
