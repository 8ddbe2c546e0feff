// The XLA binding of SampleNeighbors. Its Python side is
// jgs/sampling/algorithms/neighbors.py.
#include <cstdint>
#include <string>
#include <vector>

#include "sample_call.h"

namespace jgs {
namespace {

// See SampleBatches.
std::string Sample(ffi::ThreadPool pool, AnyWords keys, AnyLongs indptr, AnyInts indices,
                   AnyLongs weight_prefix, AnyLongs recency, AnyFloats edge_weight,
                   AnyLongs edge_time, AnyShorts edge_type, AnyLongs runs_indptr, AnyLongs runs,
                   AnyInts seeds, AnyLongs time, AnyLongs excluded, ffi::RemainingRets rets,
                   Numbers draws, Numbers relation_draws, Numbers edge_capacity,
                   Numbers source_capacity, bool replace, bool weighted, bool latest,
                   int64_t window, int64_t half_life, bool relabel_inputs, int64_t first_hop,
                   int64_t num_threads) {
  const size_t num_edges = indices.element_count();
  const bool has_weights = edge_weight.element_count() != 0;
  if ((weighted && weight_prefix.element_count() != num_edges) ||
      (half_life != 0 && (half_life < 0 || time.element_count() == 0 ||
                          recency.element_count() != num_edges)) ||
      (has_weights && edge_weight.element_count() != num_edges) ||
      (time.element_count() != 0 && edge_time.element_count() != num_edges)) {
    return "jgs_sample_neighbors: arguments do not have the expected sizes";
  }
  SampleCall call{keys,            2,         indptr, indices,        seeds,
                  time,            excluded,  draws,  relation_draws, edge_capacity,
                  source_capacity, first_hop, false,  num_threads};
  NeighborOptions options{replace, weighted, latest, window, edge_time.typed_data(), {}, {}};
  options.recency = {half_life, recency.typed_data(), edge_time.typed_data()};
  if (relation_draws.size() > 0) {
    options.relations.num = static_cast<int64_t>(relation_draws.size() / draws.size());
    options.relations.edge_type = edge_type.typed_data();
    if (edge_type.element_count() != num_edges || relation_draws.size() % draws.size() != 0) {
      return "jgs_sample_neighbors: what draws by relation read has another size";
    }
    if (!FitsIndex(runs_indptr, runs, ViewGraph(indptr, indices))) return kOtherIndex;
    options.relations.index = ViewIndex(runs_indptr, runs);
  }
  return SampleBatches(
      pool, call, rets,
      [&](GraphView graph, const Seeds& of, std::vector<Hop>& hops,
          const SampledNodes& sampled, const Executor& executor) {
        graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
        graph.edge_weight = has_weights ? edge_weight.typed_data() : nullptr;
        for (const Hop& hop : hops) {
          if (hop.edge_weight != nullptr && !has_weights && num_edges != 0) {
            return std::string("jgs_sample_neighbors: the graph has no edge weights to return");
          }
        }
        return SampleNeighbors(graph, of, options, relabel_inputs, hops, sampled, executor);
      });
}

}  // namespace

JGS_HANDLER(JgsSampleNeighbors, Sample, "draws", "relation_draws", "edge_capacity",
            "source_capacity", "replace", "weighted", "latest", "window", "half_life",
            "relabel_inputs", "first_hop", "num_threads");

}  // namespace jgs
