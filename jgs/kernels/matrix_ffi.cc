// The XLA bindings of collective.h, extract.h, edge_sums.h and edge_inner.h. Their Python side is
// jgs/sampling/matrix/: edges.py, select.py and sums.py.
#include <algorithm>
#include <string>

#include "collective.h"
#include "edge_inner.h"
#include "edge_sums.h"
#include "extract.h"
#include "ffi.h"
#include "sample_call.h"

namespace jgs {
namespace {

// What leaves the edges `excluded` out of slices; sets `error` if they are invalid.
Limits Without(const Longs& excluded, int64_t num_edges, std::string& error) {
  const Seeds seeds{nullptr, 0, nullptr, excluded.typed_data(), Size(excluded)};
  return LimitsOf(seeds, nullptr, num_edges, nullptr, -1, error);
}

// The columns of a graph with these offsets, which are at `data`.
template <typename Offset, typename Indptr>
Slice SliceOf(const Offset* data, const Indptr& indptr, const Ints& columns,
              const Limits& limits) {
  return {data, data + ToEnds(indptr), NumNodes(indptr), columns.typed_data(), Size(columns),
          limits};
}

std::string Ranks(ffi::ThreadPool pool, Words words, Ints nodes, Floats weight, Ints logarithms,
                  ffi::Result<Ints> slot, ffi::Result<Double> least, int64_t num_threads) {
  if (Size(words) != 2 || Size(nodes) != Size(weight) || Size(logarithms) != 1026) {
    return kShapes;
  }
  const uint32_t* word = words.typed_data();
  const Candidates candidates{{{word[0], word[1]}}, nodes.typed_data(), weight.typed_data(),
                              Size(nodes), logarithms.typed_data()};
  *least->typed_data() = SmallestRanks(candidates, Size(*slot), slot->typed_data(),
                                       PoolExecutor(pool, num_threads));
  return "";
}

std::string ExpandColumns(ffi::ThreadPool pool, ffi::AnyBuffer indptr, Ints columns,
                          Longs excluded, ffi::Result<Ints> offsets, ffi::Result<Ints> column,
                          ffi::Result<Longs> at, ffi::Result<Long> needed,
                          int64_t num_threads) {
  const int64_t num_columns = Size(columns), num_all = NumNodes(indptr);
  if (num_all < 0 || Size(*offsets) != num_columns + 1 || Size(*column) != Size(*at)) {
    return kShapes;
  }
  const bool wide = indptr.element_type() == ffi::S64;
  if (!wide && indptr.element_type() != ffi::S32) return kShapes;
  const int64_t num_edges = wide ? indptr.typed_data<int64_t>()[num_all]
                                 : indptr.typed_data<int32_t>()[num_all];
  std::string error;
  const Limits limits = Without(excluded, num_edges, error);
  if (!error.empty()) return error;
  const Slice slice =
      wide ? SliceOf(indptr.typed_data<int64_t>(), indptr, columns, limits)
           : SliceOf(indptr.typed_data<int32_t>(), indptr, columns, limits);
  AdviseHugePages(column);
  AdviseHugePages(at);
  *needed->typed_data() = slice.num_edges();
  Expand(slice, {Size(*at), offsets->typed_data(), column->typed_data(), at->typed_data()},
         PoolExecutor(pool, num_threads));
  return "";
}

std::string Extract(ffi::ThreadPool pool, AnyLongs indptr, Ints indices, Ints columns,
                    Longs excluded, Ints rows, ffi::Result<Ints> offsets,
                    ffi::Result<Ints> column, ffi::Result<Ints> row, ffi::Result<Longs> edge_id,
                    ffi::Result<Long> looked, ffi::Result<Long> selected, int64_t looked_room,
                    int64_t num_threads) {
  const int64_t num_columns = Size(columns), num_nodes = NumNodes(indptr);
  if (num_nodes < 0 || Size(*offsets) != num_columns + 1 || Size(*column) != Size(*row) ||
      Size(*row) != Size(*edge_id)) {
    return kShapes;
  }
  std::string error;
  const Limits limits = Without(excluded, Size(indices), error);
  if (!error.empty()) return error;
  const Slice slice = SliceOf(indptr.typed_data(), indptr, columns, limits);
  AdviseHugePages(column);
  AdviseHugePages(row);
  AdviseHugePages(edge_id);
  Extracted result{looked_room,
                   Size(*row),
                   Size(rows),
                   Size(indices),
                   offsets->typed_data(),
                   column->typed_data(),
                   row->typed_data(),
                   edge_id->typed_data(),
                   0};
  ExtractRows(slice, indices.typed_data(), rows.typed_data(), num_nodes, result,
              PoolExecutor(pool, num_threads));
  *looked->typed_data() = slice.num_edges();
  *selected->typed_data() = result.selected;
  return "";
}

std::string RearrangeEdges(ffi::ThreadPool pool, Ints indptr, Ints row, Longs edge_id,
                           Ints rows, Ints slots, ffi::Result<Ints> offsets,
                           ffi::Result<Ints> at, ffi::Result<Ints> node, ffi::Result<Longs> ids,
                           ffi::Result<Long> needed, bool mapped, int64_t num_nodes,
                           int64_t num_edges, int64_t num_threads) {
  const int64_t room = Size(row), num_all = Size(indptr) - 1;
  if (num_all < 0 || Size(edge_id) != room || Size(*offsets) != Size(slots) + 1 ||
      Size(*at) != room || Size(*node) != room || Size(*ids) != room) {
    return kShapes;
  }
  const Slice slice = SliceOf(indptr.typed_data(), indptr, slots, {});
  AdviseHugePages(ids);
  *needed->typed_data() = slice.num_edges();
  Rearrange(slice, row.typed_data(), edge_id.typed_data(),
            mapped ? rows.typed_data() : nullptr, Size(rows),
            {room, static_cast<int32_t>(num_nodes), num_edges, offsets->typed_data(),
             at->typed_data(), node->typed_data(), ids->typed_data()},
            PoolExecutor(pool, num_threads));
  return "";
}

std::string FindPlaces(ffi::ThreadPool pool, Ints nodes, Ints ids, ffi::Result<Ints> place,
                       int64_t num_nodes, int64_t num_threads) {
  if (Size(ids) != Size(*place)) return kShapes;
  Places(nodes.typed_data(), Size(nodes), ids.typed_data(), Size(ids), num_nodes,
         place->typed_data(), PoolExecutor(pool, num_threads));
  return "";
}

std::string DistinctNodes(Ints nodes, ffi::Result<Ints> distinct, int64_t padding) {
  Distinct(nodes.typed_data(), Size(nodes), Size(*distinct), static_cast<int32_t>(padding),
           distinct->typed_data());
  return "";
}

std::string Sum(ffi::ThreadPool pool, ffi::AnyBuffer values, Ints slot,
                ffi::Result<ffi::AnyBuffer> sums, int64_t num_threads) {
  const auto shape = values.dimensions(), out = sums->dimensions();
  const bool good = values.element_type() == ffi::F32 && sums->element_type() == ffi::F32 &&
                    shape.size() >= 1 && out.size() == shape.size() && shape[0] == Size(slot);
  if (!good) return kShapes;
  int64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  if (Size(*sums) != out[0] * width) return kShapes;
  ExactSums(values.typed_data<float>(), slot.typed_data(), Size(slot), width, out[0],
            sums->typed_data<float>(), PoolExecutor(pool, num_threads));
  return "";
}

// `steps` has for each step the operation, the kind and whether it is reflected.
std::string SumChain(ffi::ThreadPool pool, AnyLongs indptr, Ints indices, Ints columns,
                     Longs excluded, Floats weight, ffi::RemainingArgs vectors,
                     ffi::Result<Floats> sums, ffi::Result<Long> needed,
                     ffi::Span<const int64_t> steps, ffi::Span<const float> numbers,
                     int64_t room, int64_t axis, int64_t num_threads) {
  const int64_t num_nodes = NumNodes(indptr), num_columns = Size(columns);
  const bool weighted = Size(weight) > 0;
  if (num_nodes < 0 || (weighted && Size(weight) != Size(indices)) ||
      Size(*sums) != (axis == 0 ? num_columns : num_nodes) ||
      steps.size() != 3 * numbers.size()) {
    return kShapes;
  }
  std::string error;
  const Limits limits = Without(excluded, Size(indices), error);
  if (!error.empty()) return error;
  const Slice slice = SliceOf(indptr.typed_data(), indptr, columns, limits);
  *needed->typed_data() = slice.num_edges();
  if (slice.num_edges() > room) {
    std::fill_n(sums->typed_data(), Size(*sums), 0.0f);
    return "";
  }
  EdgeChain chain{slice, indices.typed_data(), weighted ? weight.typed_data() : nullptr, {}};
  size_t next = 0;
  for (size_t s = 0; s < numbers.size(); ++s) {
    const auto kind = static_cast<EdgeStep::Kind>(steps.begin()[3 * s + 1]);
    EdgeStep step{static_cast<Operation>(steps.begin()[3 * s]), kind,
                  steps.begin()[3 * s + 2] != 0, numbers.begin()[s], nullptr};
    if (kind != EdgeStep::kNumber) {
      const auto vector = vectors.get<Floats>(next++);
      if (!vector.has_value()) return kShapes;
      if (Size(*vector) != (kind == EdgeStep::kRow ? num_nodes : num_columns)) return kShapes;
      step.vector = vector->typed_data();
    }
    chain.steps.push_back(step);
  }
  const Executor executor = PoolExecutor(pool, num_threads);
  if (axis == 0) {
    SumByColumn(chain, sums->typed_data(), executor);
  } else {
    SumByRow(chain, num_nodes, sums->typed_data(), executor);
  }
  return "";
}

std::string Count(ffi::ThreadPool pool, AnyLongs indptr, Ints indices, Ints columns,
                  Longs excluded, ffi::Result<Ints> count, int64_t room, int64_t num_threads) {
  const int64_t num_nodes = NumNodes(indptr);
  if (num_nodes < 0 || Size(*count) != num_nodes) return kShapes;
  std::string error;
  const Limits limits = Without(excluded, Size(indices), error);
  if (!error.empty()) return error;
  const Slice slice = SliceOf(indptr.typed_data(), indptr, columns, limits);
  if (slice.num_edges() > room) {
    std::fill_n(count->typed_data(), num_nodes, 0);
  } else {
    CountByRow(slice, indices.typed_data(), num_nodes, count->typed_data(),
               PoolExecutor(pool, num_threads));
  }
  return "";
}

std::string Inner(ffi::ThreadPool pool, ffi::Buffer<ffi::F32, 3> left,
                  ffi::Buffer<ffi::F32, 3> right, Ints row, Ints column, Int num_edges,
                  ffi::Result<Matrix> products, int64_t num_threads) {
  const auto rows = left.dimensions(), columns = right.dimensions();
  const int64_t heads = rows[1], room = Size(row), real = *num_edges.typed_data();
  if (columns[1] != heads || columns[2] != rows[2] || Size(column) != room || real < 0 ||
      real > room || !HasShape(*products, room, heads)) {
    return kShapes;
  }
  AdviseHugePages(products);
  float* out = products->typed_data();
  EdgeInner({left.typed_data(), right.typed_data(), row.typed_data(), column.typed_data(), heads,
             rows[2]},
            real, out, PoolExecutor(pool, num_threads));
  std::fill(out + real * heads, out + room * heads, 0.0f);
  return "";
}

std::string ProjectNodes(ffi::ThreadPool pool, Matrix features, Ints nodes, Matrix weight,
                         ffi::Result<Matrix> product, int64_t num_threads) {
  const auto table = features.dimensions();
  const int64_t width = weight.dimensions()[1];
  if (weight.dimensions()[0] != table[1] || !HasShape(*product, Size(nodes), width)) {
    return kShapes;
  }
  AdviseHugePages(product);
  Project({features.typed_data(), table[0], table[1], nodes.typed_data(), Size(nodes),
           weight.typed_data(), width},
          product->typed_data(), PoolExecutor(pool, num_threads));
  return "";
}

std::string Running(ffi::ThreadPool pool, Floats weight, Ints indptr, ffi::Result<Longs> running,
                    ffi::Result<ffi::BufferR0<ffi::PRED>> bad, int64_t num_threads) {
  const int64_t num_columns = Size(indptr) - 1, room = Size(weight);
  if (num_columns < 0 || Size(*running) != room) return kShapes;
  const int64_t num_edges = indptr.typed_data()[num_columns];
  if (num_edges < 0 || num_edges > room) return kShapes;
  AdviseHugePages(running);
  *bad->typed_data() = RunningWeights(weight.typed_data(), indptr.typed_data(), num_columns,
                                      running->typed_data(), PoolExecutor(pool, num_threads));
  std::fill(running->typed_data() + num_edges, running->typed_data() + room, int64_t{0});
  return "";
}

}  // namespace

JGS_HANDLER(JgsSmallestRanks, Ranks, "num_threads");
JGS_HANDLER(JgsExpand, ExpandColumns, "num_threads");
JGS_HANDLER(JgsExtract, Extract, "looked_room", "num_threads");
JGS_HANDLER(JgsRearrange, RearrangeEdges, "mapped", "num_nodes", "num_edges", "num_threads");
JGS_HANDLER(JgsPlaces, FindPlaces, "num_nodes", "num_threads");
JGS_HANDLER(JgsDistinctNodes, DistinctNodes, "padding");
JGS_HANDLER(JgsExactSum, Sum, "num_threads");
JGS_HANDLER(JgsSumChain, SumChain, "steps", "numbers", "room", "axis", "num_threads");
JGS_HANDLER(JgsCountRows, Count, "room", "num_threads");
JGS_HANDLER(JgsEdgeInner, Inner, "num_threads");
JGS_HANDLER(JgsProject, ProjectNodes, "num_threads");
JGS_HANDLER(JgsRunningWeights, Running, "num_threads");

}  // namespace jgs
