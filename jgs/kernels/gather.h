// Rows of a feature store: copied, or aggregated on the way.
//
// Plain C++: `jgs/ops/aggregate.py` defines the results, and
// `gather_ffi.cc` has the XLA bindings. aggregate.h aggregates dense rows.
#ifndef JGS_KERNELS_GATHER_H_
#define JGS_KERNELS_GATHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "aggregate.h"
#include "parallel.h"

namespace jgs {

enum class Element { kFloat, kHalf, kCode };  // see stored.h

// Rows in memory. Several tables are read as one, each below the one before.
struct Table {
  const void* rows = nullptr;  // [num_rows, num_features]
  int64_t num_rows = 0;
};

struct StoredRows {
  std::vector<Table> tables;
  Element element = Element::kFloat;
  int64_t num_features = 0;
  const float* scale = nullptr;   // [num_features], of codes
  const float* offset = nullptr;  // [num_features], of codes
};

// out[i] = row ids[i] of the tables, each below the one before; zeros if there is no such row.
// out: [num_ids, num_features].
void Gather(const Executor& executor, const StoredRows& rows, const int32_t* ids,
            int64_t num_ids, float* out);

// `Aggregate` of rows of the tables, each below the one before: source i of the block has row
// place[i], or zeros if there is no such row. block.num_rows is the number of places. Where
// `place` is null there is one table, and source i has row i. The caller has checked the block
// with CheckBlock. out: [target_capacity, num_features].
void GatherAggregate(const Executor& executor, const StoredRows& rows, const int32_t* place,
                     const BlockView& block, Reduce reduce, float* out);

// The arrays of a `jgs.SparseFeatures`.
struct SparseRows {
  const int64_t* indptr = nullptr;   // [num_rows + 1]
  const int32_t* indices = nullptr;  // [num_entries]
  const float* values = nullptr;     // [num_entries]
  int64_t num_rows = 0;
  int64_t num_entries = 0;
  int64_t num_features = 0;
};

// `Gather` of sparse rows. Returns the rule that a row it read breaks, or "".
std::string GatherSparse(const Executor& executor, const SparseRows& features,
                         const int32_t* ids, int64_t num_ids, float* out);

// `Aggregate` of sparse rows: block.num_rows is features.num_rows. The caller has checked the
// block with CheckBlock. out: [target_capacity, num_features]. Returns what GatherSparse
// returns.
std::string GatherAggregateSparse(const Executor& executor, const SparseRows& features,
                                  const BlockView& block, Reduce reduce, float* out);

}  // namespace jgs

#endif  // JGS_KERNELS_GATHER_H_
