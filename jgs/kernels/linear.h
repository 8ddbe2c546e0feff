// Dense products of row-major float32 matrices, on the first rows of padded ones.
//
// XLA:CPU's own products reach half of what the cores can do at the shapes of a GNN's layers
// (tall matrices of a few hundred columns), and multiply padding too; a BLAS has busy threads of
// its own, which slow down many times over where another thread wants the same core. Here
// XLA's threads share chunks of rows. How rows are cut depends on their number alone, and every
// sum is taken in one order: results do not depend on the number of threads.
//
// Behind ReLU and dropout about three quarters of a matrix are zeros, and of its gradient too.
// They are passed over, which halves the time of these products; times NaN they are 0.
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

// What follows the products: nothing; ReLU; or ReLU and then dropout, where `low` is not null.
// Unit u of row r is dropped if its bits, a hash of (u, low[r], high[r]), are below `threshold`;
// the others are multiplied by `scale`. The meaning is jgs/ops/dropout.py.
struct Activation {
  bool relu = false;
  const uint32_t* low = nullptr;   // [capacity]
  const uint32_t* high = nullptr;  // [capacity]
  uint32_t threshold = 0;
  float scale = 1.0f;
};

// out[r] = activation(sum of the terms' products + bias + add[r]) for r < num_rows, and 0 in the
// other rows. out, add: [capacity, width]; bias and add may be null.
void Linear(const Executor& executor, const std::vector<Term>& terms, const float* bias,
            const float* add, const Activation& activation, int64_t num_rows, int64_t capacity,
            int64_t width, float* out);

// One input x [rows, in], and where the gradient of its weights goes: [in, width].
struct GradTerm {
  const float* x;
  int64_t in;
  float* grad_w;
};

// The derivatives of Linear by the weights and by the bias [width], from that by its result,
// `grad`, summed over the first num_rows rows. `out` is the result, or null without activation;
// `scale` the activation's.
void LinearGrad(const Executor& executor, const std::vector<GradTerm>& terms, const float* grad,
                const float* out, float scale, int64_t num_rows, int64_t width,
                float* grad_bias);

}  // namespace jgs

#endif  // JGS_KERNELS_LINEAR_H_
