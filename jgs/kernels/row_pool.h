// Which rows of a table on disk stay in memory: those that are used again first.
//
// Belady's rule ("A study of replacement algorithms for a virtual-storage computer", IBM Systems
// Journal 1966) with a window: the steps of the next 31 batches at most are known. A pool has
// `capacity` slots, of a row each. A row that a step needs and that has no slot is missing: it is
// read, and gets the slot of the row that is needed last, if that is later. Rows that no known
// step needs leave before all others, the one that was used longest ago first.
//
// Plain C++ without threads. `jgs/sampling/loading/disk_table.py` calls it, owns the arrays, and
// has the same in NumPy.
#ifndef JGS_KERNELS_ROW_POOL_H_
#define JGS_KERNELS_ROW_POOL_H_

#include <cstdint>

extern "C" {

struct JgsRow {
  uint32_t steps;  // a bit for each known step that needs the row; step `t` has the number t % 32
  int32_t slot;    // -1: none
};

// A row's list is that of the next known step that needs it, or the list 32, of none. A list is a
// circle of slots that begins and ends at `capacity + list`.
struct JgsLinks {
  int32_t before, after;
};

struct JgsRowPool {
  int64_t num_rows;
  int64_t capacity;
  int64_t pinned;   // the first slots, whose rows never leave
  int64_t used;     // how many slots have a row, the first ones
  JgsRow* rows;     // [num_rows]
  int32_t* row;     // [capacity], the row in a slot
  JgsLinks* links;  // [capacity + 33]
};

// Puts the rows that have slots, but for the pinned ones, on the list of none, and forgets what
// is known of steps.
void JgsPoolReset(JgsRowPool* pool);

// Makes known that `step`, later than all known ones, needs `rows` [num]. Others than [0,
// num_rows) are padding.
void JgsPoolSee(JgsRowPool* pool, const int32_t* rows, int64_t num, int64_t step);

// Passes over `step`, the first known one, whose rows are these. Sets for each of them its
// `place`: its slot, capacity + j for the j-th missing row, -1 for padding. Sets `missing` to the
// missing rows, ascending, each once, and `number` to how many there are, and how many of them
// get slots: missing[from[i]] the slot to[i], no slot twice. A slot that was a place of this
// step may be among those. All arrays have `num` entries. Returns 0, or 1 if memory is short,
// with nothing done.
int64_t JgsPoolTake(JgsRowPool* pool, const int32_t* rows, int64_t num, int64_t step,
                    int32_t* place, int32_t* missing, int32_t* from, int32_t* to,
                    int64_t* number);
}

#endif  // JGS_KERNELS_ROW_POOL_H_
