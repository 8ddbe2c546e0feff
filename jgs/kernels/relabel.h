// Local ids in order of first appearance: a hash table sized to the sample, not to the graph.
#ifndef JGS_KERNELS_RELABEL_H_
#define JGS_KERNELS_RELABEL_H_

#include <cstdint>
#include <vector>

#include "parallel.h"

namespace jgs {

class Relabeler {
 public:
  // Starts anew: targets[i] gets the local id i, if it is the first occurrence of its node.
  void SetTargets(const int32_t* targets, int64_t num_targets);

  // Gives every neighbour that has no local id yet the next one, in order of first
  // appearance, appends it to `nodes` and writes all local ids to `local`. `num_known` is the
  // number of nodes so far; returns the new number, or -1 if it would exceed `capacity` (then
  // `local` and `nodes` hold nothing of use). The result is the same at any thread count.
  int64_t AddNeighbors(const int32_t* neighbors, int64_t num_neighbors, int64_t num_known,
                       int64_t capacity, int32_t* nodes, int32_t* local,
                       const Executor& executor);

 private:
  struct alignas(8) Entry {
    int32_t node;    // kEmpty: free
    uint32_t label;  // a local id, or kPending | position of the first appearance
  };
  static constexpr int32_t kEmpty = -1;
  static constexpr uint32_t kPending = 1u << 31;

  void Reserve(const int32_t* nodes, int64_t num_known, int64_t num_more);
  uint32_t Home(int32_t node) const {
    return (static_cast<uint32_t>(node) * 0x9E3779B1u) >> shift_;
  }
  int64_t AddSerial(const int32_t* neighbors, int64_t num_neighbors, int64_t num_known,
                    int64_t capacity, int32_t* nodes, int32_t* local);
  uint32_t FindOrInsert(int32_t node, uint32_t label);

  std::vector<Entry> table_;
  std::vector<uint32_t> slot_;  // each neighbour's entry; top bit: it is its first appearance
  std::vector<int64_t> firsts_;
  uint32_t mask_ = 0;
  int shift_ = 32;
};

}  // namespace jgs

#endif  // JGS_KERNELS_RELABEL_H_
