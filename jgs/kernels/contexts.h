// Contexts: rows of at most `room` distinct nodes, one for each seed. What they hold is defined by
// jgs/sampling/contexts/hops.py and jgs/sampling/algorithms/context.py.
#ifndef JGS_KERNELS_CONTEXTS_H_
#define JGS_KERNELS_CONTEXTS_H_

#include <cstdint>
#include <string>

#include "parallel.h"

namespace jgs {

// `num` contexts as far as they have grown: arrays [num, room], and [num] for begin and end.
struct Contexts {
  int64_t num, room;
  int32_t *nodes, *hop, *parent;
  int64_t* edge;
  int32_t *begin, *end;  // null where nobody asks
};

// What frontiers of `frontier` tokens for each context drew.
struct FrontierRows {
  const int32_t *indptr, *neighbors;
  const int64_t* ids;
  int64_t frontier, num_edges;
};

// Adds to each context the nodes that its frontier drew and that it does not have, as far as
// there is room. Returns what is wrong with the arrays, or "".
std::string AppendToContexts(const Contexts& contexts, const FrontierRows& rows, int32_t hop,
                             int64_t num_nodes, const Executor& executor);

// The first `size` tokens of each context, youngest first: arrays [num, size] of `sorted`. `time`
// [num_edges] are those of edges. Returns what is wrong with the arrays, or "".
std::string SortByAge(const Contexts& contexts, const int64_t* time, int64_t num_edges,
                      const Contexts& sorted, const Executor& executor);

// The trees of contexts [num, size], from their nodes and each node's parent: the positions of
// the parents, `size` where there is none; and the rows of each row's children, [num * size + 1]
// and [num * size].
void ContextTrees(const int32_t* nodes, const int32_t* parent, int64_t num, int64_t size,
                  int64_t num_nodes, int32_t* place, int32_t* indptr, int32_t* children,
                  const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_CONTEXTS_H_
