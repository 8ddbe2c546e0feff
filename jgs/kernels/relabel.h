// Local ids in order of first appearance: a hash table sized to the sample, not to the graph.
#ifndef JGS_KERNELS_RELABEL_H_
#define JGS_KERNELS_RELABEL_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "parallel.h"
#include "scratch.h"

namespace jgs {

// Nodes that have a local id, and the neighbours of one hop that may yet get one.
//
// Reset, then for every hop: Begin, Insert for each neighbour from any number of threads, End.
// The local ids do not depend on the threads: the edge number of a node's first appearance is
// settled by taking the smallest.
class Relabeler {
 public:
  // Starts anew with room for `capacity` nodes: targets[i] gets the local id i, if it is the
  // first occurrence of its node.
  void Reset(const int32_t* targets, int64_t num_targets, int64_t capacity,
             const Executor& executor);

  // Prepares for a hop of at most num_edges neighbours, after which at most `capacity` nodes
  // may be known.
  void Begin(int64_t num_edges, int64_t capacity);

  // Loads the node's entry into the cache.
  void Prefetch(int32_t node) const { __builtin_prefetch(&table_[Home(node)], 1); }

  // Says that edge number `edge` leads to `node`; returns whether the node was new to the
  // table. Any order, any thread, each edge once.
  bool Insert(int32_t node, int64_t edge);

  // Reports nodes that were new; false once there are more than fit. Insertions that a thread
  // has not reported may number kUnreported at most.
  static constexpr int64_t kUnreported = 1024;
  bool Report(int64_t num_new) {
    return known_.fetch_add(num_new, std::memory_order_relaxed) + num_new <= capacity_;
  }

  // Gives the new nodes their local ids, appends them to `nodes` and puts the local id of
  // every edge's neighbour in the neighbour's place. Returns the number of nodes known, or -1
  // if that is more than fit.
  int64_t End(int32_t* neighbors, int64_t num_edges, int32_t* nodes, const Executor& executor);

  // Moves the edges [from, from + count) to [to, to + count), to <= from: after Insert, before
  // End, with the neighbours moved alike.
  void Move(int64_t from, int64_t to, int64_t count);

 private:
  struct alignas(8) Entry {
    int32_t node;    // kEmpty: free
    uint32_t label;  // a local id, or kPending | edge number of the first appearance
  };
  using Word = uint64_t __attribute__((may_alias));  // an Entry, claimed as a whole
  static constexpr int32_t kEmpty = -1;
  static constexpr uint32_t kPending = 1u << 31;

  uint32_t Home(int32_t node) const {
    return (static_cast<uint32_t>(node) * 0x9E3779B1u) >> shift_;
  }

  Scratch<Entry> table_;
  Scratch<uint32_t> slot_;   // [edges] each neighbour's entry
  Scratch<uint8_t> first_;   // [edges] whether it is its node's first appearance
  std::vector<int64_t> count_;
  std::atomic<int64_t> known_{0};
  int64_t capacity_ = 0, num_known_ = 0;
  uint32_t mask_ = 0;
  int shift_ = 32;
};

inline bool Relabeler::Insert(int32_t node, int64_t edge) {
  const uint32_t label = kPending | static_cast<uint32_t>(edge);
  for (uint32_t s = Home(node);; s = (s + 1) & mask_) {
    Entry& entry = table_[s];
    int32_t found = __atomic_load_n(&entry.node, __ATOMIC_RELAXED);
    if (found == kEmpty) {
      // `first_` is set before the entry is visible: whoever takes it over clears it after.
      __atomic_store_n(&first_[edge], 1, __ATOMIC_RELAXED);
      const Entry mine{node, label};
      uint64_t expected = ~uint64_t{0}, desired;
      std::memcpy(&desired, &mine, sizeof desired);
      if (__atomic_compare_exchange_n(reinterpret_cast<Word*>(&entry), &expected, desired,
                                      false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        slot_[edge] = s;
        return true;
      }
      Entry now;
      std::memcpy(&now, &expected, sizeof now);
      found = now.node;
    }
    if (found != node) continue;
    slot_[edge] = s;
    uint32_t current = __atomic_load_n(&entry.label, __ATOMIC_RELAXED);
    while (label < current) {  // a later appearance was seen first
      __atomic_store_n(&first_[edge], 1, __ATOMIC_RELAXED);
      if (__atomic_compare_exchange_n(&entry.label, &current, label, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED)) {
        __atomic_store_n(&first_[current & ~kPending], 0, __ATOMIC_RELAXED);
        return false;
      }
    }
    __atomic_store_n(&first_[edge], 0, __ATOMIC_RELAXED);
    return false;
  }
}

}  // namespace jgs

#endif  // JGS_KERNELS_RELABEL_H_
