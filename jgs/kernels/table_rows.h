// Updates of some rows of a table (jgs/dist/rows/split.py).
#ifndef JGS_KERNELS_TABLE_ROWS_H_
#define JGS_KERNELS_TABLE_ROWS_H_

#include <cstdint>

#include "parallel.h"

namespace jgs {

// `rows` [M, width]: row i belongs to row ids[i] of a table of `num_slots` rows. An id outside
// the table belongs nowhere.
struct EqualRows {
  int64_t num_rows, width, num_slots, capacity;
  const int32_t* ids;  // [M]
  const float* rows;
};

// Writes the touched rows of the table to `touched` [capacity], each once, in the order of
// their first occurrence, followed by -1. Writes their sums, each in the order of `rows`, to
// `total` [capacity, width], followed by zeros. Returns the number of touched rows. `slots`
// [num_slots] may have any contents, which are changed. `capacity` is at least M.
int32_t AddEqualRows(const Executor& executor, const EqualRows& equal, int32_t* slots,
                     int32_t* touched, float* total);

// Copies `rows` [count, width] to the rows `ids` of `table` [num_slots, width]. Ids outside the
// table are ignored; the others must be distinct.
void PutRows(const Executor& executor, const float* rows, const int32_t* ids, int64_t count,
             int64_t width, float* table, int64_t num_slots);

}  // namespace jgs

#endif  // JGS_KERNELS_TABLE_ROWS_H_
