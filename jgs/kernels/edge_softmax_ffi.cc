// XLA bindings of edge_softmax.h: they turn buffers into plain arguments.
#include "edge_softmax.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

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
std::string EdgeSoftmaxFfi(ffi::ThreadPool pool, Matrix logits, Matrix own, Ints indptr,
                           Int num_targets, Int num_edges, ffi::Result<Matrix> weights,
                           ffi::Result<Matrix> own_weights, int64_t num_threads) {
  const int64_t num_heads = logits.dimensions()[1];
  const BlockView block = ViewRows(indptr, num_targets, num_edges, logits.dimensions()[0]);
  const bool has_own = own.dimensions()[0] > 0;
  if (block.target_capacity < 0 || !Match(block, num_heads, has_own, logits, own) ||
      !Match(block, num_heads, has_own, *weights, *own_weights)) {
    return kShapes;
  }
  if (auto error = CheckRows(block); !error.empty()) return error;
  EdgeSoftmax(PoolExecutor(pool, num_threads), block, num_heads, Read(logits, own, has_own),
              Write(weights, own_weights, has_own));
  return "";
}

std::string EdgeSoftmaxGradFfi(ffi::ThreadPool pool, Matrix weights, Matrix own_weights,
                               Matrix grad, Matrix grad_own, Ints indptr, Int num_targets,
                               Int num_edges, ffi::Result<Matrix> grad_logits,
                               ffi::Result<Matrix> grad_own_logits, int64_t num_threads) {
  const int64_t num_heads = weights.dimensions()[1];
  const BlockView block = ViewRows(indptr, num_targets, num_edges, weights.dimensions()[0]);
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
}

}  // namespace

JGS_HANDLER(JgsEdgeSoftmax, EdgeSoftmaxFfi, "num_threads");
JGS_HANDLER(JgsEdgeSoftmaxGrad, EdgeSoftmaxGradFfi, "num_threads");

}  // namespace jgs
