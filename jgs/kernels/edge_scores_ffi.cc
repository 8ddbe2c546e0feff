// XLA bindings of edge_scores.h: they turn buffers into plain arguments.
#include "edge_scores.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

AdditiveAttention ViewAttention(const Matrix& attention, float negative_slope) {
  const int64_t heads = attention.dimensions()[0];
  return {attention.typed_data(), heads * attention.dimensions()[1], heads, negative_slope};
}

std::string EdgeScoresFfi(ffi::ThreadPool pool, Matrix x, Matrix y, Matrix attention,
                          Ints indptr, Ints indices, Int num_targets, Int num_edges,
                          ffi::Result<Matrix> scores, float negative_slope,
                          int64_t num_threads) {
  const AdditiveAttention additive = ViewAttention(attention, negative_slope);
  const int64_t width = additive.num_features;
  const BlockView block = View(indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool shapes = HasShape(x, block.num_rows, width) &&
                      HasShape(y, block.target_capacity, width) &&
                      HasShape(*scores, block.edge_capacity, additive.num_heads);
  if (block.target_capacity < 0 || !shapes) return kShapes;
  if (auto error = CheckBlock(block, "x"); !error.empty()) return error;
  AdviseHugePages(scores);
  EdgeScores(PoolExecutor(pool, num_threads), block, additive, x.typed_data(),
             y.typed_data(), scores->typed_data());
  return "";
}

std::string EdgeScoresGradFfi(ffi::ThreadPool pool, Floats grad, Matrix x, Matrix y,
                              Matrix attention, Ints indptr, Ints indices, Int num_targets,
                              Int num_edges, ffi::Result<Matrix> grad_x,
                              ffi::Result<Matrix> grad_y, ffi::Result<Matrix> grad_attention,
                              float negative_slope, int64_t num_threads) {
  const AdditiveAttention additive = ViewAttention(attention, negative_slope);
  const int64_t width = additive.num_features;
  const BlockView block =
      View(grad, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool shapes = HasShape(x, block.num_rows, width) &&
                      HasShape(y, block.target_capacity, width) &&
                      HasShape(*grad_x, block.num_rows, width) &&
                      HasShape(*grad_y, block.target_capacity, width) &&
                      HasShape(*grad_attention, block.target_capacity, width) &&
                      block.weight != nullptr && block.num_heads == additive.num_heads;
  if (auto error = CheckShapes(block, grad, shapes); !error.empty()) return error;
  if (auto error = CheckBlock(block, "x"); !error.empty()) return error;
  AdviseHugePages(grad_x);
  AdviseHugePages(grad_y);
  AdviseHugePages(grad_attention);
  EdgeScoresGrad(PoolExecutor(pool, num_threads), block, additive, x.typed_data(),
                 y.typed_data(), grad_x->typed_data(), grad_y->typed_data(),
                 grad_attention->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsEdgeScores, EdgeScoresFfi, "negative_slope", "num_threads");
JGS_HANDLER(JgsEdgeScoresGrad, EdgeScoresGradFfi, "negative_slope", "num_threads");

}  // namespace jgs
