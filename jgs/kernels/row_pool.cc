#include "row_pool.h"

#include <algorithm>
#include <memory>
#include <new>

namespace jgs {
namespace {

constexpr int kNone = 32;      // the list of rows that no known step needs
constexpr int64_t kAhead = 16;  // rows whose cache lines are prefetched

bool IsRow(const JgsRowPool& pool, int32_t row) { return row >= 0 && row < pool.num_rows; }

// The list of a row of which these steps are known, all after `step`.
int ListOf(uint32_t steps, int64_t step) {
  if (steps == 0) return kNone;
  const auto turn = static_cast<unsigned>((step + 1) % 32);
  const uint32_t turned = turn == 0 ? steps : (steps >> turn) | (steps << (32 - turn));
  return static_cast<int>((static_cast<unsigned>(__builtin_ctz(turned)) + turn) % 32);
}

void Leave(const JgsRowPool& pool, int32_t slot) {
  pool.after[pool.before[slot]] = pool.after[slot];
  pool.before[pool.after[slot]] = pool.before[slot];
}

void Join(const JgsRowPool& pool, int32_t slot, int list) {
  const auto end = static_cast<int32_t>(pool.capacity + list);
  pool.before[slot] = pool.before[end];
  pool.after[slot] = end;
  pool.after[pool.before[end]] = slot;
  pool.before[end] = slot;
}

// A slot for a row of `list`: one that has no row yet; or the first of the last list, if that is
// later, or both are the list of none. -1: there is none.
int32_t SlotFor(JgsRowPool* pool, int list, int64_t step) {
  if (pool->used < pool->capacity) return static_cast<int32_t>(pool->used++);
  const auto first = [&](int of) {
    const int32_t slot = pool->after[pool->capacity + of];
    return slot < pool->capacity ? slot : -1;
  };
  int32_t slot = first(kNone);
  const int64_t wait = list == kNone ? 31 : (list - step % 32 + 31) % 32;  // 0: the next step
  for (int64_t later = 31; slot < 0 && later > wait; --later) {
    slot = first(static_cast<int>((step + 1 + later) % 32));
  }
  if (slot < 0) return -1;
  Leave(*pool, slot);
  pool->slot[pool->row[slot]] = -1;
  return slot;
}

void Prefetch(const JgsRowPool& pool, const int32_t* rows, int64_t i, int64_t num) {
  if (i + kAhead >= num || !IsRow(pool, rows[i + kAhead])) return;
  __builtin_prefetch(pool.steps + rows[i + kAhead], 1);
  __builtin_prefetch(pool.slot + rows[i + kAhead], 1);
}

}  // namespace
}  // namespace jgs

void JgsPoolReset(JgsRowPool* pool) {
  std::fill(pool->steps, pool->steps + pool->num_rows, 0);
  for (int64_t list = pool->capacity; list < pool->capacity + 33; ++list) {
    pool->before[list] = pool->after[list] = static_cast<int32_t>(list);
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
    uint32_t& steps = pool->steps[rows[i]];
    const int32_t slot = pool->slot[rows[i]];
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
  int64_t num_found = 0;
  for (int64_t i = 0; i < num; ++i) {
    jgs::Prefetch(*pool, rows, i, num);
    place[i] = -1;
    if (!jgs::IsRow(*pool, rows[i])) continue;
    const uint32_t steps = pool->steps[rows[i]] &= others;
    const int32_t slot = pool->slot[rows[i]];
    if (slot < 0) {
      found[num_found++] = static_cast<uint64_t>(rows[i]) << 32 | static_cast<uint64_t>(i);
      continue;
    }
    place[i] = slot;
    if (slot < pool->pinned) continue;
    jgs::Leave(*pool, slot);
    jgs::Join(*pool, slot, jgs::ListOf(steps, step));
  }
  std::sort(found.get(), found.get() + num_found);
  int64_t last = -1;
  for (int64_t j = 0; j < num_found; ++j) {
    const auto row = static_cast<int32_t>(found[j] >> 32);
    if (last < 0 || missing[last] != row) missing[++last] = row;
    place[found[j] & 0xFFFFFFFF] = static_cast<int32_t>(pool->capacity + last);
  }
  number[0] = last + 1;
  for (int64_t j = 0; j <= last; ++j) {
    const int list = jgs::ListOf(pool->steps[missing[j]], step);
    const int32_t slot = jgs::SlotFor(pool, list, step);
    if (slot < 0) continue;
    pool->row[slot] = missing[j];
    pool->slot[missing[j]] = slot;
    jgs::Join(*pool, slot, list);
  }
  number[1] = 0;
  for (int64_t j = 0; j <= last; ++j) {  // here: a slot may have changed its row twice
    const int32_t slot = pool->slot[missing[j]];
    if (slot < 0) continue;
    from[number[1]] = static_cast<int32_t>(j);
    to[number[1]++] = slot;
  }
  return 0;
}
