// The XLA binding of MostVisited. Its Python side is jgs/sampling/algorithms/visits.py.
#include <cstdint>
#include <string>
#include <vector>

#include "sample_call.h"
#include "visits.h"

namespace jgs {
namespace {

// `groups` has for each VisitGroup in turn its size, its number of bounds, and the bounds.
std::string Visits(ffi::ThreadPool pool, Words key, AnyLongs indptr, Ints indices,
                   Shorts edge_type, Ints targets, Longs excluded, ffi::Result<IntMatrix> nodes,
                   ffi::Result<IntMatrix> counts, int64_t num_walks, int64_t length,
                   int64_t stop, Numbers path, Numbers groups, int64_t num_threads) {
  std::vector<VisitGroup> every;
  size_t width = 0;
  for (const int64_t* at = groups.begin(); groups.end() - at >= 2;) {
    const VisitGroup group{at[0], at + 2, at[1]};
    if (group.num_bounds < 0 || group.num_bounds > groups.end() - group.bounds) break;
    every.push_back(group);
    width += static_cast<size_t>(group.size);
    at = group.bounds + group.num_bounds;
  }
  const GraphView graph = ViewGraph(indptr, indices);
  const size_t num_targets = targets.element_count();
  if (key.element_count() != 2 || graph.num_nodes < 0 || num_walks < 1 || length < 1 ||
      (path.size() > 0 && edge_type.element_count() != indices.element_count()) ||
      nodes->element_count() != num_targets * width ||
      counts->element_count() != num_targets * width) {
    return "jgs_visits: arguments do not have the expected sizes";
  }
  std::string error;
  const Seeds of{nullptr, 0, nullptr, excluded.typed_data(), Size(excluded)};
  const Limits limits = LimitsOf(of, nullptr, graph.num_edges, nullptr, -1, error);
  if (!error.empty()) return error;
  const VisitOptions options{num_walks,
                             length,
                             static_cast<uint64_t>(stop),
                             edge_type.typed_data(),
                             path.begin(),
                             static_cast<int64_t>(path.size()),
                             every.data(),
                             static_cast<int64_t>(every.size()),
                             limits};
  return MostVisited(graph, {{key.typed_data()[0], key.typed_data()[1]}},
                     targets.typed_data(), static_cast<int64_t>(num_targets), options,
                     nodes->typed_data(), counts->typed_data(),
                     PoolExecutor(pool, num_threads));
}

}  // namespace

JGS_HANDLER(JgsVisits, Visits, "num_walks", "length", "stop", "path", "groups", "num_threads");

}  // namespace jgs
