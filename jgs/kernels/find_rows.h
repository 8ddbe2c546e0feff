// How gather.cc and gather_aggregate.cc find stored rows, and the kind of their numbers.
#ifndef JGS_KERNELS_FIND_ROWS_H_
#define JGS_KERNELS_FIND_ROWS_H_

#include <cstdint>

#include "gather.h"
#include "stored.h"

namespace jgs {

// Row `row` of the tables, each below the one before; null if there is no such row.
template <typename E>
JGS_INLINE inline const E* FindRow(const StoredRows& rows, int64_t row) {
  if (row < 0) return nullptr;
  for (const Table& table : rows.tables) {
    if (row < table.num_rows) {
      return static_cast<const E*>(table.rows) + row * rows.num_features;
    }
    row -= table.num_rows;
  }
  return nullptr;
}

// body(stored), for the kind of the rows' numbers.
template <typename Body>
void OfElement(const StoredRows& rows, const Body& body) {
  if (rows.element == Element::kCode) return body(Codes{rows.scale, rows.offset});
  if (rows.element == Element::kHalf) return body(Halves{});
  body(Floating{});
}

}  // namespace jgs

#endif  // JGS_KERNELS_FIND_ROWS_H_
