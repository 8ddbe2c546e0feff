// The XLA binding of SampleWalks. Its Python side is jgs/sampling/algorithms/walk.py.
#include <algorithm>
#include <cstdint>
#include <string>

#include "sample_call.h"
#include "walk.h"

namespace jgs {
namespace {

// Walks from roots [..., B] with keys [..., 2]: nodes [..., B, L+1] and lengths [..., B].
// `second` has the fields of SecondOrder, or is empty.
std::string Walk(ffi::ThreadPool pool, AnyWords keys, AnyLongs indptr, AnyInts indices,
                 AnyLongs weight_prefix, AnyLongs stretches, AnyLongs edge_time, AnyLongs sums,
                 AnyLongs by_source, AnyLongs weight_by_source, AnyLongs runs_indptr,
                 AnyLongs runs, AnyInts roots, AnyLongs time, AnyLongs excluded,
                 ffi::Result<AnyInts> nodes, ffi::Result<AnyInts> lengths, int64_t length,
                 bool weighted, int64_t restart, int64_t stop,
                 Numbers relations, Numbers second, bool causal, int64_t window, int64_t latest,
                 int64_t half_life, int64_t num_threads) {
  const int64_t num_roots = Size(roots);
  const int64_t per_batch = num_roots > 0 ? roots.dimensions().back() : 1;
  const int64_t num_batches = num_roots / std::max<int64_t>(per_batch, 1);
  const bool timed = time.element_count() != 0, indexed = by_source.element_count() != 0;
  const size_t num_edges = indices.element_count(),
               num_nodes = static_cast<size_t>(NumNodes(indptr));
  const auto most = std::max_element(relations.begin(), relations.end());
  GraphView graph = ViewGraph(indptr, indices);
  graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
  if (indptr.element_count() < 1 || length < 1 ||
      keys.element_count() != 2 * static_cast<size_t>(num_batches) ||
      (weighted && weight_prefix.element_count() != num_edges) ||
      (relations.size() > 0 && stretches.element_count() != 2 * num_nodes * (1 + *most)) ||
      (second.size() != 0 && second.size() != 6) ||
      (timed && (time.element_count() != roots.element_count() ||
                 edge_time.element_count() != num_edges)) ||
      (num_batches > 0 && excluded.element_count() % num_batches != 0) ||
      (num_roots > 0 && !timed &&
       (causal || window != -1 || latest != -1 || half_life != 0)) ||
      (Size(runs_indptr) > 0 && (!timed || relations.size() > 0 || second.size() > 0 ||
                                 latest != -1 || half_life != 0) && num_roots > 0) ||
      half_life < 0 || (half_life != 0 && sums.element_count() != num_edges) ||
      (indexed && by_source.element_count() != num_edges) ||
      (weight_by_source.element_count() != 0 &&
       weight_by_source.element_count() != num_edges) ||
      (second.size() != 0 && (excluded.element_count() != 0 ||
                              (timed && !indexed && num_edges > 0))) ||
      // Points of edges back are found among weights by source.
      (indexed && weighted && second.size() != 0 && second[3] != 0 &&
       weight_by_source.element_count() == 0) ||
      nodes->element_count() != static_cast<size_t>(num_roots * (length + 1)) ||
      lengths->element_count() != static_cast<size_t>(num_roots)) {
    return "jgs_walk: arguments do not have the expected sizes";
  }
  if (!FitsIndex(runs_indptr, runs, graph)) return kOtherIndex;
  const auto limit = [](int64_t value) { return static_cast<uint64_t>(value); };
  SecondOrder rule{};
  if (second.size() != 0) {
    rule = {limit(second[0]), limit(second[1]), limit(second[2]),
            second[3] != 0,   limit(second[4]), limit(second[5])};
  }
  WalkOptions of_all{length,
                     limit(restart),
                     limit(stop),
                     relations.size() > 0 ? stretches.typed_data() : nullptr,
                     relations.begin(),
                     static_cast<int64_t>(relations.size()),
                     second.size() != 0 ? &rule : nullptr,
                     latest,
                     {},
                     causal,
                     {half_life, sums.typed_data(), edge_time.typed_data()},
                     indexed ? by_source.typed_data() : nullptr,
                     weight_by_source.element_count() != 0 ? weight_by_source.typed_data()
                                                           : nullptr,
                     ViewIndex(runs_indptr, runs)};
  const int64_t num_excluded =
      Size(excluded) / std::max<int64_t>(num_batches, 1);
  AdviseHugePages(nodes);
  const auto one = [&](int64_t batch, const Executor& executor) -> std::string {
    const Key key{{keys.typed_data()[2 * batch], keys.typed_data()[2 * batch + 1]}};
    const int64_t first = batch * per_batch;
    const Seeds seeds{roots.typed_data() + first, per_batch,
                      time.element_count() != 0 ? time.typed_data() + first : nullptr,
                      excluded.typed_data() + batch * num_excluded, num_excluded};
    WalkOptions options = of_all;
    std::string error;
    options.limits = LimitsOf(seeds, edge_time.typed_data(), graph.num_edges,
                              graph.weight_prefix, window, error);
    if (!error.empty()) return error;
    return SampleWalks(graph, key, seeds, options, nodes->typed_data() + first * (length + 1),
                       lengths->typed_data() + first, executor);
  };
  return ForBatches(PoolExecutor(pool, num_threads), num_batches, one);
}

}  // namespace

JGS_HANDLER(JgsWalk, Walk, "length", "weighted", "restart", "stop", "relations", "second",
            "causal", "window", "latest", "half_life", "num_threads");

}  // namespace jgs
