// What the samplers' XLA bindings share: the batches of a call, their keys and their results.
#ifndef JGS_KERNELS_SAMPLE_CALL_H_
#define JGS_KERNELS_SAMPLE_CALL_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "sample.h"

namespace jgs {

// Buffers with any number of axes, and numbers that are static.
using AnyFloats = ffi::Buffer<ffi::F32>;
using AnyInts = ffi::Buffer<ffi::S32>;
using AnyLongs = ffi::Buffer<ffi::S64>;
using AnyShorts = ffi::Buffer<ffi::S16>;
using AnyWords = ffi::Buffer<ffi::U32>;
using Numbers = ffi::Span<const int64_t>;

// The number of nodes of a graph with these offsets: [N+1], or [2, N+1] where rows have room.
template <typename Indptr>
int64_t NumNodes(const Indptr& indptr) {
  const auto shape = indptr.dimensions();
  return shape.size() == 0 ? -1 : static_cast<int64_t>(shape.back()) - 1;
}

// How far the end of a row is from its begin in these offsets.
template <typename Indptr>
int64_t ToEnds(const Indptr& indptr) {
  return indptr.dimensions().size() == 2 ? NumNodes(indptr) + 1 : 1;
}

// The graph of these arrays, without weights.
template <typename Indptr, typename Indices>
GraphView ViewGraph(const Indptr& indptr, const Indices& indices) {
  GraphView graph{};
  graph.indptr = indptr.typed_data();
  graph.ends = graph.indptr + ToEnds(indptr);
  graph.num_nodes = NumNodes(indptr);
  graph.indices = indices.typed_data();
  graph.num_edges = Size(indices);
  return graph;
}

constexpr const char* kOtherIndex =
    "the state must be what init returned for this graph. Call it again";

// Whether the arrays of a RelationIndex are empty, or are of a graph with as many nodes and, which
// the end of the last run says where rows have no room, with as many edges.
template <typename Offsets, typename Array>
bool FitsIndex(const Offsets& indptr, const Array& runs, const GraphView& graph) {
  if (Size(indptr) == 0) return true;
  if (NumNodes(indptr) != graph.num_nodes || Size(runs) < 1) return false;
  const bool has_room = graph.ends != graph.indptr + 1;
  return has_room || runs.typed_data()[Size(runs) - 1] >> 15 == graph.num_edges;
}

// The index of these arrays; without `indptr` if they are empty.
template <typename Offsets, typename Array>
RelationIndex ViewIndex(const Offsets& indptr, const Array& runs) {
  if (Size(indptr) == 0) return {};
  const int64_t* const begins = indptr.typed_data();
  return {begins, begins + ToEnds(indptr), runs.typed_data(), Size(runs) - 1};
}

// Runs `one(batch, executor)` for each batch, which returns what is wrong or "". Returns the
// error of the first batch that has one, with the batch's number where there are several.
template <typename One>
std::string ForBatches(const Executor& executor, int64_t num_batches, const One& one) {
  std::vector<std::string> errors(num_batches);
  if (num_batches >= executor.num_threads) {  // a thread for each batch: none waits
    ParallelFor(executor, num_batches,
                [&](int64_t batch) { errors[batch] = one(batch, Executor{}); });
  } else {
    for (int64_t batch = 0; batch < num_batches; ++batch) errors[batch] = one(batch, executor);
  }
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    if (errors[batch].empty()) continue;
    return num_batches > 1 ? "batch " + std::to_string(batch) + ": " + errors[batch]
                           : errors[batch];
  }
  return "";
}

// Gives the results of one batch, one after the other. If batches share their results, each has
// an equal part of every one.
class Results {
 public:
  Results(ffi::RemainingRets& results, size_t first, int64_t part, int64_t num_parts)
      : results_(results), next_(first), part_(part), num_parts_(num_parts) {}

  // The beginning of the batch's part of the next result; null if it is empty. Sets `size`.
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

  bool good() const { return good_; }  // whether every result had its type

 private:
  ffi::RemainingRets& results_;
  size_t next_;
  const int64_t part_, num_parts_;
  bool good_ = true;
};

// The key of hop h, jax.random.fold_in(key, h).
inline Key HopKey(const uint32_t* key, int64_t h) {
  return Fold({{key[0], key[1]}}, static_cast<uint32_t>(h));
}

// A call's operands, and what is static about its hops. The first hop has the number first_hop.
struct SampleCall {
  AnyWords& keys;  // [..., key_words]
  size_t key_words;
  AnyLongs& indptr;
  AnyInts& indices;
  AnyInts& seeds;           // [..., B]
  AnyLongs& time;           // [..., B] cutoffs, or empty
  AnyLongs& excluded;       // [..., X], or empty
  Numbers& draws;           // of each hop; where 0, the hop draws by relation if it can
  Numbers& relation_draws;  // of each hop and relation, or empty
  Numbers &edge_capacity, &source_capacity;
  int64_t first_hop;
  bool same_key;  // whether every hop has the key of hop 0
  int64_t num_threads;
};

