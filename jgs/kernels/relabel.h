// Local ids in order of first appearance. The hash table is sized to the sample, not to the
// graph.
#ifndef JGS_KERNELS_RELABEL_H_
#define JGS_KERNELS_RELABEL_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "isa.h"
#include "scratch.h"

namespace jgs {

// The nodes that have a local id, and the neighbours of one hop that may still get one.
//
// `Id` is what tells nodes apart. If nodes have eras, the numbers of their cutoffs among those of
// the batch, it is both. int64_t holds any; int32_t, which is faster, holds them if Packs says so.
// `era` arguments are null where nodes have none.
//
// The order of calls is: Reset, Clear for every piece, AddTargets. Then for every hop: Begin;
// Insert for the edges of every chunk, and EndChunk; Number; Label for every chunk; Resolve for
// all edges. Calls for a piece, a chunk or some edges may be made by any number of threads at
// once. The local ids do not depend on the threads, because a node's first appearance is the
// smallest of the edges that lead to it.
template <typename Id>
class RelabelerOf {
 public:
  static constexpr bool kWide = sizeof(Id) == 8;
  static constexpr int kMost = 64;  // the largest number of edges inserted at once

  // Whether an int32_t holds the nodes below `num_nodes`, and padding, of so many eras.
  static bool Packs(int64_t num_nodes, int64_t num_eras) {
    return num_eras <= static_cast<int64_t>(UINT32_MAX) / (num_nodes + 1);
  }

  // Starts anew with room for `capacity` nodes, and for `num_threads` threads. Where nodes have
  // eras, their ids are at most `num_nodes`. Returns the number of pieces to clear.
  int64_t Reset(int64_t capacity, int64_t num_nodes, int64_t num_threads);
  void Clear(int64_t piece);

  // Gives targets[i] the local id i, if it is the first occurrence of its node.
  void AddTargets(const int32_t* targets, const int32_t* era, int64_t num_targets);

  // Prepares for a hop whose chunk c inserts edges with numbers from starts[c] to starts[c + 1]
  // (not all of these must exist). After it at most `capacity` nodes may be known.
  void Begin(const std::vector<int64_t>& starts, int64_t capacity);

  // Loads the node's entry into the cache.
  JGS_INLINE void Prefetch(int32_t node, int32_t era = 0) const {
    __builtin_prefetch(&table_[Home(IdOf(node, era))], 0, 2);
  }

  // Records the neighbours that the edges [edge, edge + count) of a chunk lead to. count <=
  // kMost, and a chunk's edges come in ascending order. Each neighbour is replaced by its local
  // id if it had one before this hop, and otherwise by ~(the place of its entry). False once
  // more nodes are known than fit.
  bool Insert(int64_t chunk, int64_t edge, int32_t* neighbors, const int32_t* era, int count);

  // Called after the chunk's last edge. False once more nodes are known than fit. It counts the
  // new nodes of small chunks, without which the table could fill up unnoticed.
  bool EndChunk(int64_t chunk);

  // Called after all insertions: the number of nodes known now, or -1 if they do not fit.
  int64_t Number();

  struct Range {
    int64_t begin, end;
  };

  // Gives local ids to the nodes that first appeared in a chunk, and writes the nodes at these
  // ids to `nodes`, and their eras to `era`. Returns the range of the ids.
  Range Label(int64_t chunk, int32_t* nodes, int32_t* era);

  // Replaces each ~place among `neighbors` by the local id. It may run while a later hop
  // inserts.
  void Resolve(int32_t* neighbors, int64_t count) const;

 private:
  struct alignas(8) Entry {
    Id id;           // kEmpty if the entry is free
    uint32_t label;  // a local id, or kPending | edge number of the first appearance
  };
  using Word = uint64_t __attribute__((may_alias));  // a small Entry as one integer
  using Wide = int64_t __attribute__((may_alias));   // the id of a large Entry
  using Half = uint32_t __attribute__((may_alias));  // the label of a large Entry
  static constexpr Id kEmpty = -1;
  static constexpr uint32_t kPending = 1u << 31;
  static constexpr uint32_t kNone = ~0u;  // the label of a large Entry that has only its id
  static constexpr int64_t kUnreported = 1024;  // new nodes that a thread may not have reported

  struct Chunk {
    // The edges that were their nodes' first appearances when inserted, ascending: the number
    // of the edge in the upper half, the place of the entry in the lower half. It is one
    // integer, because writing parts and reading the whole would stall.
    std::vector<uint64_t> firsts;
    int64_t num_lost;    // firsts that were found to have an earlier one in another chunk
    int64_t unreported;  // new nodes
    int64_t first_id;
  };

  Id IdOf(int32_t node, int32_t era) const {
    if constexpr (kWide) return static_cast<int64_t>(era) << 32 | static_cast<uint32_t>(node);
    return static_cast<Id>(static_cast<uint32_t>(node) + static_cast<uint32_t>(era) * per_era_);
  }
  uint32_t Home(Id id) const {
    if constexpr (kWide) {
      const uint64_t mixed = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
      return static_cast<uint32_t>(mixed >> 32) >> shift_;
    }
    return (static_cast<uint32_t>(id) * 0x9E3779B1u) >> shift_;
  }
  Entry Load(uint32_t place) const;
  bool Claim(uint32_t place, Entry& expected, Entry desired);
  bool Lower(uint32_t place, Entry& expected, Entry desired);
  void Lose(int64_t edge);

  Scratch<Entry> table_;
  std::vector<Chunk> chunks_;  // never shrinks, so that its memory is reused
  const std::vector<int64_t>* starts_ = nullptr;
  int64_t num_chunks_ = 0, piece_ = 0;
  std::atomic<int64_t> known_{0};
  int64_t capacity_ = 0, num_known_ = 0;
  uint32_t mask_ = 0, per_era_ = 1;
  int shift_ = 32;
};

using Relabeler = RelabelerOf<int32_t>;
extern template class RelabelerOf<int32_t>;
extern template class RelabelerOf<int64_t>;

}  // namespace jgs

#endif  // JGS_KERNELS_RELABEL_H_
