// The XLA binding of SampleNeighbors. Its Python side is jgs/sampling/algorithms/nodewise/neighbors_draws.py.
#include <cstdint>
#include <string>
#include <vector>

#include "sample_call.h"

namespace jgs {
namespace {

// See SampleBatches.
ffi::Error Sample(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> keys,
                  ffi::Buffer<ffi::S64> indptr, ffi::Buffer<ffi::S32> indices,
                  ffi::Buffer<ffi::S64> weight_prefix, ffi::Buffer<ffi::S64> recency,
                  ffi::Buffer<ffi::F32> edge_weight,
                  ffi::Buffer<ffi::S64> edge_time, ffi::Buffer<ffi::S16> edge_type,
                  ffi::Buffer<ffi::S64> runs_indptr, ffi::Buffer<ffi::S64> runs,
                  ffi::Buffer<ffi::S32> seeds,
                  ffi::Buffer<ffi::S64> time, ffi::Buffer<ffi::S64> excluded,
                  ffi::RemainingRets rets,
                  ffi::Span<const int64_t> draws, ffi::Span<const int64_t> relation_draws,
                  ffi::Span<const int64_t> edge_capacity,
                  ffi::Span<const int64_t> source_capacity, bool replace, bool weighted,
                  bool latest, int64_t window, int64_t half_life, bool relabel_inputs,
                  int64_t first_hop, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const size_t num_edges = indices.element_count();
    const bool has_weights = edge_weight.element_count() != 0;
    if ((weighted && weight_prefix.element_count() != num_edges) ||
        (half_life != 0 && (half_life < 0 || time.element_count() == 0 ||
                            recency.element_count() != num_edges)) ||
        (has_weights && edge_weight.element_count() != num_edges) ||
        (time.element_count() != 0 && edge_time.element_count() != num_edges)) {
      return "jgs_sample_neighbors: arguments do not have the expected sizes";
    }
    SampleCall call{keys,  2,             indptr,          indices,   seeds, time,       excluded,
                    draws, edge_capacity, source_capacity, first_hop, false, num_threads};
    NeighborOptions options{replace, weighted, latest, window, edge_time.typed_data(), {}, {}};
    options.recency = {half_life, recency.typed_data(), edge_time.typed_data()};
    if (relation_draws.size() > 0) {
      options.relations.num = static_cast<int64_t>(relation_draws.size() / draws.size());
      options.relations.edge_type = edge_type.typed_data();
      const bool indexed = runs_indptr.element_count() != 0;
      if (edge_type.element_count() != num_edges || relation_draws.size() % draws.size() != 0 ||
          (indexed && (runs_indptr.element_count() != indptr.element_count() ||
                       runs.element_count() == 0))) {
        return "jgs_sample_neighbors: what draws by relation read has another size";
      }
      if (indexed) {
        options.relations.index = {runs_indptr.typed_data(), runs.typed_data(),
                                   static_cast<int64_t>(runs.element_count()) - 1};
      }
    }
    return SampleBatches(
        pool, call, rets,
        [&](GraphView graph, const Seeds& of, std::vector<Hop>& hops,
            const SampledNodes& sampled, const Executor& executor) {
          graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
          graph.edge_weight = has_weights ? edge_weight.typed_data() : nullptr;
          for (size_t h = 0; h < hops.size() && options.relations.num > 0; ++h) {
            if (draws[h] == 0) {
              hops[h].relation_fanout = &relation_draws[h * options.relations.num];
            }
          }
          for (const Hop& hop : hops) {
            if (hop.edge_weight != nullptr && !has_weights && num_edges != 0) {
              return std::string("jgs_sample_neighbors: the graph has no edge weights to return");
            }
          }
          return SampleNeighbors(graph, of, options, relabel_inputs, hops, sampled, executor);
        });
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsSampleNeighbors, jgs::Sample,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()  // keys
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // indices
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // weight_prefix
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // recency
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()  // edge_weight
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // edge_time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S16>>()  // edge_type
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // runs_indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // runs
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // seeds
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // excluded
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int64_t>>("draws")
                                  .Attr<xla::ffi::Span<const int64_t>>("relation_draws")
                                  .Attr<xla::ffi::Span<const int64_t>>("edge_capacity")
                                  .Attr<xla::ffi::Span<const int64_t>>("source_capacity")
                                  .Attr<bool>("replace")
                                  .Attr<bool>("weighted")
                                  .Attr<bool>("latest")
                                  .Attr<int64_t>("window")
                                  .Attr<int64_t>("half_life")
                                  .Attr<bool>("relabel_inputs")
                                  .Attr<int64_t>("first_hop")
                                  .Attr<int64_t>("num_threads"));
