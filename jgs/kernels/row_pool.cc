#include "row_pool.h"

#include <algorithm>
#include <memory>
#include <new>

#include "isa.h"

namespace jgs {
namespace {

constexpr int kNone = 32;      // the list of rows that no known step needs
constexpr int64_t kAhead = 16;  // rows whose cache lines are prefetched

bool IsRow(const JgsRowPool& pool, int32_t row) { return row >= 0 && row < pool.num_rows; }

// The lists of rows by the steps that are known, all after `step`. It uses a rotation and a table,
// for a branch could not be predicted.
class Lists {
 public:
  explicit Lists(int64_t step) : turn_(static_cast<unsigned>((step + 1) % 32)) {
    for (unsigned wait = 0; wait < 32; ++wait) list_[wait] = static_cast<int>((wait + turn_) % 32);
    list_[32] = kNone;
  }

  int Of(uint32_t steps) const {
    const uint32_t turned = (steps >> turn_) | (steps << ((32 - turn_) % 32));
    return list_[__builtin_ctzll(turned | uint64_t{1} << 32)];
  }

 private:
  unsigned turn_;
  int list_[33];
};

void Leave(const JgsRowPool& pool, int32_t slot) {
  const JgsLinks links = pool.links[slot];
  pool.links[links.before].after = links.after;
  pool.links[links.after].before = links.before;
}

void Join(const JgsRowPool& pool, int32_t slot, int list) {
  const auto end = static_cast<int32_t>(pool.capacity + list);
  const int32_t last = pool.links[end].before;
  pool.links[slot] = {last, end};
  pool.links[last].after = slot;
  pool.links[end].before = slot;
}

// A slot for a row of `list`: one that has no row yet; or the first of the last list, if that is
// later, or both are the list of none. -1: there is none.
int32_t SlotFor(JgsRowPool* pool, int list, int64_t step) {
  if (pool->used < pool->capacity) return static_cast<int32_t>(pool->used++);
  const auto first = [&](int of) {
    const int32_t slot = pool->links[pool->capacity + of].after;
    return slot < pool->capacity ? slot : -1;
  };
  int32_t slot = first(kNone);
  const int64_t wait = list == kNone ? 31 : (list - step % 32 + 31) % 32;  // 0: the next step
  for (int64_t later = 31; slot < 0 && later > wait; --later) {
    slot = first(static_cast<int>((step + 1 + later) % 32));
  }
  if (slot < 0) return -1;
  Leave(*pool, slot);
  pool->rows[pool->row[slot]].slot = -1;
  return slot;
}

JGS_INLINE inline void Prefetch(const JgsRowPool& pool, const int32_t* rows, int64_t i,
                                int64_t num) {
  if (i + kAhead < num && IsRow(pool, rows[i + kAhead])) {
    __builtin_prefetch(pool.rows + rows[i + kAhead], 1);
  }
}

// Moves each of the `slots` [num] to the end of its list, one after the other.
void Move(const JgsRowPool& pool, const int32_t* slots, const int32_t* lists, int64_t num) {
  for (int64_t i = 0; i < num; ++i) {
    if (i + 2 * kAhead < num) __builtin_prefetch(pool.links + slots[i + 2 * kAhead], 1);
    if (i + kAhead < num) {
      const JgsLinks links = pool.links[slots[i + kAhead]];
      __builtin_prefetch(pool.links + links.before, 1);
      __builtin_prefetch(pool.links + links.after, 1);
    }
    Leave(pool, slots[i]);
    Join(pool, slots[i], lists[i]);
  }
}

}  // namespace
}  // namespace jgs

void JgsPoolReset(JgsRowPool* pool) {
  for (int64_t row = 0; row < pool->num_rows; ++row) pool->rows[row].steps = 0;
  for (int64_t list = pool->capacity; list < pool->capacity + 33; ++list) {
    pool->links[list] = {static_cast<int32_t>(list), static_cast<int32_t>(list)};
  }
  for (int64_t slot = pool->pinned; slot < pool->used; ++slot) {
    jgs::Join(*pool, static_cast<int32_t>(slot), jgs::kNone);
  }
}

void JgsPoolSee(JgsRowPool* pool, const int32_t* rows, int64_t num, int64_t step) {
  const auto list = static_cast<int>(step % 32);
  for (int64_t i = 0; i < num; ++i) {
    jgs::Prefetch(*pool, rows, i, num);
    if (!jgs::IsRow(*pool, rows[i])) continue;
    auto& [steps, slot] = pool->rows[rows[i]];
    if (steps == 0 && slot >= pool->pinned) {
      jgs::Leave(*pool, slot);
      jgs::Join(*pool, slot, list);
    }
    steps |= uint32_t{1} << list;
  }
}

int64_t JgsPoolTake(JgsRowPool* pool, const int32_t* rows, int64_t num, int64_t step,
                    int32_t* place, int32_t* missing, int32_t* from, int32_t* to,
                    int64_t* number) {
  // A missing row in the upper half, and which of the rows it is.
  const std::unique_ptr<uint64_t[]> found(new (std::nothrow) uint64_t[num]);
  if (found == nullptr) return 1;
  const uint32_t others = ~(uint32_t{1} << (step % 32));
  const jgs::Lists of_steps(step);
  int32_t* list = missing;  // of each row, until those are set
  for (int64_t i = 0; i < num; ++i) {
    jgs::Prefetch(*pool, rows, i, num);
    place[i] = -1;
    if (!jgs::IsRow(*pool, rows[i])) continue;
    auto& [steps, slot] = pool->rows[rows[i]];
    steps &= others;
    place[i] = slot;
    list[i] = of_steps.Of(steps);
  }
  // A loop of its own, for where it writes depends on what was read from all over the memory.
  int64_t num_found = 0, num_kept = 0;
  int32_t *kept = from, *lists = to;  // of the rows that have slots, until those are set
  for (int64_t i = 0; i < num; ++i) {
    kept[num_kept] = place[i];
    lists[num_kept] = list[i];
    found[num_found] = static_cast<uint64_t>(rows[i]) << 32 | static_cast<uint64_t>(i);
    num_kept += place[i] >= pool->pinned && place[i] >= 0;
    num_found += place[i] < 0 && jgs::IsRow(*pool, rows[i]);
  }
  jgs::Move(*pool, kept, lists, num_kept);
  std::sort(found.get(), found.get() + num_found);
  int64_t last = -1;
  for (int64_t j = 0; j < num_found; ++j) {
    const auto row = static_cast<int32_t>(found[j] >> 32);
    if (last < 0 || missing[last] != row) missing[++last] = row;
    place[found[j] & 0xFFFFFFFF] = static_cast<int32_t>(pool->capacity + last);
  }
  number[0] = last + 1;
  for (int64_t j = 0; j <= last; ++j) {
    const int list = of_steps.Of(pool->rows[missing[j]].steps);
    const int32_t slot = jgs::SlotFor(pool, list, step);
    if (slot < 0) continue;
    pool->row[slot] = missing[j];
    pool->rows[missing[j]].slot = slot;
    jgs::Join(*pool, slot, list);
  }
  number[1] = 0;
  for (int64_t j = 0; j <= last; ++j) {  // here: a slot may have changed its row twice
    const int32_t slot = pool->rows[missing[j]].slot;
    if (slot < 0) continue;
    from[number[1]] = static_cast<int32_t>(j);
    to[number[1]++] = slot;
  }
  return 0;
}
