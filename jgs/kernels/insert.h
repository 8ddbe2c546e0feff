// Elements inserted into an array. jgs/graph/changed.py calls it.
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
}

#endif  // JGS_KERNELS_INSERT_H_
