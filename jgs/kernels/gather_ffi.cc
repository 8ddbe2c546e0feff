// XLA bindings of gather.h: they turn buffers into plain arguments.
#include "gather.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// The tables, which must have `width` columns each; false if one has not.
bool ViewTables(const ffi::RemainingArgs& matrices, int64_t width, std::vector<Table>& tables) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    auto matrix = matrices.get<Matrix>(i);
    if (!matrix || matrix->dimensions()[1] != width) return false;
    tables.push_back({matrix->typed_data(), matrix->dimensions()[0]});
  }
  return true;
}

ffi::Error GatherFfi(ffi::ThreadPool pool, Ints ids, ffi::RemainingArgs matrices,
                     ffi::Result<Matrix> out, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_ids = static_cast<int64_t>(ids.element_count());
    const int64_t width = out->dimensions()[1];
    std::vector<Table> tables;
    if (!ViewTables(matrices, width, tables) || !HasShape(*out, num_ids, width)) {
      return kShapes;
    }
    AdviseHugePages(out);
    Gather(PoolExecutor(pool, num_threads), tables, width, ids.typed_data(), num_ids,
           out->typed_data());
    return "";
  });
}

SparseRows ViewSparse(const Longs& indptr, const Ints& indices, const Floats& values,
                      int64_t num_features) {
  SparseRows rows;
  rows.indptr = indptr.typed_data();
  rows.indices = indices.typed_data();
  rows.values = values.typed_data();
  rows.num_rows = static_cast<int64_t>(indptr.element_count()) - 1;
  rows.num_entries =
      static_cast<int64_t>(std::min(indices.element_count(), values.element_count()));
  rows.num_features = num_features;
  return rows;
}

ffi::Error GatherSparseFfi(ffi::ThreadPool pool, Longs indptr, Ints indices, Floats values,
                           Ints ids, ffi::Result<Matrix> out, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    AdviseHugePages(out);
    const SparseRows features = ViewSparse(indptr, indices, values, out->dimensions()[1]);
    return GatherSparse(PoolExecutor(pool, num_threads), features, ids.typed_data(),
                        std::min<int64_t>(ids.element_count(), out->dimensions()[0]),
                        out->typed_data());
  });
}

// Checks a block whose indices are node ids. In an overflowed batch, without edges, anything
// goes.
std::string CheckNodeBlock(const BlockView& block, const Count& num_sources) {
  const int64_t sources = *num_sources.typed_data();
  if (block.num_edges > 0 && sources != block.num_rows) {
    return "block.num_sources must be the number of rows of features = " +
           std::to_string(block.num_rows) + ", and block.indices node ids; got " +
           std::to_string(sources) +
           ". Sample with relabel_inputs=False, or call gather and aggregate.";
  }
  return CheckBlock(block, "features");
}

ffi::Error GatherAggregateFfi(ffi::ThreadPool pool, Matrix features, Floats weight, Ints indptr,
                              Ints indices, Count num_targets, Count num_sources,
                              Count num_edges, ffi::Result<Matrix> out, int64_t reduce,
                              int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t width = features.dimensions()[1];
    const BlockView block =
        View(weight, indptr, indices, num_targets, num_edges, features.dimensions()[0]);
    const bool shapes =
        block.num_heads == 1 && HasShape(*out, block.target_capacity, width);
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckNodeBlock(block, num_sources); !error.empty()) return error;
    AdviseHugePages(out);
    Aggregate(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
              features.typed_data(), width, out->typed_data(), nullptr);
    return "";
  });
}

ffi::Error GatherAggregateTablesFfi(ffi::ThreadPool pool, Ints place, Floats weight, Ints indptr,
                                    Ints indices, Count num_targets, Count num_edges,
                                    ffi::RemainingArgs matrices, ffi::Result<Matrix> out,
                                    int64_t reduce, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t width = out->dimensions()[1];
    const BlockView block = View(weight, indptr, indices, num_targets, num_edges,
                                 static_cast<int64_t>(place.element_count()));
    std::vector<Table> tables;
    const bool shapes = block.num_heads == 1 && ViewTables(matrices, width, tables) &&
                        HasShape(*out, block.target_capacity, width);
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckBlock(block, "place"); !error.empty()) return error;
    AdviseHugePages(out);
    GatherAggregate(PoolExecutor(pool, num_threads), tables, place.typed_data(), block,
                    static_cast<Reduce>(reduce), width, out->typed_data());
    return "";
  });
}

ffi::Error GatherAggregateSparseFfi(ffi::ThreadPool pool, Longs row_indptr, Ints columns,
                                    Floats values, Floats weight, Ints indptr, Ints indices,
                                    Count num_targets, Count num_sources, Count num_edges,
                                    ffi::Result<Matrix> out, int64_t reduce,
                                    int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const SparseRows features = ViewSparse(row_indptr, columns, values, out->dimensions()[1]);
    const BlockView block =
        View(weight, indptr, indices, num_targets, num_edges, features.num_rows);
    const bool shapes =
        block.num_heads == 1 && out->dimensions()[0] == block.target_capacity;
    if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
    if (auto error = CheckNodeBlock(block, num_sources); !error.empty()) return error;
    AdviseHugePages(out);
    return GatherAggregateSparse(PoolExecutor(pool, num_threads), features, block,
                                 static_cast<Reduce>(reduce), out->typed_data());
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsGather, jgs::GatherFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Ints>()
                                  .RemainingArgs()
                                  .Ret<jgs::Matrix>()
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsGatherAggregate, jgs::GatherAggregateFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Matrix>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsGatherAggregateTables, jgs::GatherAggregateTablesFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .RemainingArgs()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsGatherAggregateSparse, jgs::GatherAggregateSparseFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Longs>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Floats>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Arg<jgs::Count>()
                                  .Ret<jgs::Matrix>()
                                  .Attr<int64_t>("reduce")
                                  .Attr<int64_t>("num_threads"));
