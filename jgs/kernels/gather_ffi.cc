// XLA bindings of gather.h: they turn buffers into plain arguments.
#include "gather.h"

#include "aggregate_ffi.h"

namespace jgs {
namespace {

// The matrix as a table of `rows`. It must have their columns, and the kind of the tables before
// it: float32, float16, or int8 where there is a scale. False if it has not.
bool AddTable(const ffi::AnyBuffer& matrix, StoredRows& rows) {
  const auto type = matrix.element_type();
  const bool code = type == ffi::S8 && rows.scale != nullptr;
  const bool known = code || ((type == ffi::F32 || type == ffi::F16) && rows.scale == nullptr);
  const auto shape = matrix.dimensions();
  if (!known || shape.size() != 2 || shape[1] != rows.num_features) return false;
  const Element element =
      code ? Element::kCode : type == ffi::F16 ? Element::kHalf : Element::kFloat;
  if (!rows.tables.empty() && rows.element != element) return false;
  rows.element = element;
  rows.tables.push_back({matrix.untyped_data(), shape[0]});
  return true;
}

bool HasWidth(const Floats& scale, const Floats& offset, ffi::Result<Matrix>& out) {
  const int64_t width = out->dimensions()[1];
  return Size(scale) == width && Size(offset) == width;
}

// Codes of these scales and offsets, without tables.
StoredRows ViewCodes(const Floats& scale, const Floats& offset) {
  StoredRows rows;
  rows.scale = scale.typed_data();
  rows.offset = offset.typed_data();
  return rows;
}

bool AddTables(const ffi::RemainingArgs& matrices, StoredRows& rows) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    auto matrix = matrices.get<ffi::AnyBuffer>(i);
    if (!matrix || !AddTable(*matrix, rows)) return false;
  }
  return true;
}

std::string GatherRows(ffi::ThreadPool& pool, const Ints& ids, StoredRows& rows,
                       const ffi::RemainingArgs& matrices, ffi::Result<Matrix>& out,
                       int64_t num_threads) {
  const int64_t num_ids = Size(ids);
  rows.num_features = out->dimensions()[1];
  if (!AddTables(matrices, rows) || !HasShape(*out, num_ids, rows.num_features)) return kShapes;
  AdviseHugePages(out);
  Gather(PoolExecutor(pool, num_threads), rows, ids.typed_data(), num_ids, out->typed_data());
  return "";
}

std::string GatherFfi(ffi::ThreadPool pool, Ints ids, ffi::RemainingArgs matrices,
                      ffi::Result<Matrix> out, int64_t num_threads) {
  StoredRows rows;
  return GatherRows(pool, ids, rows, matrices, out, num_threads);
}

