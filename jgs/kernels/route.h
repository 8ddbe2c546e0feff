// The rank that has the feature row of each of a batch's nodes.
//
// Plain C++: `jgs/dist/rows/owners.py` defines the results, `route_ffi.cc` has the XLA binding.
#ifndef JGS_KERNELS_ROUTE_H_
#define JGS_KERNELS_ROUTE_H_

#include <cstdint>

namespace jgs {

struct Routing {
  const int32_t* offsets = nullptr;  // [num_ranks + 1], not decreasing: r owns [r] to [r + 1]
  int64_t num_ranks = 0;
  int64_t rank = 0;                    // this rank
  const int32_t* cache_slot = nullptr;  // [num_slots]: a node's row in the cache, or -1
  int64_t num_slots = 0;
  int64_t num_own = 0, num_cached = 0;  // rows of this rank's tables, and of the cache
  int64_t capacity = 0;                // the number of requests to a rank in a round
  int64_t round = 0;
};

// Sets requests [num_ranks, capacity + 1]: the nodes to request from each rank in this round,
// padded with the last offset; the last column has the largest number of requests to one rank
// in all rounds. Sets place [num_nodes]: each node's row among this rank's rows, the cache's
// rows and the replies [num_ranks * capacity]; -1 for padding and for the nodes of another
// round.
void Route(const Routing& routing, const int32_t* nodes, int64_t num_nodes, int32_t* requests,
           int32_t* place);

}  // namespace jgs

#endif  // JGS_KERNELS_ROUTE_H_
