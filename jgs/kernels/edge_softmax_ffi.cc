// XLA bindings of edge_softmax.h: they turn buffers into plain arguments.
#include "edge_softmax.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// The rows of a block; its indices are not needed.
BlockView ViewRows(const Ints& indptr, const Count& num_targets, const Count& num_edges,
                   int64_t edge_capacity) {
  BlockView block;
  block.indptr = indptr.typed_data();
  block.target_capacity = static_cast<int64_t>(indptr.element_count()) - 1;
  block.edge_capacity = edge_capacity;
  block.num_targets = *num_targets.typed_data();
  block.num_edges = *num_edges.typed_data();
  return block;
}

// Whether `edges` has a row for every edge, and `own` one for every target, or none at all.
template <typename Buffer>
bool Match(const BlockView& block, int64_t num_heads, bool has_own, Buffer& edges,
           Buffer& own) {
  return HasShape(edges, block.edge_capacity, num_heads) &&
         HasShape(own, has_own ? block.target_capacity : 0, num_heads);
}

OfEdgesAndOwn<const float> Read(const Matrix& edges, const Matrix& own, bool has_own) {
  return {edges.typed_data(), has_own ? own.typed_data() : nullptr};
}

OfEdgesAndOwn<float> Write(ffi::Result<Matrix>& edges, ffi::Result<Matrix>& own, bool has_own) {
  AdviseHugePages(edges);
  return {edges->typed_data(), has_own ? own->typed_data() : nullptr};
}

// If targets have no logits for self-loops, the targets' matrices have no rows.
ffi::Error EdgeSoftmaxFfi(ffi::ThreadPool pool, Matrix logits, Matrix own, Ints indptr,
                          Count num_targets, Count num_edges, ffi::Result<Matrix> weights,
                          ffi::Result<Matrix> own_weights, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_heads = logits.dimensions()[1];
    const BlockView block =
        ViewRows(indptr, num_targets, num_edges, logits.dimensions()[0]);
    const bool has_own = own.dimensions()[0] > 0;
    if (block.target_capacity < 0 || !Match(block, num_heads, has_own, logits, own) ||
        !Match(block, num_heads, has_own, *weights, *own_weights)) {
      return kShapes;
    }
    if (auto error = CheckRows(block); !error.empty()) return error;
    EdgeSoftmax(PoolExecutor(pool, num_threads), block, num_heads, Read(logits, own, has_own),
                Write(weights, own_weights, has_own));
    return "";
  });
}

ffi::Error EdgeSoftmaxGradFfi(ffi::ThreadPool pool, Matrix weights, Matrix own_weights,
                              Matrix grad, Matrix grad_own, Ints indptr, Count num_targets,
                              Count num_edges, ffi::Result<Matrix> grad_logits,
                              ffi::Result<Matrix> grad_own_logits, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_heads = weights.dimensions()[1];
    const BlockView block =
        ViewRows(indptr, num_targets, num_edges, weights.dimensions()[0]);
    const bool has_own = own_weights.dimensions()[0] > 0;
    if (block.target_capacity < 0 || !Match(block, num_heads, has_own, weights, own_weights) ||
        !Match(block, num_heads, has_own, grad, grad_own) ||
        !Match(block, num_heads, has_own, *grad_logits, *grad_own_logits)) {
      return kShapes;
    }
    if (auto error = CheckRows(block); !error.empty()) return error;
    EdgeSoftmaxGrad(PoolExecutor(pool, num_threads), block, num_heads,
                    Read(weights, own_weights, has_own), Read(grad, grad_own, has_own),
                    Write(grad_logits, grad_own_logits, has_own));
    return "";
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsEdgeSoftmax, jgs::EdgeSoftmaxFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsEdgeSoftmaxGrad, jgs::EdgeSoftmaxGradFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("num_threads"));
