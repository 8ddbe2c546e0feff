// The XLA binding of FindMostVisited. Its Python side is jgs/sampling/contexts/visits.py.
#include <algorithm>
#include <cstdint>
#include <string>

#include "context_visits.h"
#include "sample_call.h"

namespace jgs {
namespace {

// Whether `rows` say of the nodes `roots` what the graph and the times of its edges say. Of long
// rows the times are not read.
bool AreRows(const RowTime* rows, const GraphView& graph, const int64_t* time, const Ints& roots) {
  const int32_t* const seeds = roots.typed_data();
  return std::all_of(seeds, seeds + Size(roots), [&](int32_t v) {
    if (v < 0 || v >= graph.num_nodes) return true;
    const int64_t start = graph.indptr[v], end = graph.ends[v];
    const int64_t count = std::min(end - start, RowTime::kMany);
    if (rows[v].start() != start || rows[v].count() != count) return false;
    if (start < 0 || start >= end || end > graph.num_edges || end - start > 512) return true;
    return rows[v].latest == *std::max_element(time + start, time + end);
  });
}

// Contexts of seeds [B] by the key [2]: nodes, hop, parent and edge [B, T].
std::string ContextVisits(ffi::ThreadPool pool, Words key, AnyLongs indptr, Ints indices,
                          Longs weight_prefix, Longs edge_time, AnyLongs runs_indptr, Longs runs,
                          ffi::Buffer<ffi::S64, 2> rows, Ints roots, Longs time, Longs excluded,
                          ffi::Result<IntMatrix> nodes, ffi::Result<IntMatrix> hop,
                          ffi::Result<IntMatrix> parent,
                          ffi::Result<ffi::Buffer<ffi::S64, 2>> edge, int64_t length,
                          bool weighted, int64_t restart, int64_t window, int64_t num_walks,
                          int64_t num_threads) {
  const int64_t num_seeds = Size(roots), size = nodes->dimensions()[1];
  const bool timed = Size(time) != 0;
  GraphView graph = ViewGraph(indptr, indices);
  graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
  const auto fits = [&](auto& result) { return HasShape(*result, num_seeds, size); };
  if (num_seeds == 0) return "";
  if (Size(key) != 2 || graph.num_nodes < 0 || length < 1 || num_walks < 1 ||
      num_walks > ((int64_t{1} << 31) - 1) / length || size < 1 ||
      (weighted && Size(weight_prefix) != graph.num_edges) ||
      (timed && (Size(time) != num_seeds || Size(edge_time) != graph.num_edges)) ||
      (!timed && (window != -1 || Size(runs_indptr) != 0)) ||
      !fits(nodes) || !fits(hop) || !fits(parent) || !fits(edge)) {
    return "jgs_context_visits: arguments do not have the expected sizes";
  }
  const int64_t num_rows = rows.dimensions()[0];
  const auto* const row_times = reinterpret_cast<const RowTime*>(rows.typed_data());
  if (!FitsIndex(runs_indptr, runs, graph)) return kOtherIndex;
  if (num_rows != 0 && (num_rows != graph.num_nodes + 1 || rows.dimensions()[1] != 2 ||
                        row_times[graph.num_nodes].start() != graph.num_edges)) {
    return kOtherIndex;
  }
  const bool by_rows = num_rows != 0 && timed && window < 0;
  if (by_rows && !AreRows(row_times, graph, edge_time.typed_data(), roots)) return kOtherIndex;
  const Seeds seeds{roots.typed_data(), num_seeds, timed ? time.typed_data() : nullptr,
                    excluded.typed_data(), Size(excluded)};
  WalkOptions options{length, static_cast<uint64_t>(restart), 0, nullptr, nullptr, 0, nullptr,
                      -1, {}};
  options.index = ViewIndex(runs_indptr, runs);
  if (by_rows) options.rows = row_times;
  std::string error;
  options.limits = LimitsOf(seeds, edge_time.typed_data(), graph.num_edges,
                            graph.weight_prefix, window, error);
  if (!error.empty()) return error;
  const Contexts contexts{size, nodes->typed_data(), hop->typed_data(), parent->typed_data(),
                          edge->typed_data()};
  return FindMostVisited(graph, {{key.typed_data()[0], key.typed_data()[1]}}, seeds, options,
                         num_walks, contexts, PoolExecutor(pool, num_threads));
}

}  // namespace

JGS_HANDLER(JgsContextVisits, ContextVisits, "length", "weighted", "restart", "window",
            "num_walks", "num_threads");

}  // namespace jgs