std::string GatherCodesFfi(ffi::ThreadPool pool, Ints ids, Floats scale, Floats offset,
                           ffi::RemainingArgs matrices, ffi::Result<Matrix> out,
                           int64_t num_threads) {
  if (!HasWidth(scale, offset, out)) return kShapes;
  StoredRows rows = ViewCodes(scale, offset);
  return GatherRows(pool, ids, rows, matrices, out, num_threads);
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

// The block's sums or maxima of rows of the matrices. Without places its indices are node ids.
std::string AggregateRows(ffi::ThreadPool& pool, StoredRows rows, const Ints* place,
                          BlockView block, const Int* num_sources, const Floats& weight,
                          bool known, ffi::Result<Matrix>& out, int64_t reduce,
                          int64_t num_threads) {
  block.num_rows = place != nullptr ? Size(*place) : known ? rows.tables[0].num_rows : 0;
  const bool shapes = known && block.num_heads == 1 &&
                      HasShape(*out, block.target_capacity, rows.num_features);
  if (auto error = CheckShapes(block, weight, shapes); !error.empty()) return error;
  if (IsLost(block)) return FillLost(out);
  const std::string error =
      place != nullptr ? CheckBlock(block, "place") : CheckNodeBlock(block, *num_sources);
  if (!error.empty()) return error;
  AdviseHugePages(out);
  GatherAggregate(PoolExecutor(pool, num_threads), rows,
                  place != nullptr ? place->typed_data() : nullptr, block,
                  static_cast<Reduce>(reduce), out->typed_data());
  return "";
}

std::string OfNodes(ffi::ThreadPool& pool, StoredRows rows, const ffi::AnyBuffer& features,
                    const Floats& weight, const Ints& indptr, const Ints& indices,
                    const Int& num_targets, const Int& num_sources, const Int& num_edges,
                    ffi::Result<Matrix>& out, int64_t reduce, int64_t num_threads) {
  rows.num_features = out->dimensions()[1];
  const bool known = AddTable(features, rows);
  const BlockView block = View(weight, indptr, indices, num_targets, num_edges, 0);
  return AggregateRows(pool, rows, nullptr, block, &num_sources, weight, known, out, reduce,
                       num_threads);
}

std::string OfPlaces(ffi::ThreadPool& pool, StoredRows rows, const Ints& place,
                     const Floats& weight, const Ints& indptr, const Ints& indices,
                     const Int& num_targets, const Int& num_edges,
                     const ffi::RemainingArgs& matrices, ffi::Result<Matrix>& out,
                     int64_t reduce, int64_t num_threads) {
  rows.num_features = out->dimensions()[1];
  const bool known = AddTables(matrices, rows);
  const BlockView block = View(weight, indptr, indices, num_targets, num_edges, 0);
  return AggregateRows(pool, rows, &place, block, nullptr, weight, known, out, reduce,
                       num_threads);
}

std::string GatherAggregateFfi(ffi::ThreadPool pool, ffi::AnyBuffer features, Floats weight,
                               Ints indptr, Ints indices, Int num_targets, Int num_sources,
                               Int num_edges, ffi::Result<Matrix> out, int64_t reduce,
                               int64_t num_threads) {
  return OfNodes(pool, {}, features, weight, indptr, indices, num_targets, num_sources,
                 num_edges, out, reduce, num_threads);
}

std::string GatherAggregateCodesFfi(ffi::ThreadPool pool, ffi::AnyBuffer features, Floats scale,
                                    Floats offset, Floats weight, Ints indptr, Ints indices,
                                    Int num_targets, Int num_sources, Int num_edges,
                                    ffi::Result<Matrix> out, int64_t reduce,
                                    int64_t num_threads) {
  if (!HasWidth(scale, offset, out)) return kShapes;
  return OfNodes(pool, ViewCodes(scale, offset), features, weight, indptr, indices, num_targets,
                 num_sources, num_edges, out, reduce, num_threads);
}

std::string GatherAggregateTablesFfi(ffi::ThreadPool pool, Ints place, Floats weight,
                                     Ints indptr, Ints indices, Int num_targets, Int num_edges,
                                     ffi::RemainingArgs matrices, ffi::Result<Matrix> out,
                                     int64_t reduce, int64_t num_threads) {
  return OfPlaces(pool, {}, place, weight, indptr, indices, num_targets, num_edges, matrices,
                  out, reduce, num_threads);
}

std::string GatherAggregateCodeTablesFfi(ffi::ThreadPool pool, Ints place, Floats scale,
                                         Floats offset, Floats weight, Ints indptr,
                                         Ints indices, Int num_targets, Int num_edges,
                                         ffi::RemainingArgs matrices, ffi::Result<Matrix> out,
                                         int64_t reduce, int64_t num_threads) {
  if (!HasWidth(scale, offset, out)) return kShapes;
  return OfPlaces(pool, ViewCodes(scale, offset), place, weight, indptr, indices, num_targets,
                  num_edges, matrices, out, reduce, num_threads);
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
JGS_HANDLER(JgsGatherCodes, GatherCodesFfi, "num_threads");
JGS_HANDLER(JgsGatherSparse, GatherSparseFfi, "num_threads");
JGS_HANDLER(JgsGatherAggregate, GatherAggregateFfi, "reduce", "num_threads");
JGS_HANDLER(JgsGatherAggregateCodes, GatherAggregateCodesFfi, "reduce", "num_threads");
JGS_HANDLER(JgsGatherAggregateTables, GatherAggregateTablesFfi, "reduce", "num_threads");
JGS_HANDLER(JgsGatherAggregateCodeTables, GatherAggregateCodeTablesFfi, "reduce",
            "num_threads");
JGS_HANDLER(JgsGatherAggregateSparse, GatherAggregateSparseFfi, "reduce", "num_threads");

}  // namespace jgs
