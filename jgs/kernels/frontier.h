// The nodes of subgraphs by frontier sampling, with the Dashboard.
// jgs/sampling/algorithms/frontier.py defines the results; this is faster and equal bit for
// bit.
#ifndef JGS_KERNELS_FRONTIER_H_
#define JGS_KERNELS_FRONTIER_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"

namespace jgs {

struct FrontierOptions {
  int64_t size, pops;   // nodes of the frontier; the largest number of pops
  int64_t degree_cap;
  // The table is cleaned up when it is longer than this many 1024ths of its live entries.
  int64_t enlargement;
};

// What is wrong with the options, or "" if nothing is.
std::string CheckFrontier(const FrontierOptions& options);

// The distinct nodes of one subgraph for each of the keys [num_subgraphs, 2], ascending: nodes
// [num_subgraphs, room], padded with num_nodes, and counts [num_subgraphs]. Of a subgraph with
// more than `room` nodes none is written. One thread draws a whole subgraph. Returns what is
// wrong with the graph, or "".
std::string SampleFrontiers(const GraphView& graph, const uint32_t* keys, int64_t num_subgraphs,
                            const FrontierOptions& options, int64_t room, int32_t* nodes,
                            int32_t* counts, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_FRONTIER_H_
