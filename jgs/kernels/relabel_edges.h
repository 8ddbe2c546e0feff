// Local ids for given edges: the part of sample.cc that comes after the draws, as a kernel.
#ifndef JGS_KERNELS_RELABEL_EDGES_H_
#define JGS_KERNELS_RELABEL_EDGES_H_

#include <cstdint>
#include <string>

#include "parallel.h"

namespace jgs {

struct EdgeList {
  const int32_t* targets;  // [num_targets], may repeat
  int64_t num_targets;
  const int32_t* neighbors;  // [num_edges]
  int64_t num_edges;
};

struct Sources {
  int64_t capacity, edge_capacity;
  int32_t padding;
  int32_t* nodes;    // [capacity]
  int32_t* indices;  // [edge_capacity]
  int64_t count;     // a result: the number of nodes, or capacity + 1 if they do not fit
};

// The nodes are the targets, then every other neighbour in the order of first appearance. The
// indices are the places of the neighbours among the nodes (the first of a repeated target).
// The rest of `nodes` is padding, and the rest of `indices` is the capacity. If the nodes do
// not fit, all of both is. Returns what is wrong with the input, or "".
std::string RelabelEdges(const EdgeList& edges, Sources& sources, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_RELABEL_EDGES_H_
