// XLA bindings of linear.h. Their Python side is jgs/ops/linear.py.
#include <algorithm>
#include <string>
#include <vector>

#include "ffi.h"
#include "linear.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

using Matrix = ffi::Buffer<ffi::F32, 2>;
using Floats = ffi::Buffer<ffi::F32, 1>;
using Words = ffi::Buffer<ffi::U32, 1>;
using Count = ffi::BufferR0<ffi::S32>;

// The number of real rows of a matrix with `capacity` rows.
int64_t NumRows(const Count& count, int64_t capacity) {
  return std::clamp<int64_t>(*count.typed_data(), 0, capacity);
}

template <typename Buffer>
bool HasShape(const Buffer& buffer, int64_t rows, int64_t columns) {
  return buffer.dimensions()[0] == rows && buffer.dimensions()[1] == columns;
}

// Only a mistake in jgs/ops/linear.py can cause this error.
std::string Mismatch() { return "jgs: the buffers of a product must have matching shapes"; }

// Arguments: the number of real rows; the bias [width] or [0]; add [capacity, width] or [0,
// width]; the dropout's words [capacity] or [0]; then x and w of every term.
ffi::Error LinearFfi(ffi::ThreadPool pool, Count num_rows, Floats bias, Matrix add,
                     Words low, Words high, ffi::RemainingArgs terms, ffi::Result<Matrix> out,
                     bool relu, int64_t threshold, float scale, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t capacity = out->dimensions()[0], width = out->dimensions()[1];
    const auto has_size = [](const auto& buffer, int64_t size) {
      return static_cast<int64_t>(buffer.element_count()) == size;
    };
    const bool has_bias = !has_size(bias, 0), drops = !has_size(low, 0);
    const bool adds = add.dimensions()[0] > 0;
    if (terms.size() % 2 != 0 || (has_bias && !has_size(bias, width)) ||
        (adds && (add.dimensions()[0] < capacity || add.dimensions()[1] != width)) ||
        (drops && !(has_size(low, capacity) && has_size(high, capacity)))) {
      return Mismatch();
    }
    std::vector<Term> products;
    for (size_t i = 0; i < terms.size(); i += 2) {
      const auto x = terms.get<Matrix>(i), w = terms.get<Matrix>(i + 1);
      if (!x || !w) return Mismatch();
      const int64_t in = x->dimensions()[1];
      if (x->dimensions()[0] < capacity || !HasShape(*w, in, width)) return Mismatch();
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
           adds ? add.typed_data() : nullptr, activation, NumRows(num_rows, capacity), capacity, width, out->typed_data());
    return "";
  });
}

// Arguments: the number of real rows; the gradient of the result; the result, or [0, width]
// without an activation; then the inputs. Results: the gradients of the bias and of each of the
// weights.
ffi::Error LinearGradFfi(ffi::ThreadPool pool, Count num_rows, Matrix grad, Matrix out,
                         ffi::RemainingArgs inputs, ffi::RemainingRets results, float scale,
                         int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t capacity = grad.dimensions()[0], width = grad.dimensions()[1];
    const bool active = out.dimensions()[0] > 0;
    auto grad_bias = results.get<Floats>(0);
    if (results.size() != inputs.size() + 1 || !grad_bias ||
        static_cast<int64_t>((*grad_bias)->element_count()) != width ||
        (active && !HasShape(out, capacity, width))) {
      return Mismatch();
    }
    std::vector<GradTerm> terms;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto x = inputs.get<Matrix>(i);
      auto grad_w = results.get<Matrix>(i + 1);
      if (!x || !grad_w) return Mismatch();
      const int64_t in = x->dimensions()[1];
      if (x->dimensions()[0] < capacity || !HasShape(**grad_w, in, width)) return Mismatch();
      terms.push_back({x->typed_data(), in, (*grad_w)->typed_data()});
    }
    LinearGrad(PoolExecutor(pool, num_threads), terms, grad.typed_data(),
               active ? out.typed_data() : nullptr, scale, NumRows(num_rows, capacity), width,
               (*grad_bias)->typed_data());
    return "";
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsLinear, jgs::LinearFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Words>()
                                  .Arg<jgs::Words>()
                                  .RemainingArgs()
                                  .Ret<jgs::Matrix>()
                                  .Attr<bool>("relu")
                                  .Attr<int64_t>("threshold")
                                  .Attr<float>("scale")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsLinearGrad, jgs::LinearGradFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Matrix>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<float>("scale")
                                  .Attr<int64_t>("num_threads"));
