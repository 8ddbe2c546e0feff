// The XLA binding of SampleLabor. Its Python side is jgs/sampling/algorithms/nodewise/labor_kernel.py.
#include <cstdint>
#include <string>
#include <vector>

#include "labor.h"
#include "sample_call.h"

namespace jgs {
namespace {

// See SampleBatches.
ffi::Error Sample(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> keys,
                  ffi::Buffer<ffi::S64> indptr, ffi::Buffer<ffi::S32> indices,
                  ffi::Buffer<ffi::S32> hubs, ffi::Buffer<ffi::S32> hub_indptr,
                  ffi::Buffer<ffi::S32> hub_edges, ffi::Buffer<ffi::S64> edge_time,
                  ffi::Buffer<ffi::S16> edge_type,
                  ffi::Buffer<ffi::S32> seeds,
                  ffi::Buffer<ffi::S64> time, ffi::Buffer<ffi::S64> excluded,
                  ffi::RemainingRets rets,
                  ffi::Span<const int64_t> draws, ffi::Span<const int64_t> relation_draws,
                  ffi::Span<const int64_t> edge_capacity,
                  ffi::Span<const int64_t> source_capacity, int64_t key_words,
                  int64_t importance, bool layer_dependency, bool unbiased,
                  int64_t window, bool relabel_inputs, int64_t first_hop, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    if (key_words != 2 && key_words != 5) return "jgs_sample_labor: keys have 2 or 5 words";
    const auto size = [](auto& buffer) -> int64_t { return buffer.element_count(); };
    const HubIndex index{hubs.typed_data(),     size(hubs),
                         hub_indptr.typed_data(), size(hub_indptr) - 1,
                         hub_edges.typed_data(),  size(hub_edges)};
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
    SampleCall call{keys,      width, indptr,        indices,         seeds,
                    time,      excluded, draws,      edge_capacity,   source_capacity,
                    first_hop, layer_dependency, num_threads};
    return SampleBatches(
        pool, call, rets,
        [&](const GraphView& graph, const Seeds& of, std::vector<Hop>& hops,
            const SampledNodes& sampled, const Executor& executor) {
          for (size_t h = 0; h < hops.size() && options.relations.num > 0; ++h) {
            if (draws[h] == 0) {
              hops[h].relation_fanout = &relation_draws[h * options.relations.num];
            }
          }
          return SampleLabor(graph, index, of, options, relabel_inputs, hops, sampled, executor);
        });
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsSampleLabor, jgs::Sample,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()  // keys
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // indices
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // hubs
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // hub_indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // hub_edges
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // edge_time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S16>>()  // edge_type
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // seeds
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // excluded
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int64_t>>("draws")
                                  .Attr<xla::ffi::Span<const int64_t>>("relation_draws")
                                  .Attr<xla::ffi::Span<const int64_t>>("edge_capacity")
                                  .Attr<xla::ffi::Span<const int64_t>>("source_capacity")
                                  .Attr<int64_t>("key_words")
                                  .Attr<int64_t>("importance")
                                  .Attr<bool>("layer_dependency")
                                  .Attr<bool>("unbiased")
                                  .Attr<int64_t>("window")
                                  .Attr<bool>("relabel_inputs")
                                  .Attr<int64_t>("first_hop")
                                  .Attr<int64_t>("num_threads"));
