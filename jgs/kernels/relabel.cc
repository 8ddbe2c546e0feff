#include "relabel.h"

#include <algorithm>

namespace jgs {
namespace {

constexpr int64_t kAhead = 16;          // how far ahead table entries are prefetched
constexpr int64_t kChunk = 1 << 13;     // neighbours a thread takes at a time
constexpr int64_t kSerialBelow = 1 << 14;

using Word = uint64_t __attribute__((may_alias));  // an Entry, claimed as a whole

}  // namespace

// Room for num_more further nodes at a load of at most one half. Nodes 0..num_known keep
// their labels.
void Relabeler::Reserve(const int32_t* nodes, int64_t num_known, int64_t num_more) {
  int bits = 10;
  while ((int64_t{1} << bits) < 2 * (num_known + num_more)) ++bits;
  if (32 - shift_ >= bits && !table_.empty()) return;
  shift_ = 32 - bits;
  mask_ = static_cast<uint32_t>((int64_t{1} << bits) - 1);
  table_.assign(size_t{1} << bits, Entry{kEmpty, 0});
  for (int64_t i = 0; i < num_known; ++i) {
    if (i + kAhead < num_known) __builtin_prefetch(&table_[Home(nodes[i + kAhead])], 1);
    uint32_t s = Home(nodes[i]);
    while (table_[s].node != kEmpty && table_[s].node != nodes[i]) s = (s + 1) & mask_;
    if (table_[s].node == kEmpty) table_[s] = {nodes[i], static_cast<uint32_t>(i)};
  }
}

void Relabeler::SetTargets(const int32_t* targets, int64_t num_targets) {
  table_.clear();
  Reserve(targets, num_targets, 0);
}

int64_t Relabeler::AddNeighbors(const int32_t* neighbors, int64_t num_neighbors,
                                int64_t num_known, int64_t capacity, int32_t* nodes,
                                int32_t* local, const Executor& executor) {
  Reserve(nodes, num_known, num_neighbors);
  if (executor.num_threads <= 1 || num_neighbors < kSerialBelow) {
    return AddSerial(neighbors, num_neighbors, num_known, capacity, nodes, local);
  }
  if (static_cast<int64_t>(slot_.size()) < num_neighbors) slot_.resize(num_neighbors);
  const int64_t chunks = (num_neighbors + kChunk - 1) / kChunk;
  firsts_.assign(chunks + 1, 0);
  const auto begin = [](int64_t chunk) { return chunk * kChunk; };
  const auto end = [=](int64_t chunk) { return std::min((chunk + 1) * kChunk, num_neighbors); };

  // 1. Every neighbour finds its entry; a new entry keeps its smallest position.
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    for (int64_t e = begin(chunk); e < end(chunk); ++e) {
      if (e + kAhead < num_neighbors) __builtin_prefetch(&table_[Home(neighbors[e + kAhead])], 1);
      slot_[e] = FindOrInsert(neighbors[e], kPending | static_cast<uint32_t>(e));
    }
  });
  // 2. Count the first appearances of each chunk.
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    int64_t count = 0;
    for (int64_t e = begin(chunk); e < end(chunk); ++e) {
      if (e + kAhead < end(chunk)) __builtin_prefetch(&table_[slot_[e + kAhead]]);
      if (table_[slot_[e]].label == (kPending | static_cast<uint32_t>(e))) {
        slot_[e] |= kPending;
        ++count;
      }
    }
    firsts_[chunk + 1] = count;
  });
  for (int64_t chunk = 0; chunk < chunks; ++chunk) firsts_[chunk + 1] += firsts_[chunk];
  const int64_t num_sources = num_known + firsts_[chunks];
  if (num_sources > capacity) return -1;
  // 3. Number them. Only a first appearance writes its entry.
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    int64_t id = num_known + firsts_[chunk];
    for (int64_t e = begin(chunk); e < end(chunk); ++e) {
      if ((slot_[e] & kPending) == 0) continue;
      slot_[e] &= ~kPending;
      table_[slot_[e]].label = static_cast<uint32_t>(id);
      nodes[id++] = neighbors[e];
    }
  });
  // 4. Look every neighbour up.
  ParallelFor(executor, chunks, [&](int64_t chunk) {
    for (int64_t e = begin(chunk); e < end(chunk); ++e) {
      if (e + kAhead < end(chunk)) __builtin_prefetch(&table_[slot_[e + kAhead]]);
      local[e] = static_cast<int32_t>(table_[slot_[e]].label);
    }
  });
  return num_sources;
}

int64_t Relabeler::AddSerial(const int32_t* neighbors, int64_t num_neighbors,
                             int64_t num_known, int64_t capacity, int32_t* nodes,
                             int32_t* local) {
  for (int64_t e = 0; e < num_neighbors; ++e) {
    if (e + kAhead < num_neighbors) __builtin_prefetch(&table_[Home(neighbors[e + kAhead])], 1);
    const int32_t node = neighbors[e];
    uint32_t s = Home(node);
    while (table_[s].node != kEmpty && table_[s].node != node) s = (s + 1) & mask_;
    if (table_[s].node == kEmpty) {
      if (num_known == capacity) return -1;
      table_[s] = {node, static_cast<uint32_t>(num_known)};
      nodes[num_known++] = node;
    }
    local[e] = static_cast<int32_t>(table_[s].label);
  }
  return num_known;
}

// The entry of `node`, whose label becomes the smaller of its own and `label`. Which entry a
// new node takes depends on the race; its label does not, and only labels are ever read out.
uint32_t Relabeler::FindOrInsert(int32_t node, uint32_t label) {
  uint32_t s = Home(node);
  for (;; s = (s + 1) & mask_) {
    Entry& entry = table_[s];
    int32_t found = __atomic_load_n(&entry.node, __ATOMIC_ACQUIRE);
    if (found == kEmpty) {
      // A fresh entry's label is 0 until someone claims it: claim node and label together.
      uint64_t expected, desired;
      const Entry empty{kEmpty, 0}, mine{node, label};
      __builtin_memcpy(&expected, &empty, sizeof expected);
      __builtin_memcpy(&desired, &mine, sizeof desired);
      if (__atomic_compare_exchange_n(reinterpret_cast<Word*>(&entry), &expected, desired,
                                      false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return s;
      }
      Entry now;
      __builtin_memcpy(&now, &expected, sizeof now);
      found = now.node;
    }
    if (found == node) {
      uint32_t current = __atomic_load_n(&entry.label, __ATOMIC_RELAXED);
      while (label < current &&
             !__atomic_compare_exchange_n(&entry.label, &current, label, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED)) {
      }
      return s;
    }
  }
}

}  // namespace jgs
