// Biases of edges in a slice that is built: projections of nodes, inner products by edge, and
// what a draw by weight searches. The Python side is jgs/sampling/: edges/project.py,
// matrix/edge_arrays.py and matrix/select.py.
//
// The product of two floats is exact in a double, so a fused multiply-add changes no bit.
#ifndef JGS_KERNELS_EDGE_INNER_H_
#define JGS_KERNELS_EDGE_INNER_H_

#include <cstdint>

#include "parallel.h"

namespace jgs {

// The rows of two dense matrices [rows, heads * width] and [columns, heads * width], and the
// slots of each edge in them.
struct EdgeFactors {
  const float* left;
  const float* right;
  const int32_t* row;
  const int32_t* column;
  int64_t heads, width;
};

// products[e, h] = the inner product of head h of both rows of edge e, for e in [0, num_edges),
// added in doubles in the order of `_inner` in edge_arrays.py.
void EdgeInner(const EdgeFactors& factors, int64_t num_edges, float* products,
               const Executor& executor);

// running[e] = the sum of the weights of its column's edges up to e, in units of 2^-30 of the
// power of two above the column's largest; a positive weight is at least one unit. Column c has
// the edges indptr[c]:indptr[c + 1]. Returns whether a weight was negative, infinite or NaN;
// such ones count as 0.
bool RunningWeights(const float* weight, const int32_t* indptr, int64_t num_columns,
                    int64_t* running, const Executor& executor);

// Rows of `features` [num_nodes, num_features], times a dense matrix.
struct Projection {
  const float* features;
  int64_t num_nodes, num_features;
  const int32_t* nodes;  // [num_rows]; others than [0, num_nodes) have rows of 0
  int64_t num_rows;
  const float* weight;  // [num_features, width]
  int64_t width;
};

// product[i] = the row of nodes[i] times the weight, [num_rows, width], each sum in a double in
// the order of the features. Rows after the last node are 0 if `width` is 1; else they are left
// as they are.
void Project(const Projection& of, float* product, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_EDGE_INNER_H_
