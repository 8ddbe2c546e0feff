// The graph that a list of nodes induces, in compressed columns.
#ifndef JGS_KERNELS_INDUCED_H_
#define JGS_KERNELS_INDUCED_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"

namespace jgs {

struct Induced {
  const int32_t* nodes;   // [num_rows]; ids outside [0, num_nodes) have no edges
  int64_t num_rows;
  const int32_t* groups;  // [num_groups + 1] ascending; nodes before the first and from the
  int64_t num_groups;     // last one on are in no group and have no edges
  bool sorted;            // whether every row of the graph is in ascending order
  bool by_row;            // whether a weight is multiplied by the number of its row's edges
  int64_t room;           // the room for edges of the results
  int32_t* indptr;        // [num_rows + 1]
  int32_t* indices;       // [room] rows, num_rows in padding
  int64_t* edge_id;       // [room], num_edges in padding; or null
  float* edge_weight;     // [room], the graph's, 0 in padding; or null
  int64_t needed;         // a result: the number of edges
};

// The edges between nodes of one group, in the order of the targets' rows, and within a row in
// the graph's order. If a node is twice in a group, its first place is the source. Nothing is
// written if the edges exceed the room. Returns what is wrong, or "".
//
// A row is read, and each of its neighbours is looked up. If the row is sorted and so long that
// this costs more, each node of the group is searched for in the row.
std::string InducedBlock(const GraphView& graph, Induced& block, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_INDUCED_H_
