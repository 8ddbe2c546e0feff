// Sums over edges that do not depend on their order (jgs/sampling/matrix/sums.py). The values
// are given, or a chain of edge maps computes them while the edges are read.
#ifndef JGS_KERNELS_EDGE_SUMS_H_
#define JGS_KERNELS_EDGE_SUMS_H_

#include <cstdint>
#include <vector>

#include "extract.h"
#include "parallel.h"

namespace jgs {

// sums[s, h] = the sum of the values [num_edges, width] whose `slot` is s in [0, num_slots).
// Values with another slot are left out.
void ExactSums(const float* values, const int32_t* slot, int64_t num_edges, int64_t width,
               int64_t num_slots, float* sums, const Executor& executor);

enum class Operation { kAdd, kSub, kMul, kDiv, kSquare };

// One edge map: an operation on the value and a number, or the entry of a vector for its row or
// column.
struct EdgeStep {
  Operation operation;
  enum Kind { kNumber, kRow, kColumn } kind;
  bool reflected;  // whether the other operand comes first
  float number;
  const float* vector;
};

// The edges of `slice`, whose rows are `indices`. Their values are `weight` (1 if it is null),
// changed by the steps.
struct EdgeChain {
  const Slice& slice;
  const int32_t* indices;
  const float* weight;
  std::vector<EdgeStep> steps;
};

// The sums of the values by row, [num_rows], or by column, [columns].
void SumByRow(const EdgeChain& chain, int64_t num_rows, float* sums, const Executor& executor);
void SumByColumn(const EdgeChain& chain, float* sums, const Executor& executor);

// The number of edges of each row.
void CountByRow(const Slice& slice, const int32_t* indices, int64_t num_rows, int32_t* count,
                const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_EDGE_SUMS_H_
