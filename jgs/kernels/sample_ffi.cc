// The XLA binding of SampleNeighbors. Its Python side is jgs/sampling/neighbors_kernel.py.
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "sample.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// Results: per hop indptr, indices, edge_id ([0]: not wanted), edge_weight (likewise); then
// the nodes, the counts [hops, 3] (targets, sources, edges) and the overflow flag.
ffi::Error Sample(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> hop_keys,
                  ffi::Buffer<ffi::S64> indptr, ffi::Buffer<ffi::S32> indices,
                  ffi::Buffer<ffi::S64> weight_prefix, ffi::Buffer<ffi::F32> edge_weight,
                  ffi::Buffer<ffi::S32> seeds, ffi::RemainingRets results,
                  ffi::Span<const int64_t> fanouts, ffi::Span<const int64_t> edge_capacity,
                  ffi::Span<const int64_t> source_capacity, bool replace, bool weighted,
                  bool relabel_inputs, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const size_t num_hops = fanouts.size();
    GraphView graph;
    graph.indptr = indptr.typed_data();
    graph.num_nodes = static_cast<int64_t>(indptr.element_count()) - 1;
    graph.indices = indices.typed_data();
    graph.num_edges = static_cast<int64_t>(indices.element_count());
    graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
    graph.edge_weight = edge_weight.typed_data();
    const auto lacks_edges = [&](size_t size) {
      return static_cast<int64_t>(size) != graph.num_edges;
    };
    if (graph.num_nodes < 0 || hop_keys.element_count() != 2 * num_hops ||
        edge_capacity.size() != num_hops || source_capacity.size() != num_hops ||
        (weighted && lacks_edges(weight_prefix.element_count())) ||
        (edge_weight.element_count() != 0 && lacks_edges(edge_weight.element_count()))) {
      return "jgs_sample_neighbors: arguments do not have the expected sizes";
    }
    std::vector<Hop> hops(num_hops);
    for (size_t h = 0; h < num_hops; ++h) {
      Hop& hop = hops[h];
      auto hop_indptr = results.get<ffi::Buffer<ffi::S32>>(4 * h);
      auto hop_indices = results.get<ffi::Buffer<ffi::S32>>(4 * h + 1);
      auto hop_edge_id = results.get<ffi::Buffer<ffi::S64>>(4 * h + 2);
      auto hop_weight = results.get<ffi::Buffer<ffi::F32>>(4 * h + 3);
      if (!hop_indptr || !hop_indices || !hop_edge_id || !hop_weight) {
        return "jgs_sample_neighbors: results do not have the expected types";
      }
      hop.key = {{hop_keys.typed_data()[2 * h], hop_keys.typed_data()[2 * h + 1]}};
      hop.fanout = fanouts[h];
      hop.edge_capacity = edge_capacity[h];
      hop.source_capacity = source_capacity[h];
      hop.indptr = (*hop_indptr)->typed_data();
      hop.target_capacity = static_cast<int64_t>((*hop_indptr)->element_count()) - 1;
      hop.indices = (*hop_indices)->typed_data();
      hop.edge_id = (*hop_edge_id)->element_count() ? (*hop_edge_id)->typed_data() : nullptr;
      hop.edge_weight = (*hop_weight)->element_count() ? (*hop_weight)->typed_data() : nullptr;
      if (hop.edge_weight != nullptr && lacks_edges(edge_weight.element_count())) {
        return "jgs_sample_neighbors: the graph has no edge weights to return";
      }
    }
    auto nodes = results.get<ffi::Buffer<ffi::S32>>(4 * num_hops);
    auto counts = results.get<ffi::Buffer<ffi::S32>>(4 * num_hops + 1);
    auto overflow = results.get<ffi::Buffer<ffi::PRED>>(4 * num_hops + 2);
    if (!nodes || !counts || !overflow) {
      return "jgs_sample_neighbors: results do not have the expected types";
    }
    const std::string error = SampleNeighbors(
        graph, seeds.typed_data(), static_cast<int64_t>(seeds.element_count()), replace,
        weighted, relabel_inputs, hops, (*nodes)->typed_data(), (*overflow)->typed_data(),
        PoolExecutor(pool, num_threads));
    if (!error.empty()) return error;
    int32_t* count = (*counts)->typed_data();
    for (const Hop& hop : hops) {
      *count++ = hop.num_targets;
      *count++ = hop.num_sources;
      *count++ = hop.num_edges;
    }
    return "";
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsSampleNeighbors, jgs::Sample,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()  // hop_keys
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // indices
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // weight_prefix
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()  // edge_weight
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // seeds
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int64_t>>("fanouts")
                                  .Attr<xla::ffi::Span<const int64_t>>("edge_capacity")
                                  .Attr<xla::ffi::Span<const int64_t>>("source_capacity")
                                  .Attr<bool>("replace")
                                  .Attr<bool>("weighted")
                                  .Attr<bool>("relabel_inputs")
                                  .Attr<int64_t>("num_threads"));
