// Which rank has the feature row of each of a batch's nodes.
//
// Plain C++: `jgs/dist/route.py` holds the meaning, `route_ffi.cc` the XLA binding.
#ifndef JGS_KERNELS_ROUTE_H_
#define JGS_KERNELS_ROUTE_H_

#include <cstdint>

namespace jgs {

struct Routing {
  const int32_t* offsets = nullptr;  // [num_ranks + 1], not decreasing: r owns [r] to [r + 1]
  int64_t num_ranks = 0;
  int64_t rank = 0;                    // the own one
  const int32_t* cache_slot = nullptr;  // [num_slots]: a node's row in the cache, or -1
  int64_t num_slots = 0;
  int64_t num_own = 0, num_cached = 0;  // rows of the own tables, of the cache
  int64_t capacity = 0;                // requests to a rank in a round
  int64_t round = 0;
};

// Sets requests [num_ranks, capacity + 1]: the nodes to ask each rank for in this round, padded
// with the last offset, and in the last column the most that one rank is asked for in all
// rounds; and place [num_nodes]: each node's row among the own rows, the cache's and the replies
// [num_ranks * capacity], -1 for padding and for the nodes of another round.
void Route(const Routing& routing, const int32_t* nodes, int64_t num_nodes, int32_t* requests,
           int32_t* place);

}  // namespace jgs

#endif  // JGS_KERNELS_ROUTE_H_
