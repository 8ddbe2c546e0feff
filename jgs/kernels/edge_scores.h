// The logits of additive attention over the edges of a block, and their derivatives.
//
// Plain C++: `jgs/ops/attention.py` defines the results, and `edge_scores_ffi.cc` has the XLA
// bindings. One thread takes every sum in edge order, so results do not depend on the number of
// threads.
#ifndef JGS_KERNELS_EDGE_SCORES_H_
#define JGS_KERNELS_EDGE_SCORES_H_

#include "aggregate.h"

namespace jgs {

// Turns a source's row x and a target's row y into a logit for each head:
// attention . LeakyReLU(x + y) over the head's part of the features.
struct AdditiveAttention {
  const float* attention = nullptr;  // [num_heads * width of a head = num_features]
  int64_t num_features = 0;
  int64_t num_heads = 1;
  float negative_slope = 0.0f;
};

// scores: [edge_capacity, num_heads], 0 in padding. x: [num_rows, num_features]; y:
// [target_capacity, num_features]. The block's weights are not read.
void EdgeScores(const Executor& executor, const BlockView& block,
                const AdditiveAttention& attention, const float* x, const float* y,
                float* scores);

// The derivatives, for a block whose weights are the gradient of the scores. grad_x and grad_y
// have the shapes of x and y. grad_attention: [target_capacity, num_features], the part of each
// target.
void EdgeScoresGrad(const Executor& executor, const BlockView& block,
                    const AdditiveAttention& attention, const float* x, const float* y,
                    float* grad_x, float* grad_y, float* grad_attention);

}  // namespace jgs

#endif  // JGS_KERNELS_EDGE_SCORES_H_
