// The softmax over the edges of each target, head by head, and its derivative.
//
// Plain C++: `jgs/ops/attention.py` defines the results, and `edge_softmax_ffi.cc` has the
// XLA bindings. One thread takes a target's sums in edge order, so results do not depend on the
// number of threads.
#ifndef JGS_KERNELS_EDGE_SOFTMAX_H_
#define JGS_KERNELS_EDGE_SOFTMAX_H_

#include "aggregate.h"

namespace jgs {

// A matrix with a row for every edge, [edge_capacity, num_heads], and one with a row for every
// target, [target_capacity, num_heads]. The second is null if targets have no logit for a
// self-loop.
template <typename T>
struct OfEdgesAndOwn {
  T* edges;
  T* own;
};

// weights = the softmax of the logits over each target's edges and its self-loop; 0 in padding.
// Only the rows and the counts of the block are read.
void EdgeSoftmax(const Executor& executor, const BlockView& block, int64_t num_heads,
                 OfEdgesAndOwn<const float> logits, OfEdgesAndOwn<float> weights);

// grad_logits, from the weights that EdgeSoftmax wrote and the gradient of these weights.
void EdgeSoftmaxGrad(const Executor& executor, const BlockView& block, int64_t num_heads,
                     OfEdgesAndOwn<const float> weights, OfEdgesAndOwn<const float> grad,
                     OfEdgesAndOwn<float> grad_logits);

}  // namespace jgs

#endif  // JGS_KERNELS_EDGE_SOFTMAX_H_
