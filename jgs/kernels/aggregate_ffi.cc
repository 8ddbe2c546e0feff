// XLA bindings of aggregate.h: they turn buffers into plain arguments.
#include "aggregate_ffi.h"

namespace jgs {
namespace {

// Whether the number of heads divides the columns; a maximum takes one head.
bool HeadsFit(const BlockView& block, int64_t width, bool max) {
  return block.num_heads == 1 || (!max && block.num_heads > 0 && width % block.num_heads == 0);
}

std::string AggregateFfi(ffi::ThreadPool pool, Matrix x, Floats weight, Ints indptr,
                         Ints indices, Int num_targets, Int num_edges, ffi::Result<Matrix> out,
                         ffi::Result<IntMatrix> argmax, int64_t reduce, int64_t num_threads) {
  const int64_t width = x.dimensions()[1];
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes = HeadsFit(block, width, max) &&
                      HasShape(*out, block.target_capacity, width) &&
                      HasShape(*argmax, max ? block.target_capacity : 0, width);
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (IsLost(block)) {
    std::fill_n(argmax->typed_data(), argmax->element_count(), -1);
    return FillLost(out);
  }
  if (auto error = CheckBlock(block, "x"); !error.empty()) return error;
  AdviseHugePages(out);
  AdviseHugePages(argmax);
  Aggregate(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
            x.typed_data(), width, out->typed_data(), argmax->typed_data());
  return "";
}

std::string AggregateGradFfi(ffi::ThreadPool pool, Matrix grad_out, IntMatrix argmax,
                             Floats weight, Ints indptr, Ints indices, Int num_targets,
                             Int num_edges, ffi::Result<Matrix> grad_x, int64_t reduce,
                             int64_t num_threads) {
  const int64_t width = grad_out.dimensions()[1];
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, grad_x->dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes = HeadsFit(block, width, max) &&
                      HasShape(grad_out, block.target_capacity, width) &&
                      HasShape(*grad_x, block.num_rows, width) &&
                      HasShape(argmax, max ? block.target_capacity : 0, width);
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (auto error = CheckBlock(block, "x"); !error.empty()) return error;
  AdviseHugePages(grad_x);
  AggregateGrad(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
                grad_out.typed_data(), argmax.typed_data(), width, grad_x->typed_data());
  return "";
}

std::string AggregateGradWeightFfi(ffi::ThreadPool pool, Matrix grad_out, IntMatrix argmax,
                                   Matrix x, Floats weight, Ints indptr, Ints indices,
                                   Int num_targets, Int num_edges,
                                   ffi::Result<Floats> grad_weight, int64_t reduce,
                                   int64_t num_threads) {
  const int64_t width = x.dimensions()[1];
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes =
      HeadsFit(block, width, max) && HasShape(grad_out, block.target_capacity, width) &&
      HasShape(argmax, max ? block.target_capacity : 0, width) &&
      Size(*grad_weight) == block.edge_capacity * block.num_heads;
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (auto error = CheckBlock(block, "x"); !error.empty()) return error;
  AggregateGradWeight(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
                      grad_out.typed_data(), argmax.typed_data(), x.typed_data(), width,
                      grad_weight->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsAggregate, AggregateFfi, "reduce", "num_threads");
JGS_HANDLER(JgsAggregateGrad, AggregateGradFfi, "reduce", "num_threads");
JGS_HANDLER(JgsAggregateGradWeight, AggregateGradWeightFfi, "reduce", "num_threads");

}  // namespace jgs
