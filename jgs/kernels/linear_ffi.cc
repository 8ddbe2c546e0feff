// XLA bindings of linear.h. Their Python side is jgs/ops/linear.py.
#include <algorithm>
#include <string>
#include <vector>

#include "ffi.h"
#include "linear.h"

namespace jgs {
namespace {

// The number of real rows of a matrix with `capacity` rows.
int64_t NumRows(const Int& count, int64_t capacity) {
  return std::clamp<int64_t>(*count.typed_data(), 0, capacity);
}

// Arguments: the number of real rows; the bias [width] or [0]; add [capacity, width] or [0,
// width]; the dropout's words [capacity] or [0]; then x and w of every term.
std::string LinearFfi(ffi::ThreadPool pool, Int num_rows, Floats bias, Matrix add, Words low,
                      Words high, ffi::RemainingArgs terms, ffi::Result<Matrix> out, bool relu,
                      int64_t threshold, float scale, int64_t num_threads) {
  const int64_t capacity = out->dimensions()[0], width = out->dimensions()[1];
  const bool has_bias = Size(bias) > 0, drops = Size(low) > 0;
  const bool adds = add.dimensions()[0] > 0;
  if (terms.size() % 2 != 0 || (has_bias && Size(bias) != width) ||
      (adds && (add.dimensions()[0] < capacity || add.dimensions()[1] != width)) ||
      (drops && (Size(low) != capacity || Size(high) != capacity))) {
    return kShapes;
  }
  std::vector<Term> products;
  for (size_t i = 0; i < terms.size(); i += 2) {
    const auto x = terms.get<Matrix>(i), w = terms.get<Matrix>(i + 1);
    if (!x || !w) return kShapes;
    const int64_t in = x->dimensions()[1];
    if (x->dimensions()[0] < capacity || !HasShape(*w, in, width)) return kShapes;
    products.push_back({x->typed_data(), w->typed_data(), in});
  }
  Activation activation;
  activation.relu = relu;
  if (drops) {
    activation.low = low.typed_data();
    activation.high = high.typed_data();
    activation.threshold = static_cast<uint32_t>(threshold);
    activation.scale = scale;
  }
  AdviseHugePages(out);
  Linear(PoolExecutor(pool, num_threads), products, has_bias ? bias.typed_data() : nullptr,
         adds ? add.typed_data() : nullptr, activation, NumRows(num_rows, capacity), capacity,
         width, out->typed_data());
  return "";
}

// Arguments: the number of real rows; the gradient of the result; the result, or [0, width]
// without an activation; then the inputs. Results: the gradients of the bias and of each of the
// weights.
std::string LinearGradFfi(ffi::ThreadPool pool, Int num_rows, Matrix grad, Matrix out,
                          ffi::RemainingArgs inputs, ffi::RemainingRets results, float scale,
                          int64_t num_threads) {
  const int64_t capacity = grad.dimensions()[0], width = grad.dimensions()[1];
  const bool active = out.dimensions()[0] > 0;
  auto grad_bias = results.get<Floats>(0);
  if (results.size() != inputs.size() + 1 || !grad_bias ||
      static_cast<int64_t>((*grad_bias)->element_count()) != width ||
      (active && !HasShape(out, capacity, width))) {
    return kShapes;
  }
  std::vector<GradTerm> terms;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto x = inputs.get<Matrix>(i);
    auto grad_w = results.get<Matrix>(i + 1);
    if (!x || !grad_w) return kShapes;
    const int64_t in = x->dimensions()[1];
    if (x->dimensions()[0] < capacity || !HasShape(**grad_w, in, width)) return kShapes;
    terms.push_back({x->typed_data(), in, (*grad_w)->typed_data()});
  }
  LinearGrad(PoolExecutor(pool, num_threads), terms, grad.typed_data(),
             active ? out.typed_data() : nullptr, scale, NumRows(num_rows, capacity), width,
             (*grad_bias)->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsLinear, LinearFfi, "relu", "threshold", "scale", "num_threads");
JGS_HANDLER(JgsLinearGrad, LinearGradFfi, "scale", "num_threads");

}  // namespace jgs
