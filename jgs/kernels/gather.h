// Rows of a feature store: copied, or aggregated on the way.
//
// Plain C++: `jgs/ops/gather.py` and `jgs/ops/gather_aggregate.py` hold the meaning,
// `gather_ffi.cc` the XLA bindings. Dense rows are aggregated by aggregate.h.
#ifndef JGS_KERNELS_GATHER_H_
#define JGS_KERNELS_GATHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "aggregate.h"
#include "parallel.h"

namespace jgs {

// Rows in memory: those of one matrix below those of another.
struct Table {
  const float* rows = nullptr;  // [num_rows, num_features]
  int64_t num_rows = 0;
};

// out[i] = row ids[i] of the tables, one below the other; zeros where ids[i] is no row;
// out: [num_ids, num_features].
void Gather(const Executor& executor, const std::vector<Table>& tables, int64_t num_features,
            const int32_t* ids, int64_t num_ids, float* out);

// `Aggregate` of rows of the tables, one below the other: source i of the block has row
// place[i], zeros where that is none. block.num_rows is the number of places, and CheckBlock has
// passed the block. out: [target_capacity, num_features].
void GatherAggregate(const Executor& executor, const std::vector<Table>& tables,
                     const int32_t* place, const BlockView& block, Reduce reduce,
                     int64_t num_features, float* out);

// The arrays of a `jgs.SparseFeatures`.
struct SparseRows {
  const int64_t* indptr = nullptr;   // [num_rows + 1]
  const int32_t* indices = nullptr;  // [num_entries]
  const float* values = nullptr;     // [num_entries]
  int64_t num_rows = 0;
  int64_t num_entries = 0;
  int64_t num_features = 0;
};

// The same from sparse rows. Returns the rule that a row it read breaks, or "".
std::string GatherSparse(const Executor& executor, const SparseRows& features,
                         const int32_t* ids, int64_t num_ids, float* out);

// `Aggregate` of sparse rows: block.num_rows is features.num_rows, and CheckBlock has passed
// the block. out: [target_capacity, num_features]. Returns like GatherSparse.
std::string GatherAggregateSparse(const Executor& executor, const SparseRows& features,
                                  const BlockView& block, Reduce reduce, float* out);

}  // namespace jgs

#endif  // JGS_KERNELS_GATHER_H_
