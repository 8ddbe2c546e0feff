// Rows of a topology that is split over ranks: whom to ask for which, and the answers put
// together again.
//
// Plain C++: `jgs/dist/rows.py` holds the meaning, `rows_ffi.cc` the XLA binding.
#ifndef JGS_KERNELS_ROWS_H_
#define JGS_KERNELS_ROWS_H_

#include <cstdint>
#include <string>

namespace jgs {

struct Owners {
  const int32_t* offsets;  // [num_ranks + 1], not decreasing: rank r owns [r] to [r + 1]
  int64_t num_ranks;
  int64_t rank;      // the own one
  const bool* held;  // [num_held]: nodes whose rows are here, beside the own ones
  int64_t num_held;
};

// Sets own [num_nodes]: the nodes whose rows are here, the last offset in the place of others;
// requests [num_ranks, 1 + capacity]: in column 0 the most nodes that any one rank has to be
// asked for, then the nodes to ask each rank for, the first `capacity` of them, padded with the
// last offset; place [num_nodes]: r * capacity + i where the row is answer i of rank r, else -1.
void RouteRows(const Owners& owners, const int32_t* nodes, int64_t num_nodes, int64_t capacity,
               int32_t* own, int32_t* requests, int32_t* place);

struct Answers {
  const int32_t* place;        // [num_rows]
  const int32_t* own_indptr;   // [num_rows + 1]
  const int32_t* own_indices;  // [num_own]
  int64_t num_rows, num_own;
  // [num_ranks, 2 + capacity + edge_capacity]: two numbers that are not read here, where each
  // answer ends, and their neighbours.
  const int32_t* replies;
  int64_t num_ranks, capacity, edge_capacity;
  int32_t num_nodes;
};

// Sets indptr [num_rows + 1] and neighbors [room]: of each row the neighbours at its place, or
// the own ones; what exceeds the room is dropped, what is free becomes num_nodes. Returns what
// is wrong with the replies, or "".
std::string MergeRows(const Answers& answers, int64_t room, int32_t* indptr,
                      int32_t* neighbors);

}  // namespace jgs

#endif  // JGS_KERNELS_ROWS_H_
