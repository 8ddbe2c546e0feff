// Dense products of row-major float32 matrices, of which only the first rows are computed.
//
// XLA:CPU's own products reach half of what the cores can do for the shapes of a GNN's layers
// (tall matrices with a few hundred columns), and multiply padding too. A BLAS has busy threads
// of its own, which slow down many times if another thread wants the same core. Here XLA's
// threads share chunks of rows. The division of the rows depends on their number alone, and
// every sum is taken in one order, so results do not depend on the number of threads.
//
// After ReLU and dropout about three quarters of a matrix, and of its gradient, are zeros. They
// are skipped, which halves the time of these products. The product of a skipped zero and NaN
// is 0.
#ifndef JGS_KERNELS_LINEAR_H_
#define JGS_KERNELS_LINEAR_H_

#include <cstdint>
#include <vector>

#include "parallel.h"

namespace jgs {

// One product `x w`: x [rows, in], w [in, out].
struct Term {
  const float* x;
  const float* w;
  int64_t in;
};

// What follows the products: nothing; ReLU; or ReLU and then dropout, if `low` is not null.
// Unit u of row r is dropped if its bits, a hash of (u, low[r], high[r]), are below
// `threshold`; others are multiplied by `scale`. jgs/ops/linear.py defines the hash.
struct Activation {
  bool relu = false;
  const uint32_t* low = nullptr;   // [capacity]
  const uint32_t* high = nullptr;  // [capacity]
  uint32_t threshold = 0;
  float scale = 1.0f;
};

// out[r] = activation(sum of the terms' products + bias + add[r]) for r < num_rows, and 0 in
// other rows. out, add: [capacity, width]; bias and add may be null.
void Linear(const Executor& executor, const std::vector<Term>& terms, const float* bias,
            const float* add, const Activation& activation, int64_t num_rows, int64_t capacity,
            int64_t width, float* out);

// One input x [rows, in], and the place for the gradient of its weights, [in, width].
struct GradTerm {
  const float* x;
  int64_t in;
  float* grad_w;
};

// The derivatives of Linear by the weights and by the bias [width], from `grad`, the gradient
// of its result, summed over the first num_rows rows. `out` is the result, or null without an
// activation. `scale` is the activation's.
void LinearGrad(const Executor& executor, const std::vector<GradTerm>& terms, const float* grad,
                const float* out, float scale, int64_t num_rows, int64_t width,
                float* grad_bias);

}  // namespace jgs

#endif  // JGS_KERNELS_LINEAR_H_
