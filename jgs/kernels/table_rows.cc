#include "table_rows.h"

#include <algorithm>

#include "isa.h"
#include "scratch.h"

namespace jgs {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr int64_t kAhead = 4;  // rows that are prefetched before they are added

}  // namespace

int32_t AddEqualRows(const Executor& executor, const EqualRows& e, int32_t* slots,
                     int32_t* touched, float* total) {
  thread_local Scratch<int32_t> integers;
  integers.Reserve(3 * e.num_rows + 2);
  int32_t* place = integers.data();          // [M]: the position of each row's sum, or -1
  int32_t* order = place + e.num_rows;       // [M]: the rows, by the position of their sum
  int32_t* begin = order + e.num_rows;       // [num + 2]: where each sum's rows begin in `order`
  int32_t num = 0;
  for (int64_t i = 0; i < e.num_rows; ++i) {
    const int32_t id = e.ids[i];
    place[i] = -1;
    if (id < 0 || id >= e.num_slots) continue;
    const auto slot = static_cast<uint32_t>(slots[id]);
    if (slot < static_cast<uint32_t>(num) && touched[slot] == id) {
      place[i] = static_cast<int32_t>(slot);
      ++begin[slot + 2];
    } else {  // the first row of this id, whatever `slots` contained
      slots[id] = place[i] = num;
      touched[num] = id;
      begin[num + 2] = 1;
      ++num;
    }
  }
  std::fill(touched + num, touched + e.capacity, -1);
  begin[0] = begin[1] = 0;
  for (int32_t s = 0; s < num; ++s) begin[s + 2] += begin[s + 1];
  for (int64_t i = 0; i < e.num_rows; ++i) {
    if (place[i] >= 0) order[begin[place[i] + 1]++] = static_cast<int32_t>(i);
  }
  const Isa isa = std::min(BestIsa(), Isa::kAvx2);
  const int64_t num_chunks = (e.capacity + kRowsAtOnce - 1) / kRowsAtOnce, width = e.width;
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const int64_t first = chunk * kRowsAtOnce, last = std::min(e.capacity, first + kRowsAtOnce);
    const int64_t sums = std::max<int64_t>(first, std::min<int64_t>(last, num));
    RunOn(isa, [&]() JGS_INLINE {
      for (int64_t s = first; s < sums; ++s) {
        float* out = total + s * width;
        for (int32_t n = begin[s]; n < begin[s + 1]; ++n) {
          if (n + kAhead < begin[sums]) {
            const float* next = e.rows + order[n + kAhead] * width;
            for (int64_t f = 0; f < width; f += 16) __builtin_prefetch(next + f);
          }
          const float* row = e.rows + order[n] * width;
          if (n == begin[s]) {
            std::copy(row, row + width, out);
          } else {
            for (int64_t f = 0; f < width; ++f) out[f] += row[f];
          }
        }
      }
    });
    std::fill(total + sums * width, total + last * width, 0.0f);
  });
  return num;
}

void PutRows(const Executor& executor, const float* rows, const int32_t* ids, int64_t count,
             int64_t width, float* table, int64_t num_slots) {
  const int64_t num_chunks = (count + kRowsAtOnce - 1) / kRowsAtOnce;
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const int64_t last = std::min(count, (chunk + 1) * kRowsAtOnce);
    for (int64_t i = chunk * kRowsAtOnce; i < last; ++i) {
      if (ids[i] >= 0 && ids[i] < num_slots) {
        std::copy_n(rows + i * width, width, table + ids[i] * width);
      }
    }
  });
}

}  // namespace jgs
