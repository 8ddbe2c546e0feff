// Products of row-major float32 matrices by one thread. The dense layers (linear.cc) are made
// of these products, and only they include this.
#ifndef JGS_KERNELS_PRODUCT_H_
#define JGS_KERNELS_PRODUCT_H_

#include <cstdint>

namespace jgs {

// A matrix that is read by rows, or transposed, by columns.
struct Left {
  const float* data;
  int64_t row_step, step;
};

// c (+)= a b: a [rows, depth], b [depth, width], c [rows, width].
void Multiply(Left a, const float* b, int64_t rows, int64_t depth, int64_t width, bool add,
              float* c);

// MultiplySparse writes rows of whole vectors.
constexpr int64_t kPadding = 16;
inline int64_t PaddedWidth(int64_t width) {
  return (width + kPadding - 1) / kPadding * kPadding;
}

// The same product, in time proportional to the number of elements of `a` that are not 0. An
// element 0 gives 0 even against NaN. c: [rows, c_width], where c_width is a multiple of
// kPadding; columns from `width` to PaddedWidth(width) become 0.
void MultiplySparse(Left a, const float* b, int64_t rows, int64_t depth, int64_t width,
                    bool add, float* c, int64_t c_width);

// Whether enough of the values are 0 for MultiplySparse to be faster.
bool IsSparse(const float* values, int64_t size);

}  // namespace jgs

#endif  // JGS_KERNELS_PRODUCT_H_
