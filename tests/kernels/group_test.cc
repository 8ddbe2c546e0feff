// The counting sort of group.h on threads of its own, against std::stable_sort: for
// ThreadSanitizer. All chunks are counted and spread at once; all buckets are sorted at once.
// Run by `make sanitize`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "group.h"

namespace {

// Starts one thread for each number.
void AtOnce(int64_t count, const std::function<void(int64_t)>& body) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

template <typename Int, typename Position>
bool Check(int64_t size, int64_t num_keys, int64_t shift, int64_t num_chunks) {
  std::mt19937 random(7);
  std::vector<Int> keys(size), values(size);
  for (int64_t i = 0; i < size; ++i) {
    keys[i] = random() % (random() % num_keys + 1);  // skewed
    values[i] = random() % num_keys;
  }
  const JgsInts key{keys.data(), sizeof(Int)}, value{values.data(), sizeof(Int)};
  const int64_t num_buckets = ((num_keys - 1) >> shift) + 1;
  std::vector<std::vector<int64_t>> counts(num_chunks, std::vector<int64_t>(num_buckets));
  const auto begin = [&](int64_t chunk) { return size * chunk / num_chunks; };
  AtOnce(num_chunks, [&](int64_t c) {
    JgsGroupCount(key, value, begin(c), begin(c + 1), num_keys, shift, counts[c].data());
  });
  std::vector<int64_t> buckets{0}, ends(num_keys);
  int64_t total = 0;
  for (int64_t b = 0; b < num_buckets; ++b) {
    for (std::vector<int64_t>& of_chunk : counts) {
      total += of_chunk[b];
      of_chunk[b] = total - of_chunk[b];
    }
    buckets.push_back(total);
  }
  std::vector<int32_t> spread(size);
  std::vector<Position> order(size);
  const JgsInts out{order.data(), sizeof(Position)};
  AtOnce(num_chunks, [&](int64_t c) {
    JgsGroupSpread(key, begin(c), begin(c + 1), shift, counts[c].data(), spread.data(), out);
  });
  AtOnce(num_buckets, [&](int64_t b) {
    const int64_t first = b << shift, last = std::min((b + 1) << shift, num_keys);
    JgsGroupSort(buckets[b], buckets[b + 1], first, last - first, value, spread.data(), out,
                 ends.data() + first);
  });

  std::vector<Position> expected(size);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](Position a, Position b) { return keys[a] < keys[b]; });
  bool good = total == size && order == expected && ends.back() == size;
  for (int64_t i = 0; i < size; ++i) good &= spread[i] == values[order[i]];
  keys[size / 2] = -1;
  std::vector<int64_t> ignored(num_buckets);
  good &= JgsGroupCount(key, value, 0, size, num_keys, shift, ignored.data()) == 1;
  return good;
}

}  // namespace

int main() {
  const bool good = Check<int32_t, int32_t>(50000, 1000, 6, 5) &&
                    Check<int64_t, int32_t>(50000, 1000, 8, 3) &&
                    Check<int32_t, int64_t>(3000, 40, 0, 4) &&
                    Check<int64_t, int64_t>(3000, 1, 0, 2);
  std::puts(good ? "group: ok" : "group: WRONG");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
