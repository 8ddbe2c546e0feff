// The nodes of subgraphs by frontier sampling, with the Dashboard. The meaning is
// jgs/sampling/algorithms/frontier.py; this is its speed, equal bit for bit.
#ifndef JGS_KERNELS_FRONTIER_H_
#define JGS_KERNELS_FRONTIER_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"

namespace jgs {

struct FrontierOptions {
  int64_t size, pops;   // nodes of the frontier; how many are popped at most
  int64_t degree_cap;
  // The table is cleaned up where it is longer than so many 1024ths of its live entries.
  int64_t enlargement;
};

// What is wrong with the options, or "".
std::string CheckFrontier(const FrontierOptions& options);

// The distinct nodes of the subgraphs by each of keys [num_subgraphs, 2], ascending: nodes
// [num_subgraphs, room], padded with num_nodes, and counts [num_subgraphs]; of those beyond
// `room` none is written. A thread draws a subgraph alone. Returns what is wrong with the
// graph, or "".
std::string SampleFrontiers(const GraphView& graph, const uint32_t* keys, int64_t num_subgraphs,
                            const FrontierOptions& options, int64_t room, int32_t* nodes,
                            int32_t* counts, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_FRONTIER_H_
