// XLA bindings of gather.h: they turn buffers into plain arguments.
#include "gather.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

// The tables, which must have `width` columns each; false if one has not.
bool ViewTables(const ffi::RemainingArgs& matrices, int64_t width, std::vector<Table>& tables) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    auto matrix = matrices.get<Matrix>(i);
    if (!matrix || matrix->dimensions()[1] != width) return false;
    tables.push_back({matrix->typed_data(), matrix->dimensions()[0]});
  }
  return true;
}

std::string GatherFfi(ffi::ThreadPool pool, Ints ids, ffi::RemainingArgs matrices,
                      ffi::Result<Matrix> out, int64_t num_threads) {
  const int64_t num_ids = Size(ids), width = out->dimensions()[1];
  std::vector<Table> tables;
  if (!ViewTables(matrices, width, tables) || !HasShape(*out, num_ids, width)) {
    return kShapes;
  }
  AdviseHugePages(out);
  Gather(PoolExecutor(pool, num_threads), tables, width, ids.typed_data(), num_ids,
         out->typed_data());
  return "";
}

SparseRows ViewSparse(const Longs& indptr, const Ints& indices, const Floats& values,
                      int64_t num_features) {
  SparseRows rows;
  rows.indptr = indptr.typed_data();
  rows.indices = indices.typed_data();
  rows.values = values.typed_data();
  rows.num_rows = Size(indptr) - 1;
  rows.num_entries = std::min(Size(indices), Size(values));
  rows.num_features = num_features;
  return rows;
}

std::string GatherSparseFfi(ffi::ThreadPool pool, Longs indptr, Ints indices, Floats values,
                            Ints ids, ffi::Result<Matrix> out, int64_t num_threads) {
  AdviseHugePages(out);
  const SparseRows features = ViewSparse(indptr, indices, values, out->dimensions()[1]);
  return GatherSparse(PoolExecutor(pool, num_threads), features, ids.typed_data(),
                      std::min<int64_t>(ids.element_count(), out->dimensions()[0]),
                      out->typed_data());
}

// Checks a block whose indices are node ids. In an overflowed batch, without edges, anything
// goes.
std::string CheckNodeBlock(const BlockView& block, const Int& num_sources) {
  const int64_t sources = *num_sources.typed_data();
  if (block.num_edges > 0 && sources != block.num_rows) {
    return "block.num_sources must be the number of rows of features = " +
           std::to_string(block.num_rows) + ", and block.indices node ids; got " +
           std::to_string(sources) +
           ". Sample with relabel_inputs=False, or call gather and aggregate.";
  }
  return CheckBlock(block, "features");
}

std::string GatherAggregateFfi(ffi::ThreadPool pool, Matrix features, Floats weight,
                               Ints indptr, Ints indices, Int num_targets, Int num_sources,
                               Int num_edges, ffi::Result<Matrix> out, int64_t reduce,
                               int64_t num_threads) {
  const int64_t width = features.dimensions()[1];
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, features.dimensions()[0]);
  const bool shapes = block.num_heads == 1 && HasShape(*out, block.target_capacity, width);
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (IsLost(block)) return FillLost(out);
  if (auto error = CheckNodeBlock(block, num_sources); !error.empty()) return error;
  AdviseHugePages(out);
  Aggregate(PoolExecutor(pool, num_threads), block, static_cast<Reduce>(reduce),
            features.typed_data(), width, out->typed_data(), nullptr);
  return "";
}

std::string GatherAggregateTablesFfi(ffi::ThreadPool pool, Ints place, Floats weight,
                                     Ints indptr, Ints indices, Int num_targets, Int num_edges,
                                     ffi::RemainingArgs matrices, ffi::Result<Matrix> out,
                                     int64_t reduce, int64_t num_threads) {
  const int64_t width = out->dimensions()[1];
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, Size(place));
  std::vector<Table> tables;
  const bool shapes = block.num_heads == 1 && ViewTables(matrices, width, tables) &&
                      HasShape(*out, block.target_capacity, width);
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (IsLost(block)) return FillLost(out);
  if (auto error = CheckBlock(block, "place"); !error.empty()) return error;
  AdviseHugePages(out);
  GatherAggregate(PoolExecutor(pool, num_threads), tables, place.typed_data(), block,
                  static_cast<Reduce>(reduce), width, out->typed_data());
  return "";
}

std::string GatherAggregateSparseFfi(ffi::ThreadPool pool, Longs row_indptr, Ints columns,
                                     Floats values, Floats weight, Ints indptr, Ints indices,
                                     Int num_targets, Int num_sources, Int num_edges,
                                     ffi::Result<Matrix> out, int64_t reduce,
                                     int64_t num_threads) {
  const SparseRows features = ViewSparse(row_indptr, columns, values, out->dimensions()[1]);
  const BlockView block =
      View(weight, indptr, indices, num_targets, num_edges, features.num_rows);
  const bool shapes = block.num_heads == 1 && out->dimensions()[0] == block.target_capacity;
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (IsLost(block)) return FillLost(out);
  if (auto error = CheckNodeBlock(block, num_sources); !error.empty()) return error;
  AdviseHugePages(out);
  return GatherAggregateSparse(PoolExecutor(pool, num_threads), features, block,
                               static_cast<Reduce>(reduce), out->typed_data());
}

}  // namespace

JGS_HANDLER(JgsGather, GatherFfi, "num_threads");
JGS_HANDLER(JgsGatherSparse, GatherSparseFfi, "num_threads");
JGS_HANDLER(JgsGatherAggregate, GatherAggregateFfi, "reduce", "num_threads");
JGS_HANDLER(JgsGatherAggregateTables, GatherAggregateTablesFfi, "reduce", "num_threads");
JGS_HANDLER(JgsGatherAggregateSparse, GatherAggregateSparseFfi, "reduce", "num_threads");

}  // namespace jgs
