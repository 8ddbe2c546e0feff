// Contexts: at most `size` distinct nodes around each seed. jgs/sampling/contexts/hops.py and
// jgs/sampling/algorithms/context.py define the results; this is faster and equal bit for bit.
#ifndef JGS_KERNELS_CONTEXTS_H_
#define JGS_KERNELS_CONTEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "parallel.h"
#include "sample.h"

namespace jgs {

// The contexts [num_seeds, size] that were found; see Found in jgs/sampling/contexts/way.py.
struct FoundContexts {
  int64_t size;
  int32_t *nodes, *hop, *parent;
  int64_t* edge;
};

struct ContextHops {
  std::vector<Hop> hops;   // what each draws with; its arrays are set here
  const int64_t* widths;   // of each hop, the most edges that a node draws
  int64_t room;            // the most tokens of a context before it is cut to its size
  bool by_age;             // whether the youngest tokens are first
};

// Contexts hop by hop. Returns what is wrong with the input, or "".
std::string FindByHops(const GraphView& graph, const Seeds& seeds, const NeighborOptions& options,
                       ContextHops& by, const FoundContexts& found, const Executor& executor);

// The trees of contexts [num, size], from their nodes and each node's parent: the positions of
// the parents, `size` where there is none; and the rows of each row's children, [num * size + 1]
// and [num * size].
void ContextTrees(const int32_t* nodes, const int32_t* parent, int64_t num, int64_t size,
                  int64_t num_nodes, int32_t* place, int32_t* indptr, int32_t* children,
                  const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_CONTEXTS_H_
