// Neighbour sampling straight into compressed sparse columns, all hops in one call.
// jgs/sampling/algorithms/neighbors.py defines the results; this is faster and equal bit for
// bit.
#ifndef JGS_KERNELS_SAMPLE_H_
#define JGS_KERNELS_SAMPLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "eligible.h"
#include "parallel.h"
#include "threefry.h"

namespace jgs {

struct GraphView {
  const int64_t* indptr;  // [num_nodes], where each row begins
  const int64_t* ends;    // [num_nodes], where it ends
  int64_t num_nodes;
  const int32_t* indices;  // [num_edges]
  int64_t num_edges;
  const int64_t* weight_prefix;  // [num_edges], or null if draws are not weighted
  const float* edge_weight;      // [num_edges], or null if weights are not returned
};

// What is wrong with seeds that are not nodes, or "".
inline std::string CheckSeeds(const int32_t* seeds, int64_t num_seeds, int64_t num_nodes) {
  for (int64_t i = 0; i < num_seeds; ++i) {
    if (seeds[i] < 0 || seeds[i] > num_nodes) {
      return "seeds must be node ids in [0, " + std::to_string(num_nodes) + "), or " +
             std::to_string(num_nodes) + " for padding; got " + std::to_string(seeds[i]) +
             " at position " + std::to_string(i) + ". Check where the seeds come from";
    }
  }
  return "";
}

// The message for a graph in which a kernel met invalid values.
inline std::string DamagedGraph(int64_t num_nodes) {
  return "the graph's arrays must be valid: indptr not decreasing and within the edges, "
         "indices in [0, " + std::to_string(num_nodes) + "). Its files are damaged: "
         "write the graph again";
}

struct Hop {
  Key key;
  Key next_key{};      // for Labor's dependent batches: the next group's key, and the part of
  uint32_t phase = 0;  // the period that has passed, in units of 2**-32; otherwise 0
  int64_t fanout;  // -1: all neighbours
  const int64_t* relation_fanout = nullptr;  // of each relation, 0: not drawn; null: see fanout
  int64_t target_capacity, edge_capacity, source_capacity;
  int32_t* indptr;     // [target_capacity + 1]
  int32_t* indices;    // [edge_capacity]
  int64_t* edge_id;    // [edge_capacity] or null
  float* edge_weight;  // [edge_capacity] or null
  int16_t* edge_type = nullptr;  // [edge_capacity] or null
  int32_t num_targets, num_sources, num_edges;  // results
  // What the hop needed of its capacities. After an overflow it is 0 where it is not known, and
  // one source more than fits where the sources do not fit.
  int32_t edges_needed = 0, sources_needed = 0;
};

// Where the runs of each node begin: the edges of one relation. See RelationIndex in
// jgs/sampling/algorithms/neighbors.py.
struct RelationIndex {
  const int64_t* indptr = nullptr;  // [num_nodes], where each node's runs begin, or null
  const int64_t* ends = nullptr;    // [num_nodes], where they end
  const int64_t* runs = nullptr;    // [num_runs + 1]
  int64_t num_runs = 0;
};

// What draws by relation read.
struct Relations {
  int64_t num = 0;                     // 0: no hop draws by relation
  const int16_t* edge_type = nullptr;  // [num_edges]
  RelationIndex index;
};

// What draws by recency read. See jgs/sampling/edges/recency.py.
struct Recency {
  int64_t half_life = 0;          // 0: there are none
  const int64_t* sums = nullptr;  // [num_edges]
  const int64_t* time = nullptr;  // [num_edges]
};

struct NeighborOptions {
  bool replace, weighted;
  bool latest;            // whether the latest edges are taken, in place of random ones
  int64_t window;         // see Limits
  const int64_t* edge_time;  // [num_edges], or null if seeds have no cutoffs
  Relations relations;
  Recency recency;        // if draws are by recency; seeds have cutoffs then
};

// What a sample returns beside its hops.
struct SampledNodes {
  int32_t* nodes;
  int64_t* cutoff;  // of each node, 0 in padding; null if the seeds have none
  bool* overflow;
};

// Samples `hops` (the seeds' hop first). Writes every hop's arrays and counts, and the input
// nodes ([source_capacity of the last hop]), with padding. Returns what is wrong with the
// input, or "". On overflow every output is empty and *overflow is true.
//
// Without `relabel_inputs` all nodes of the graph are sources of the last hop: its `indices`
// are node ids (padding: num_nodes), its num_sources is num_nodes, and its source_capacity is
// not used. `nodes` then has the targets of the last hop ([target_capacity]).
std::string SampleNeighbors(const GraphView& graph, const Seeds& seeds,
                            const NeighborOptions& options, bool relabel_inputs,
                            std::vector<Hop>& hops, const SampledNodes& sampled,
                            const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_SAMPLE_H_
