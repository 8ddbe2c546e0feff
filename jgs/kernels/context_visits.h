// Contexts of the nodes that random walks with restart from each seed visit most.
// jgs/sampling/contexts/visits.py defines the results; this is faster and equal bit for bit.
#ifndef JGS_KERNELS_CONTEXT_VISITS_H_
#define JGS_KERNELS_CONTEXT_VISITS_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"
#include "walk.h"

namespace jgs {

// The fields of `Found` in jgs/sampling/contexts/way.py, [num_seeds, size] each.
struct Contexts {
  int64_t size;
  int32_t *nodes, *hop, *parent;
  int64_t* edge;
};

// Finds the contexts of the seeds (num_nodes for padding), by `num_walks` walks of first order
// from each, of fewer than 2**31 steps together. Returns what is wrong with the input, or "".
std::string FindMostVisited(const GraphView& graph, Key key, const Seeds& seeds,
                            const WalkOptions& options, int64_t num_walks,
                            const Contexts& contexts, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_CONTEXT_VISITS_H_
