// The runs of a block: the edges of one relation into one target, put in order of the relation.
#ifndef JGS_KERNELS_RUNS_H_
#define JGS_KERNELS_RUNS_H_

#include <cstdint>
#include <string>

#include "aggregate.h"

namespace jgs {

// A block whose edges have types.
struct TypedEdges {
  BlockView block;      // without weights
  const int16_t* type;  // [edge_capacity]
  int64_t num_relations;
};

// The results; jgs/ops/relation_runs.py says what they mean. E, T, S, R, U and K are the capacities
// of edges, targets, sources, relations, runs and slots. K is a multiple of the tile.
struct RunsOut {
  int64_t tile, num_runs_capacity, num_slots_capacity;  // the tile, U and K
  int32_t* indptr;       // [K + 1]
  int32_t* indices;      // [E], S in padding
  int32_t* order;        // [E], E in padding
  int32_t* place;        // [E], E in padding
  int32_t* relation;     // [K / tile], 0 in padding
  int32_t* target;       // [K], T where a slot has no run
  int32_t* sum_indptr;   // [T + 1]
  int32_t* sum_indices;  // [U], K in padding
  int64_t num_slots, num_runs;
};

// Returns what is wrong with the block, or "". The cost is in proportion to E + K.
std::string FindRuns(const TypedEdges& edges, RunsOut& out);

}  // namespace jgs

#endif  // JGS_KERNELS_RUNS_H_
