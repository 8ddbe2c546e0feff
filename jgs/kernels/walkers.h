// What walks of first and second order share: the walks of a call, and the rows that they read.
#ifndef JGS_KERNELS_WALKERS_H_
#define JGS_KERNELS_WALKERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "draw_weighted.h"
#include "isa.h"
#include "line_search.h"
#include "walk.h"

namespace jgs {

constexpr uint32_t kJumps = 0xFFFFFFFF;  // the draw that decides about stop and restart

// The walks of a call. Each thread takes them in order, some at a time.
struct Walkers {
  const GraphView& graph;
  const Key key;
  const int32_t* roots;
  const int64_t* cutoff;  // [walks], or null
  // For each walk, the number of earlier walks with the same root and cutoff.
  const int32_t* number;
  const WalkOptions& options;
  int32_t *nodes, *lengths;
  // Null, or [walks, length] of walks of first order: the edge of each step, undefined where it
  // jumped and after the walk's end.
  int64_t* edges = nullptr;
  std::atomic<bool> bad{false};  // set if the graph's arrays are damaged

  int32_t* Path(int64_t walk) const { return nodes + walk * (options.length + 1); }

  Key KeyOf(int64_t walk) const {
    Key own{{static_cast<uint32_t>(roots[walk]), static_cast<uint32_t>(number[walk])}};
    Key of_call = key;
    if (cutoff != nullptr) {
      const uint64_t bits = static_cast<uint64_t>(cutoff[walk]);
      of_call = {{static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits)}};
      Threefry(key, of_call.word[0], of_call.word[1]);
    }
    Threefry(of_call, own.word[0], own.word[1]);
    return own;
  }

  // Ends a walk after `steps` steps.
  void End(int64_t walk, int64_t steps) const {
    int32_t* path = Path(walk);
    std::fill(path + steps + 1, path + options.length + 1,
              static_cast<int32_t>(graph.num_nodes));
    lengths[walk] = static_cast<int32_t>(steps);
  }

  // Begins a walk; false if it is padding and so has ended already.
  bool Begin(int64_t walk) const {
    Path(walk)[0] = roots[walk];
    if (roots[walk] < graph.num_nodes) return true;
    End(walk, 0);
    return false;
  }
};

// A range of edges: a row or a part of one.
struct EdgeRange {
  int64_t start;
  int32_t count;
};

// The range of these edges. It is empty, and `bad` is set, if they are not within the graph's.
inline EdgeRange RangeOf(const GraphView& graph, int64_t start, int64_t count,
                         std::atomic<bool>& bad) {
  if (start < 0 || count < 0 || count > std::numeric_limits<int32_t>::max() ||
      count > graph.num_edges - start) {
    bad.store(true);
    return {0, 0};
  }
  return {start, static_cast<int32_t>(count)};
}

// The row of a node.
inline EdgeRange RowOf(const GraphView& graph, int32_t node, std::atomic<bool>& bad) {
  const int64_t start = graph.indptr[node];
  return RangeOf(graph, start, graph.ends[node] - start, bad);
}

JGS_INLINE inline void PrefetchRow(const GraphView& graph, int32_t node) {
  __builtin_prefetch(&graph.indptr[node]);
  __builtin_prefetch(&graph.ends[node]);
}

// Walks [begin, end) of first order (walk.cc).
void WalkFirstOrder(Walkers& walkers, int64_t begin, int64_t end);

// Walks [begin, end) of second order (walk_second.cc).
void WalkSecondOrder(Walkers& walkers, int64_t begin, int64_t end);

}  // namespace jgs

#endif  // JGS_KERNELS_WALKERS_H_
