// XLA bindings of aggregate.h: buffers to plain arguments, and nothing else.
#include "aggregate.h"
#include "ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

using Matrix = ffi::Buffer<ffi::F32, 2>;
using EdgeMatrix = ffi::Buffer<ffi::S32, 2>;  // edge positions
using Ints = ffi::Buffer<ffi::S32, 1>;
using Longs = ffi::Buffer<ffi::S64, 1>;
using Floats = ffi::Buffer<ffi::F32, 1>;
using Count = ffi::BufferR0<ffi::S32>;

// A block without weights has a `weight` of length 0.
BlockView View(const Floats& weight, const Ints& indptr, const Ints& indices,
               const Count& num_targets, const Count& num_edges, int64_t num_rows) {
  BlockView block;
  block.indptr = indptr.typed_data();
  block.indices = indices.typed_data();
  block.weight = weight.element_count() > 0 ? weight.typed_data() : nullptr;
  block.target_capacity = static_cast<int64_t>(indptr.element_count()) - 1;
  block.edge_capacity = static_cast<int64_t>(indices.element_count());
  block.num_rows = num_rows;
  block.num_targets = *num_targets.typed_data();
  block.num_edges = *num_edges.typed_data();
  return block;
}

template <typename Buffer>
bool HasShape(Buffer& buffer, int64_t rows, int64_t columns) {
  return buffer.dimensions()[0] == rows && buffer.dimensions()[1] == columns;
}

// Only a mistake in jgs/ops.py can break this.
std::string CheckShapes(const BlockView& block, const Floats& weight, bool others) {
  const int64_t weights = static_cast<int64_t>(weight.element_count());
  const bool good = others && block.target_capacity >= 0 &&
                    (weights == 0 || weights == block.edge_capacity);
  return good ? "" : "jgs: the buffers of an aggregate kernel must have matching shapes";
}

ffi::Error AggregateFfi(ffi::ThreadPool pool, Matrix x, Floats weight, Ints indptr,
                        Ints indices, Count num_targets, Count num_edges,
                        ffi::Result<Matrix> out, ffi::Result<EdgeMatrix> argmax, int64_t reduce,
                        int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t width = x.dimensions()[1];
    const BlockView block =
        View(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
    const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
    const bool shapes = HasShape(*out, block.target_capacity, width) &&
                        HasShape(*argmax, max ? block.target_capacity : 0, width);
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckBlock(block); !error.empty()) return error;
    Aggregate(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
              x.typed_data(), width, out->typed_data(), argmax->typed_data());
    return "";
  });
}

ffi::Error AggregateGradFfi(ffi::ThreadPool pool, Matrix grad_out, EdgeMatrix argmax,
                            Floats weight, Ints indptr, Ints indices, Count num_targets,
                            Count num_edges, ffi::Result<Matrix> grad_x, int64_t reduce,
                            int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t width = grad_out.dimensions()[1];
    const BlockView block =
        View(weight, indptr, indices, num_targets, num_edges, grad_x->dimensions()[0]);
    const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
    const bool shapes = HasShape(grad_out, block.target_capacity, width) &&
                        HasShape(*grad_x, block.num_rows, width) &&
                        HasShape(argmax, max ? block.target_capacity : 0, width);
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckBlock(block); !error.empty()) return error;
    AggregateGrad(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
                  grad_out.typed_data(), argmax.typed_data(), width, grad_x->typed_data());
    return "";
  });
}

ffi::Error AggregateGradWeightFfi(ffi::ThreadPool pool, Matrix grad_out, EdgeMatrix argmax,
                                  Matrix x, Floats weight, Ints indptr, Ints indices,
                                  Count num_targets, Count num_edges,
                                  ffi::Result<Floats> grad_weight, int64_t reduce,
                                  int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t width = x.dimensions()[1];
    const BlockView block =
        View(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
    const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
    const bool shapes =
        HasShape(grad_out, block.target_capacity, width) &&
        HasShape(argmax, max ? block.target_capacity : 0, width) &&
        static_cast<int64_t>(grad_weight->element_count()) == block.edge_capacity;
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckBlock(block); !error.empty()) return error;
    AggregateGradWeight(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
                        grad_out.typed_data(), argmax.typed_data(), x.typed_data(), width,
                        grad_weight->typed_data());
    return "";
  });
}

ffi::Error GatherSparseFfi(ffi::ThreadPool pool, Longs indptr, Ints indices, Floats values,
                           Ints ids, ffi::Result<Matrix> out, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    SparseRows features;
    features.indptr = indptr.typed_data();
    features.indices = indices.typed_data();
    features.values = values.typed_data();
    features.num_rows = static_cast<int64_t>(indptr.element_count()) - 1;
    features.num_entries =
        static_cast<int64_t>(std::min(indices.element_count(), values.element_count()));
    features.num_features = out->dimensions()[1];
    return GatherSparse(PoolExecutor(pool, num_threads), features, ids.typed_data(),
                        std::min<int64_t>(ids.element_count(), out->dimensions()[0]),
                        out->typed_data());
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsAggregate, jgs::AggregateFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Ret<jgs::EdgeMatrix>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsAggregateGrad, jgs::AggregateGradFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::EdgeMatrix>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsAggregateGradWeight, jgs::AggregateGradWeightFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::EdgeMatrix>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Floats>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsGatherSparse, jgs::GatherSparseFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Longs>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("num_threads"));
