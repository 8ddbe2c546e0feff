#include "insert.h"

#include <cstring>

void JgsInsert(const char* old, int64_t num_old, const char* added, const int64_t* at,
               int64_t num, int64_t item, int64_t first, int64_t last, char* out) {
  int64_t read = first == 0 ? 0 : at[first - 1];
  const auto copy = [&](int64_t from, int64_t to, int64_t inserted) {
    if (from == to) return;  // perhaps of no array at all
    std::memcpy(out + (from + inserted) * item, old + from * item,
                static_cast<size_t>((to - from) * item));
  };
  for (int64_t i = first; i < last; ++i) {
    copy(read, at[i], i);
    read = at[i];
    std::memcpy(out + (read + i) * item, added + i * item, static_cast<size_t>(item));
  }
  if (last == num) copy(read, num_old, num);
}

void JgsMoveRows(char* array, int64_t item, const int64_t* from, const int64_t* to,
                 const int64_t* count, int64_t num_moves, const char* added,
                 const int64_t* place, int64_t num_added) {
  for (int64_t i = 0; i < num_moves; ++i) {
    std::memmove(array + to[i] * item, array + from[i] * item,
                 static_cast<size_t>(count[i] * item));
  }
  for (int64_t i = 0; i < num_added; ++i) {
    std::memcpy(array + place[i] * item, added + i * item, static_cast<size_t>(item));
  }
}
