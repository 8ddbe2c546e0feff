// Layer-neighbour sampling (LABOR), all hops in one call.
// jgs/sampling/algorithms/labor.py defines the results; this is faster and equal bit for bit.
#ifndef JGS_KERNELS_LABOR_H_
#define JGS_KERNELS_LABOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sample.h"

namespace jgs {

struct LaborOptions {
  int64_t importance;  // rounds of the fixed-point iteration; -1: until convergence
  bool unbiased;       // which estimate the weights are for, if hops have room for weights
  Relations relations{};  // for hops that draw by relation; its index is not used
  const int64_t* edge_time = nullptr;  // [num_edges], or null if seeds have no cutoffs
  int64_t window = -1;                 // see Limits
};

// The edges of some nodes by source, see `HubEdges` in jgs/sampling/algorithms/labor.py.
struct HubIndex {
  const int32_t* nodes;  // [num_nodes]
  int64_t num_nodes;     // 0: there is no index
  const int32_t* indptr;  // [num_sources + 1]
  int64_t num_sources;
  const int32_t* edges;  // [num_edges]
  int64_t num_edges;
};

// As SampleNeighbors, but drawn by LABOR. Where hops draw by relation or seeds have
// cutoffs, `hubs` are not used.
std::string SampleLabor(const GraphView& graph, const HubIndex& hubs, const Seeds& seeds,
                        LaborOptions options, bool relabel_inputs, std::vector<Hop>& hops,
                        const SampledNodes& sampled, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_H_
