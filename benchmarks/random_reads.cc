// What the memory delivers: random 4-byte reads from a file's array, prefetched well ahead.
// Usage: random_reads FILE OFFSET COUNT THREADS READS. Prints nanoseconds a read as JSON: from
// the mapped file, and from a copy in huge pages. They are wall time over the reads of all
// threads.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kAhead = 64;  // reads in flight or on their way

uint32_t ReadSome(const int32_t* data, uint64_t count, uint64_t reads, uint64_t state) {
  const int32_t* next[kAhead];
  uint32_t sum = 0;
  for (uint64_t i = 0; i < reads + kAhead; ++i) {
    const int slot = i % kAhead;
    if (i >= kAhead) sum += static_cast<uint32_t>(*next[slot]);
    state = state * 6364136223846793005u + 1442695040888963407u;
    next[slot] = data + static_cast<uint64_t>((static_cast<__uint128_t>(state) * count) >> 64);
    __builtin_prefetch(next[slot]);
  }
  return sum;
}

double NanosecondsARead(const int32_t* data, uint64_t count, int num_threads, uint64_t reads) {
  std::vector<uint32_t> sums(num_threads);
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] { sums[t] = ReadSome(data, count, reads / num_threads, t + 1); });
  }
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
  volatile uint32_t used = 0;
  for (uint32_t sum : sums) used = used + sum;
  return took.count() / static_cast<double>(reads);
}

double Best(const int32_t* data, uint64_t count, int num_threads, uint64_t reads) {
  double best = 1e30;
  for (int trial = 0; trial < 5; ++trial) {
    const double now = NanosecondsARead(data, count, num_threads, reads);
    if (now < best) best = now;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const uint64_t offset = std::strtoull(argv[2], nullptr, 10);
  const uint64_t count = std::strtoull(argv[3], nullptr, 10);
  const int num_threads = std::atoi(argv[4]);
  const uint64_t reads = std::strtoull(argv[5], nullptr, 10);
  const int file = open(argv[1], O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return 1;
  void* mapped =
      mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  if (mapped == MAP_FAILED) return 1;
  const auto* data = reinterpret_cast<const int32_t*>(static_cast<char*>(mapped) + offset);

  const uint64_t huge = uint64_t{2} << 20;
  const uint64_t bytes = (count * 4 + huge - 1) / huge * huge;
  auto* copy = static_cast<int32_t*>(std::aligned_alloc(huge, bytes));
  if (copy == nullptr) return 1;
  madvise(copy, bytes, MADV_HUGEPAGE);
  std::memcpy(copy, data, count * 4);

  std::printf("{\"mapped\": %.3f, \"huge_pages\": %.3f}\n",
              Best(data, count, num_threads, reads), Best(copy, count, num_threads, reads));
}
