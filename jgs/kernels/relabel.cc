#include "relabel.h"

#include <algorithm>
#include <cstring>

namespace jgs {
namespace {

constexpr int64_t kAhead = 16;       // how far ahead entries are prefetched
constexpr int64_t kChunk = 1 << 13;  // edges a thread takes at a time

}  // namespace

void Relabeler::Reset(const int32_t* targets, int64_t num_targets, int64_t capacity,
                      const Executor& executor) {
  // At most three quarters full, and room for what threads insert before they report it.
  const int64_t most = capacity + kUnreported * executor.num_threads;
  int bits = 10;
  while (int64_t{3} << bits < 4 * most) ++bits;
  const int64_t size = int64_t{1} << bits;
  table_.Reserve(size);
  shift_ = 32 - bits;
  mask_ = static_cast<uint32_t>(size - 1);
  static_assert(kEmpty == -1, "an entry of ones is free");
  const int64_t pieces = std::max<int64_t>(1, size >> 15), piece = size / pieces;
  ParallelFor(executor, pieces, [&](int64_t i) {
    std::memset(static_cast<void*>(&table_[i * piece]), 0xFF, piece * sizeof(Entry));
  });
  for (int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) Prefetch(targets[i + kAhead]);
    uint32_t s = Home(targets[i]);
    while (table_[s].node != kEmpty && table_[s].node != targets[i]) s = (s + 1) & mask_;
    if (table_[s].node == kEmpty) table_[s] = {targets[i], static_cast<uint32_t>(i)};
  }
  num_known_ = num_targets;
}

void Relabeler::Begin(int64_t num_edges, int64_t capacity) {
  slot_.Reserve(num_edges);
  first_.Reserve(num_edges);
  capacity_ = capacity;
  known_.store(num_known_, std::memory_order_relaxed);
}

void Relabeler::Move(int64_t from, int64_t to, int64_t count) {
  std::memmove(&slot_[to], &slot_[from], count * sizeof(uint32_t));
  std::memmove(&first_[to], &first_[from], count);
}

int64_t Relabeler::End(int32_t* neighbors, int64_t num_edges, int32_t* nodes,
                       const Executor& executor) {
  const int64_t num_nodes = known_.load(std::memory_order_relaxed);
  if (num_nodes > capacity_) return -1;
  const int64_t chunks = (num_edges + kChunk - 1) / kChunk;
  const auto end = [=](int64_t chunk) { return std::min((chunk + 1) * kChunk, num_edges); };
  count_.assign(chunks + 1, num_known_);
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    int64_t count = 0;
    for (int64_t e = chunk * kChunk; e < end(chunk); ++e) count += first_[e];
    count_[chunk + 1] = count;
  });
  for (int64_t chunk = 0; chunk < chunks; ++chunk) count_[chunk + 1] += count_[chunk];
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    int64_t id = count_[chunk];
    int32_t firsts[kChunk];
    int64_t count = 0;
    for (int64_t e = chunk * kChunk; e < end(chunk); ++e) {  // no branch to mispredict
      firsts[count] = static_cast<int32_t>(e);
      count += first_[e];
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&table_[slot_[firsts[i + kAhead]]], 1);
      table_[slot_[firsts[i]]].label = static_cast<uint32_t>(id);
      nodes[id++] = neighbors[firsts[i]];
    }
  });
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    const int64_t last = end(chunk);
    for (int64_t e = chunk * kChunk; e < last; ++e) {
      if (e + kAhead < last) __builtin_prefetch(&table_[slot_[e + kAhead]]);
      neighbors[e] = static_cast<int32_t>(table_[slot_[e]].label);
    }
  });
  num_known_ = num_nodes;
  return num_nodes;
}

}  // namespace jgs
