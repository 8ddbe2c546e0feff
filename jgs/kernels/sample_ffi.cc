// The XLA binding of SampleNeighbors. Its Python side is jgs/sampling/algorithms/neighbors_kernel.py.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "sample.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// Takes the results of one batch, one after the other. Batches may share their results: then
// each has an equal part of every one.
class Results {
 public:
  Results(ffi::RemainingRets& results, size_t first, int64_t part, int64_t num_parts)
      : results_(results), next_(first), part_(part), num_parts_(num_parts) {}

  // Where the batch's part of the next result begins; null if it is empty. Sets `size`.
  template <ffi::DataType dtype>
  ffi::NativeType<dtype>* Next(int64_t* size = nullptr) {
    auto buffer = results_.get<ffi::Buffer<dtype>>(next_++);
    if (!buffer) {
      good_ = false;
      return nullptr;
    }
    const int64_t part_size = static_cast<int64_t>((*buffer)->element_count()) / num_parts_;
    if (size != nullptr) *size = part_size;
    return part_size > 0 ? (*buffer)->typed_data() + part_ * part_size : nullptr;
  }

  bool good() const { return good_; }  // every result had its type

 private:
  ffi::RemainingRets& results_;
  size_t next_;
  const int64_t part_, num_parts_;
  bool good_ = true;
};

// The key of hop h: jax.random.fold_in(key, h).
Key HopKey(const uint32_t* key, int64_t h) {
  Key folded{{0, static_cast<uint32_t>(h)}};
  Threefry({{key[0], key[1]}}, folded.word[0], folded.word[1]);
  return folded;
}

// Samples the batches of seeds [..., B] with the keys [..., 2], each on its own. The fanouts are
// those of hops first_hop, first_hop + 1, ...
//
// Results: for every hop the fields of jgs.Block, then the nodes, the overflow flag and
// what the hops needed, with the leading axes of the seeds. Or, with S times as many results and seeds [..., S, B], those
// of the first of S batches, then those of the second, and so on.
ffi::Error Sample(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> keys,
                  ffi::Buffer<ffi::S64> indptr, ffi::Buffer<ffi::S32> indices,
                  ffi::Buffer<ffi::S64> weight_prefix, ffi::Buffer<ffi::F32> edge_weight,
                  ffi::Buffer<ffi::S32> seeds, ffi::RemainingRets rets,
                  ffi::Span<const int64_t> fanouts, ffi::Span<const int64_t> edge_capacity,
                  ffi::Span<const int64_t> source_capacity, bool replace, bool weighted,
                  bool relabel_inputs, int64_t first_hop, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const size_t num_hops = fanouts.size();
    const int64_t num_seeds = static_cast<int64_t>(seeds.element_count());
    if (num_seeds == 0) return "jgs_sample_neighbors: there are no seeds";
    const int64_t batch_size = seeds.dimensions().back(), num_batches = num_seeds / batch_size;
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
    if (graph.num_nodes < 0 || keys.element_count() != 2 * static_cast<size_t>(num_batches) ||
        edge_capacity.size() != num_hops || source_capacity.size() != num_hops ||
        (weighted && lacks_edges(weight_prefix.element_count())) ||
        (edge_weight.element_count() != 0 && lacks_edges(edge_weight.element_count()))) {
      return "jgs_sample_neighbors: arguments do not have the expected sizes";
    }
    const size_t num_results = 7 * num_hops + 3;
    const int64_t groups = std::max<int64_t>(1, static_cast<int64_t>(rets.size() / num_results));
    const auto sample = [&](int64_t batch, const Executor& executor) -> std::string {
      Results results(rets, batch % groups * num_results, batch / groups, num_batches / groups);
      std::vector<Hop> hops(num_hops);
      std::vector<int32_t*> counts;
      for (size_t h = 0; h < num_hops; ++h) {
        Hop& hop = hops[h];
        hop.key = HopKey(keys.typed_data() + 2 * batch, first_hop + static_cast<int64_t>(h));
        hop.fanout = fanouts[h];
        hop.edge_capacity = edge_capacity[h];
        hop.source_capacity = source_capacity[h];
        hop.indptr = results.Next<ffi::S32>(&hop.target_capacity);
        --hop.target_capacity;
        hop.indices = results.Next<ffi::S32>();
        for (int i = 0; i < 3; ++i) counts.push_back(results.Next<ffi::S32>());
        hop.edge_id = results.Next<ffi::S64>();
        hop.edge_weight = results.Next<ffi::F32>();
        if (hop.edge_weight != nullptr && lacks_edges(edge_weight.element_count())) {
          return "jgs_sample_neighbors: the graph has no edge weights to return";
        }
      }
      int32_t* nodes = results.Next<ffi::S32>();
      bool* overflow = results.Next<ffi::PRED>();
      int32_t* needed = results.Next<ffi::S32>();  // [2, num_hops]
      if (!results.good()) return "jgs_sample_neighbors: results do not have the expected types";
      const std::string error = SampleNeighbors(
          graph, seeds.typed_data() + batch * batch_size, batch_size, replace, weighted,
          relabel_inputs, hops, nodes, overflow, executor);
      if (!error.empty()) {
        return num_batches > 1 ? "batch " + std::to_string(batch) + ": " + error : error;
      }
      for (size_t h = 0; h < num_hops; ++h) {
        *counts[3 * h] = hops[h].num_targets;
        *counts[3 * h + 1] = hops[h].num_sources;
        *counts[3 * h + 2] = hops[h].num_edges;
        needed[h] = hops[h].edges_needed;
        needed[num_hops + h] = hops[h].sources_needed;
      }
      return "";
    };
    const Executor executor = PoolExecutor(pool, num_threads);
    std::vector<std::string> errors(num_batches);
    if (num_batches >= executor.num_threads) {  // a thread a batch: nothing to wait for
      ParallelFor(executor, num_batches,
                  [&](int64_t batch) { errors[batch] = sample(batch, Executor{}); });
    } else {
      for (int64_t batch = 0; batch < num_batches; ++batch) {
        errors[batch] = sample(batch, executor);
      }
    }
    const auto is_error = [](const std::string& error) { return !error.empty(); };
    const auto first = std::find_if(errors.begin(), errors.end(), is_error);
    return first == errors.end() ? "" : *first;
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
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()  // edge_weight
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // seeds
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int64_t>>("fanouts")
                                  .Attr<xla::ffi::Span<const int64_t>>("edge_capacity")
                                  .Attr<xla::ffi::Span<const int64_t>>("source_capacity")
                                  .Attr<bool>("replace")
                                  .Attr<bool>("weighted")
                                  .Attr<bool>("relabel_inputs")
                                  .Attr<int64_t>("first_hop")
                                  .Attr<int64_t>("num_threads"));
