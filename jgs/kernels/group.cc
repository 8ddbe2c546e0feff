#include "group.h"

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "huge_pages.h"

namespace jgs {
namespace {

constexpr int64_t kAhead = 24;  // values whose cache lines are prefetched

// Calls body with a pointer of the integers' type.
template <typename Body>
auto Typed(const JgsInts& ints, const Body& body) {
  return ints.bytes == 4 ? body(static_cast<int32_t*>(ints.data))
                         : body(static_cast<int64_t*>(ints.data));
}

template <typename Int>
bool InRange(const Int* values, int64_t first, int64_t last, int64_t end) {
  using Unsigned = std::make_unsigned_t<Int>;
  Unsigned most = 0;  // a negative number becomes a large one
  for (int64_t i = first; i < last; ++i) {
    most = std::max(most, static_cast<Unsigned>(values[i]));
  }
  return first == last || most < static_cast<uint64_t>(end);
}

template <typename Position>
void Sort(int64_t count, int64_t first, int64_t first_key, int64_t num_keys,
          const JgsInts& values, int32_t* spread, Position* order, int64_t* ends) {
  const auto place = [&](const auto* value) {
    if (num_keys == 1) {
      ends[0] = first + count;
      if (value == nullptr) return;
      for (int64_t i = 0; i < count; ++i) spread[i] = static_cast<int32_t>(value[order[i]]);
      return;
    }
    const std::unique_ptr<int32_t[]> keys(new int32_t[count]);
    const std::unique_ptr<Position[]> positions(new Position[count]);
    std::copy(spread, spread + count, keys.get());
    std::copy(order, order + count, positions.get());
    std::fill(ends, ends + num_keys, 0);
    for (int64_t i = 0; i < count; ++i) ++ends[keys[i] - first_key];
    int64_t begin = 0;  // the beginning of each group; adding its keys moves it to the end
    for (int64_t k = 0; k < num_keys; ++k) begin += std::exchange(ends[k], begin);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = ends[keys[i] - first_key]++;
      order[slot] = positions[i];
      if (value == nullptr) continue;
      if (i + kAhead < count) __builtin_prefetch(value + positions[i + kAhead]);
      spread[slot] = static_cast<int32_t>(value[positions[i]]);
    }
    for (int64_t k = 0; k < num_keys; ++k) ends[k] += first;
  };
  Typed(values, place);
}

}  // namespace
}  // namespace jgs

int64_t JgsGroupCount(JgsInts keys, JgsInts values, int64_t first, int64_t last,
                      int64_t num_keys, int64_t shift, int64_t* counts) {
  const auto good = [&](const auto* data) {
    return data == nullptr || jgs::InRange(data, first, last, num_keys);
  };
  // A piece at a time, so that checked keys are still in the cache when they are counted.
  const int64_t piece = 1 << 14, end = last;
  for (; first < end; first = last) {
    last = std::min(end, first + piece);
    if (!jgs::Typed(keys, good) || !jgs::Typed(values, good)) return 1;
    jgs::Typed(keys, [&](const auto* key) {
      for (int64_t i = first; i < last; ++i) ++counts[key[i] >> shift];
    });
  }
  return 0;
}

void JgsGroupSpread(JgsInts keys, int64_t first, int64_t last, int64_t shift, int64_t* next,
                    int32_t* spread, JgsInts order) {
  jgs::Typed(keys, [&](const auto* key) {
    jgs::Typed(order, [&](auto* position) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t slot = next[key[i] >> shift]++;
        spread[slot] = static_cast<int32_t>(key[i]);
        position[slot] = static_cast<std::remove_reference_t<decltype(*position)>>(i);
      }
    });
  });
}

int64_t JgsGroupSort(int64_t first, int64_t last, int64_t first_key, int64_t num_keys,
                     JgsInts values, int32_t* spread, JgsInts order, int64_t* ends) {
  try {
    jgs::Typed(order, [&](auto* position) {
      jgs::Sort(last - first, first, first_key, num_keys, values, spread + first,
                position + first, ends);
    });
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}

void JgsGroupResult(void* data, int64_t bytes) {
  jgs::AdviseHugePages(data, static_cast<size_t>(bytes));
}
