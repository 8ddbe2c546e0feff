// Rows of a topology that is split over ranks: the rank to request each row from, and how the
// replies are merged.
//
// Plain C++: `jgs/dist/batches/answers.py` defines the results, `rows_ffi.cc` has the XLA binding.
#ifndef JGS_KERNELS_ROWS_H_
#define JGS_KERNELS_ROWS_H_

#include <cstdint>
#include <string>

namespace jgs {

struct Owners {
  const int32_t* offsets;  // [num_ranks + 1], not decreasing: rank r owns [r] to [r + 1]
  int64_t num_ranks;
  int64_t rank;      // this rank
  const bool* held;  // [num_held]: nodes of other ranks whose rows are here too
  int64_t num_held;
};

// Sets own [num_nodes]: the nodes whose rows are here, and the last offset in place of the
// others. Sets requests [num_ranks, 1 + capacity]: column 0 has the largest number of nodes to
// request from one rank; then come the nodes to request from each rank, the first `capacity` of
// them, padded with the last offset. Sets place [num_nodes]: r * capacity + i if the row is
// reply i of rank r, else -1.
void RouteRows(const Owners& owners, const int32_t* nodes, int64_t num_nodes, int64_t capacity,
               int32_t* own, int32_t* requests, int32_t* place);

struct Answers {
  const int32_t* place;        // [num_rows]
  const int32_t* own_indptr;   // [num_rows + 1]
  const int32_t* own_indices;  // [num_own]
  int64_t num_rows, num_own;
  // [num_ranks, 2 + capacity + edge_capacity]: two numbers that are not read here, the end of
  // each reply, and the replies' neighbours.
  const int32_t* replies;
  int64_t num_ranks, capacity, edge_capacity;
  int32_t num_nodes;
};

// Sets indptr [num_rows + 1] and neighbors [room]: for each row the neighbours at its place, or
// those of this rank's row. Neighbours beyond the room are dropped, and free room is filled
// with num_nodes. Returns what is wrong with the replies, or "".
std::string MergeRows(const Answers& answers, int64_t room, int32_t* indptr,
                      int32_t* neighbors);

}  // namespace jgs

#endif  // JGS_KERNELS_ROWS_H_
