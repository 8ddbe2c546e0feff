// Elements inserted into an array, and moved in it. jgs/graph/changed.py and
// jgs/graph/live/rows.py call it.
#ifndef JGS_KERNELS_INSERT_H_
#define JGS_KERNELS_INSERT_H_

#include <cstdint>

extern "C" {

// Writes to `out` the elements of `old` [num_old] with `added` [num] inserted among them: added[i]
// stands before old[at[i]], where `at` ascends from 0 to at most num_old. An element has `item`
// bytes. This call writes those from added[first - 1] on, which it does not, to added[last - 1];
// and if last is num, the rest of `old`.
void JgsInsert(const char* old, int64_t num_old, const char* added, const int64_t* at,
               int64_t num, int64_t item, int64_t first, int64_t last, char* out);

// Moves in `array`, whose elements have `item` bytes, count[i] elements from the place from[i] to
// to[i], which may overlap, for one i after the other. Then writes added[i] to place[i].
void JgsMoveRows(char* array, int64_t item, const int64_t* from, const int64_t* to,
                 const int64_t* count, int64_t num_moves, const char* added,
                 const int64_t* place, int64_t num_added);
}

#endif  // JGS_KERNELS_INSERT_H_
