// Message passing over one block, and its derivatives.
//
// Plain C++: `jgs/ops/aggregate.py` defines the results, and `aggregate_ffi.cc` has the
// XLA bindings. One thread takes every sum in edge order, so results do not depend on the
// number of threads.
#ifndef JGS_KERNELS_AGGREGATE_H_
#define JGS_KERNELS_AGGREGATE_H_

#include <cstdint>
#include <string>

#include "parallel.h"

namespace jgs {

enum class Reduce : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// The arrays of a `jgs.Block`, and the number of rows of the matrix that its indices refer to.
struct BlockView {
  const int32_t* indptr = nullptr;   // [target_capacity + 1]
  const int32_t* indices = nullptr;  // [edge_capacity]
  const float* weight = nullptr;     // [edge_capacity, num_heads], or null
  int64_t target_capacity = 0;
  int64_t edge_capacity = 0;
  int64_t num_rows = 0;
  int64_t num_targets = 0;
  int64_t num_edges = 0;
  int64_t num_heads = 1;  // the matrix's columns are this number of equal parts
};

// The first rule of `jgs.Block` that the rows and the counts break, or "" if they break none.
std::string CheckRows(const BlockView& block);

// The first rule of `jgs.Block` that the arrays break, or "". For a block that breaks one, the
// functions below read and write out of bounds. `matrix` is what messages call the matrix that
// the indices refer to.
std::string CheckBlock(const BlockView& block, const std::string& matrix);

// out[t] = reduction of weight[e] * x[indices[e]] over the edges e of row t; 0 for empty rows.
// x: [num_rows, num_features]; out: [target_capacity, num_features]. The features are num_heads
// equal parts, and head h weights part h. kMax takes one head. If argmax is not null, kMax also
// writes it, with the shape of out: the first edge that attains the maximum, -1 in empty rows.
// NaN counts as the maximum.
void Aggregate(const Executor& executor, const BlockView& block, Reduce reduce, const float* x,
               int64_t num_features, float* out, int32_t* argmax);

// The same with one head, where the row of index i begins at rows[i], for i below num_rows.
void AggregateListed(const Executor& executor, const BlockView& block, Reduce reduce,
                     const float* const* rows, int64_t num_features, float* out);

// grad_x: [num_rows, num_features], from grad_out: [target_capacity, num_features]. argmax is
// what Aggregate wrote; only kMax reads it.
void AggregateGrad(const Executor& executor, const BlockView& block, Reduce reduce,
                   const float* grad_out, const int32_t* argmax, int64_t num_features,
                   float* grad_x);

// grad_weight: [edge_capacity, num_heads], 0 in padding.
void AggregateGradWeight(const Executor& executor, const BlockView& block, Reduce reduce,
                         const float* grad_out, const int32_t* argmax, const float* x,
                         int64_t num_features, float* grad_weight);

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_H_
