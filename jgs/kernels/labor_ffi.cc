// The XLA binding of SampleLabor. Its Python side is
// jgs/sampling/algorithms/labor.py.
#include <cstdint>
#include <string>
#include <vector>

#include "labor.h"
#include "sample_call.h"

namespace jgs {
namespace {

// See SampleBatches.
std::string Sample(ffi::ThreadPool pool, AnyWords keys, AnyLongs indptr, AnyInts indices,
                   AnyInts hubs, AnyInts hub_indptr, AnyInts hub_edges, AnyLongs edge_time,
                   AnyShorts edge_type, AnyInts seeds, AnyLongs time, AnyLongs excluded,
                   ffi::RemainingRets rets, Numbers draws, Numbers relation_draws,
                   Numbers edge_capacity, Numbers source_capacity, int64_t key_words,
                   int64_t importance, bool layer_dependency, bool unbiased, int64_t window,
                   bool relabel_inputs, int64_t first_hop, int64_t num_threads) {
  if (key_words != 2 && key_words != 5) return "jgs_sample_labor: keys have 2 or 5 words";
  const HubIndex index{hubs.typed_data(),       Size(hubs),
                       hub_indptr.typed_data(), Size(hub_indptr) - 1,
                       hub_edges.typed_data(),  Size(hub_edges)};
  const size_t width = static_cast<size_t>(key_words);
  if (time.element_count() != 0 && edge_time.element_count() != indices.element_count()) {
    return "jgs_sample_labor: arguments do not have the expected sizes";
  }
  LaborOptions options{importance, unbiased, {}, edge_time.typed_data(), window};
  if (relation_draws.size() > 0) {
    if (edge_type.element_count() != indices.element_count() ||
        relation_draws.size() % draws.size() != 0) {
      return "jgs_sample_labor: what draws by relation read has another size";
    }
    options.relations.num = static_cast<int64_t>(relation_draws.size() / draws.size());
    options.relations.edge_type = edge_type.typed_data();
  }
  SampleCall call{keys,            width,     indptr,           indices,        seeds,
                  time,            excluded,  draws,            relation_draws, edge_capacity,
                  source_capacity, first_hop, layer_dependency, num_threads};
  return SampleBatches(
      pool, call, rets,
      [&](const GraphView& graph, const Seeds& of, std::vector<Hop>& hops,
          const SampledNodes& sampled, const Executor& executor) {
        return SampleLabor(graph, index, of, options, relabel_inputs, hops, sampled, executor);
      });
}

}  // namespace

JGS_HANDLER(JgsSampleLabor, Sample, "draws", "relation_draws", "edge_capacity",
            "source_capacity", "key_words", "importance", "layer_dependency", "unbiased",
            "window", "relabel_inputs", "first_hop", "num_threads");

}  // namespace jgs