// Samples each batch of the seeds [..., B] with its key [..., W] by
// `sample(graph, seeds, hops, sampled, executor)`, which returns what is wrong or "". `graph`
// has no weights.
//
// The results are the fields of jgs.Block for every hop, then the nodes, the overflow flag,
// what the hops needed, and the nodes' cutoffs (empty if seeds have none), all with the leading axes
// of the seeds. There may be S times as many results, for seeds [..., S, B]: then those of the
// first of S batches come first, then those of the second, and so on.
template <typename Sample>
std::string SampleBatches(ffi::ThreadPool& pool, SampleCall& call, ffi::RemainingRets& rets,
                          const Sample& sample) {
  const size_t num_hops = call.draws.size();
  const int64_t num_seeds = Size(call.seeds);
  if (num_seeds == 0) return "a sampler's kernel: there are no seeds";
  const int64_t batch_size = call.seeds.dimensions().back();
  const int64_t num_batches = num_seeds / batch_size;
  const GraphView graph = ViewGraph(call.indptr, call.indices);
  const bool timed = Size(call.time) != 0;
  if (graph.num_nodes < 0 ||
      call.keys.element_count() != call.key_words * static_cast<size_t>(num_batches) ||
      call.edge_capacity.size() != num_hops || call.source_capacity.size() != num_hops ||
      (timed && Size(call.time) != num_seeds) || Size(call.excluded) % num_batches != 0) {
    return "a sampler's kernel: arguments do not have the expected sizes";
  }
  const int64_t num_excluded = Size(call.excluded) / num_batches;
  const size_t num_results = 8 * num_hops + 4;
  const int64_t groups = std::max<int64_t>(1, static_cast<int64_t>(rets.size() / num_results));
  const auto one = [&](int64_t batch, const Executor& executor) -> std::string {
    Results results(rets, batch % groups * num_results, batch / groups, num_batches / groups);
    const uint32_t* key = call.keys.typed_data() + call.key_words * batch;
    std::vector<Hop> hops(num_hops);
    std::vector<int32_t*> counts;
    for (size_t h = 0; h < num_hops; ++h) {
      Hop& hop = hops[h];
      const int64_t number = call.same_key ? 0 : call.first_hop + static_cast<int64_t>(h);
      hop.key = HopKey(key, number);
      if (call.key_words > 2) {
        hop.next_key = HopKey(key + 2, number);
        hop.phase = key[4];
      }
      hop.fanout = call.draws[h];
      if (hop.fanout == 0 && call.relation_draws.size() > 0) {
        hop.relation_fanout = &call.relation_draws[h * (call.relation_draws.size() / num_hops)];
      }
      hop.edge_capacity = call.edge_capacity[h];
      hop.source_capacity = call.source_capacity[h];
      hop.indptr = results.Next<ffi::S32>(&hop.target_capacity);
      --hop.target_capacity;
      hop.indices = results.Next<ffi::S32>();
      for (int i = 0; i < 3; ++i) counts.push_back(results.Next<ffi::S32>());
      hop.edge_id = results.Next<ffi::S64>();
      hop.edge_weight = results.Next<ffi::F32>();
      hop.edge_type = results.Next<ffi::S16>();
    }
    int32_t* nodes = results.Next<ffi::S32>();
    bool* overflow = results.Next<ffi::PRED>();
    int32_t* needed = results.Next<ffi::S32>();  // [2, num_hops]
    int64_t* cutoff = results.Next<ffi::S64>();
    if (!results.good()) return "a sampler's kernel: results do not have the expected types";
    const Seeds seeds{call.seeds.typed_data() + batch * batch_size, batch_size,
                      timed ? call.time.typed_data() + batch * batch_size : nullptr,
                      call.excluded.typed_data() + batch * num_excluded, num_excluded};
    const std::string error = sample(graph, seeds, hops, {nodes, cutoff, overflow}, executor);
    if (!error.empty()) return error;
    for (size_t h = 0; h < num_hops; ++h) {
      *counts[3 * h] = hops[h].num_targets;
      *counts[3 * h + 1] = hops[h].num_sources;
      *counts[3 * h + 2] = hops[h].num_edges;
      needed[h] = hops[h].edges_needed;
      needed[num_hops + h] = hops[h].sources_needed;
    }
    return "";
  };
  return ForBatches(PoolExecutor(pool, call.num_threads), num_batches, one);
}

}  // namespace jgs

#endif  // JGS_KERNELS_SAMPLE_CALL_H_
