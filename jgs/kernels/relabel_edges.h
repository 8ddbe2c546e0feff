// Local ids for edges that are there already: what sample.cc does while it draws, on its own.
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
  int64_t count;     // a result: of the nodes, or capacity + 1 if they do not fit
};

// The nodes: the targets, then every other neighbour in the order of first appearance. The
// indices: each neighbour's place among them (the first of a repeated target). The rest of
// `nodes` is padding, of `indices` the capacity; all of them if the nodes do not fit. Returns
// what is wrong with the input, or "".
std::string RelabelEdges(const EdgeList& edges, Sources& sources, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_RELABEL_EDGES_H_
