// The nodes that short random walks from each target visit most, walked and counted in one
// pass. jgs/sampling/algorithms/visits.py defines the results; this is faster and equal bit for
// bit.
#ifndef JGS_KERNELS_VISITS_H_
#define JGS_KERNELS_VISITS_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"
#include "threefry.h"

namespace jgs {

// Nodes that are ranked together, and the number of them that are wanted.
struct VisitGroup {
  int64_t size;
  const int64_t* bounds;  // [num_bounds] ascending: where each range of their ids begins and ends
  int64_t num_bounds;
};

struct VisitOptions {
  int64_t num_walks, length;  // the walks of each target; the traversals of each walk
  uint64_t stop;              // before each traversal but the first, a 32-bit word below it ends
                              // the walk
  const int16_t* edge_type;   // [num_edges], rows ascending; not read if there is no path
  const int64_t* path;        // [num_path] the edge types of a traversal's steps. Empty: it is one
  int64_t num_path;           // step along any edge
  const VisitGroup* groups;   // [num_groups], without overlap
  int64_t num_groups;
  Limits limits;
};

// For each of `targets` ([num_targets]; ids that are no nodes are padding) and each group in
// turn, the most visited nodes and their numbers of visits: nodes and counts [num_targets, sum
// of the groups' sizes], padded with num_nodes and 0. Returns what is wrong with the input, or
// "".
std::string MostVisited(const GraphView& graph, Key key, const int32_t* targets,
                        int64_t num_targets, const VisitOptions& options, int32_t* nodes,
                        int32_t* counts, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_VISITS_H_
