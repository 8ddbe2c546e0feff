// Self-test of linear.h without Python or XLA, for the sanitizers (ThreadSanitizer above
// all): products on 1, 2 and 4 threads, several at a time, against one loop.
#include "linear.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "threads.h"

namespace {

std::vector<float> Random(int64_t size, int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(generator);
  return values;
}

int failures = 0;

void Run(int64_t capacity, int64_t num_rows, int64_t width) {
  const int64_t in = 5;
  const auto x = Random(capacity * in, 1), y = Random(capacity * in, 2);
  const auto w = Random(in * width, 3), bias = Random(width, 4);
  const auto grad = Random(capacity * width, 5), add = Random(capacity * width, 6);
  auto result = Random(capacity * width, 7);
  for (float& value : result) value = std::max(value, 0.0f);
  std::vector<uint32_t> low(capacity), high(capacity);
  for (int64_t r = 0; r < capacity; ++r) low[r] = 7919u * r, high[r] = 104729u * r;
  jgs::Activation activation;
  activation.relu = true;
  activation.low = low.data(), activation.high = high.data();
  activation.threshold = 1u << 31, activation.scale = 2.0f;
  std::vector<float> first_out, first_grad;
  int64_t kept = 0;
  for (const int64_t num_threads : {1, 2, 4}) {
    std::vector<float> out(capacity * width, -1.0f), grad_w(in * width, -1.0f);
    std::vector<float> grad_bias(width, -1.0f);
    {
      Threads threads;
      const auto executor = threads.Get(num_threads);
      std::thread other([&] {  // two kernels at once
        Threads more;
        jgs::LinearGrad(more.Get(num_threads), {{x.data(), in, grad_w.data()}}, grad.data(),
                        result.data(), 2.0f, num_rows, width, grad_bias.data());
      });
      jgs::Linear(executor, {{x.data(), w.data(), in}, {y.data(), w.data(), in}}, bias.data(),
                  add.data(), activation, num_rows, capacity, width, out.data());
      other.join();
    }
    for (int64_t r = 0; r < capacity; ++r) {
      for (int64_t j = 0; j < width; ++j) {
        double wanted = r < num_rows ? bias[j] + add[r * width + j] : 0.0;
        for (int64_t l = 0; r < num_rows && l < in; ++l) {
          wanted += (double{x[r * in + l]} + y[r * in + l]) * w[l * width + j];
        }
        const bool dropped = out[r * width + j] == 0.0f;  // the Python tests check which
        kept += !dropped;
        if (wanted < -1e-4) failures += !dropped;
        if (!dropped) failures += !(std::abs(out[r * width + j] - 2.0 * wanted) < 1e-4);
      }
    }
    for (int64_t l = 0; l < in; ++l) {
      for (int64_t j = 0; j < width; ++j) {
        double wanted = 0.0;
        for (int64_t r = 0; r < num_rows; ++r) {
          const int64_t at = r * width + j;
          if (result[at] != 0.0f) wanted += 2.0 * x[r * in + l] * grad[at];
        }
        failures += !(std::abs(grad_w[l * width + j] - wanted) < 1e-2);
      }
    }
    if (num_threads == 1) first_out = out, first_grad = grad_w;
    failures += out != first_out || grad_w != first_grad;
  }
  if (num_rows > 1000) failures += kept < num_rows * width / 2;  // 3 threads' runs, a quarter
}

}  // namespace

int main() {
  for (const int64_t capacity : {1, 191, 192, 193, 5000, 40000}) {
    for (const int64_t num_rows : {int64_t{0}, capacity / 2, capacity}) {
      for (const int64_t width : {3, 70}) Run(capacity, num_rows, width);
    }
  }
  std::printf(failures == 0 ? "linear_test: passed\n" : "linear_test: %d failures\n", failures);
  return failures != 0;
}
