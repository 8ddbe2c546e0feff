#include "relabel.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace jgs {
namespace {

constexpr int64_t kAhead = 24;         // how many entries ahead are prefetched
constexpr int64_t kPiece = 1 << 15;    // entries cleared at a time
constexpr int64_t kStretch = 1 << 10;  // edges that are examined at a time

}  // namespace

// A small Entry is read and written whole. A large one gets its id first, and then its label.
template <typename Id>
inline typename RelabelerOf<Id>::Entry RelabelerOf<Id>::Load(uint32_t place) const {
  const Entry& at = table_[place];
  Entry entry;
  if constexpr (kWide) {
    entry.id = __atomic_load_n(reinterpret_cast<const Wide*>(&at.id), __ATOMIC_RELAXED);
    entry.label = __atomic_load_n(reinterpret_cast<const Half*>(&at.label), __ATOMIC_RELAXED);
  } else {
    const uint64_t word = __atomic_load_n(reinterpret_cast<const Word*>(&at), __ATOMIC_RELAXED);
    std::memcpy(&entry, &word, sizeof entry);
  }
  return entry;
}

// Makes a free entry that of `desired`; false if it is no longer free. A large one then still has
// to get its label. Sets `expected` to what was there.
template <typename Id>
inline bool RelabelerOf<Id>::Claim(uint32_t place, Entry& expected, Entry desired) {
  if constexpr (kWide) {
    const bool done = __atomic_compare_exchange_n(
        reinterpret_cast<Wide*>(&table_[place].id), reinterpret_cast<Wide*>(&expected.id),
        desired.id, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    expected.label = Load(place).label;
    return done;
  }
  return Lower(place, expected, desired);
}

// Replaces an entry's label; false if the entry is no longer `expected`, which is then set.
template <typename Id>
inline bool RelabelerOf<Id>::Lower(uint32_t place, Entry& expected, Entry desired) {
  if constexpr (kWide) {
    return __atomic_compare_exchange_n(reinterpret_cast<Half*>(&table_[place].label),
                                       reinterpret_cast<Half*>(&expected.label), desired.label,
                                       false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  } else {
    uint64_t before, after;
    std::memcpy(&before, &expected, sizeof before);
    std::memcpy(&after, &desired, sizeof after);
    const bool done = __atomic_compare_exchange_n(reinterpret_cast<Word*>(&table_[place]),
                                                  &before, after, false, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED);
    std::memcpy(&expected, &before, sizeof before);
    return done;
  }
}

template <typename Id>
int64_t RelabelerOf<Id>::Reset(int64_t capacity, int64_t num_nodes, int64_t num_threads) {
  // At most three quarters full, with room for what threads insert before they report it. 2**31
  // entries are enough for all possible node ids.
  const int64_t most = capacity + kUnreported * num_threads;
  int bits = 10;
  while (bits < 31 && int64_t{3} << bits < 8 * most) ++bits;
  const int64_t size = int64_t{1} << bits;
  per_era_ = static_cast<uint32_t>(num_nodes + 1);
  table_.Reserve(size);
  shift_ = 32 - bits;
  mask_ = static_cast<uint32_t>(size - 1);
  piece_ = std::min(size, kPiece);
  return size / piece_;
}

template <typename Id>
void RelabelerOf<Id>::Clear(int64_t piece) {
  static_assert(kEmpty == -1, "an entry of ones is free");
  std::memset(static_cast<void*>(&table_[piece * piece_]), 0xFF, piece_ * sizeof(Entry));
}

template <typename Id>
void RelabelerOf<Id>::AddTargets(const int32_t* targets, const int32_t* era,
                                 int64_t num_targets) {
  const auto era_of = [=](int64_t i) { return era != nullptr ? era[i] : 0; };
  for (int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) Prefetch(targets[i + kAhead], era_of(i + kAhead));
    const Id id = IdOf(targets[i], era_of(i));
    uint32_t s = Home(id);
    while (table_[s].id != kEmpty && table_[s].id != id) s = (s + 1) & mask_;
    if (table_[s].id == kEmpty) table_[s] = {id, static_cast<uint32_t>(i)};
  }
  num_known_ = num_targets;
}

template <typename Id>
void RelabelerOf<Id>::Begin(const std::vector<int64_t>& starts, int64_t capacity) {
  starts_ = &starts;
  num_chunks_ = static_cast<int64_t>(starts.size()) - 1;
  if (static_cast<int64_t>(chunks_.size()) < num_chunks_) chunks_.resize(num_chunks_);
  for (int64_t c = 0; c < num_chunks_; ++c) {
    chunks_[c].firsts.clear();
    chunks_[c].num_lost = chunks_[c].unreported = 0;
  }
  capacity_ = capacity;
  known_.store(num_known_, std::memory_order_relaxed);
}

template <typename Id>
bool RelabelerOf<Id>::Insert(int64_t chunk, int64_t edge, int32_t* neighbors,
                             const int32_t* era, int count) {
  // If the table is full nothing is inserted, because a search without a free entry never ends.
  if (known_.load(std::memory_order_relaxed) > capacity_) return false;
  Id id[kMost];
  uint8_t missed[kMost];
  int num_missed = 0;
  for (int i = 0; i < count; ++i) {  // no branch to mispredict: most nodes are found at once
    id[i] = IdOf(neighbors[i], era != nullptr ? era[i] : 0);
    const uint32_t place = Home(id[i]), mine = kPending | static_cast<uint32_t>(edge + i);
    const Entry home = Load(place);
    const uint32_t pending = 0 - (home.label >> 31);  // all ones or zero
    neighbors[i] = static_cast<int32_t>((home.label & ~pending) | (~place & pending));
    missed[num_missed] = static_cast<uint8_t>(i);
    num_missed += !((home.id == id[i]) & (home.label < mine));
  }
  uint64_t firsts[kMost];
  int num_firsts = 0;
  int64_t num_new = 0;
  for (int m = 0; m < num_missed; ++m) {
    const int i = missed[m];
    const Entry mine{id[i], kPending | static_cast<uint32_t>(edge + i)};
    uint32_t place = Home(id[i]);
    Entry found = Load(place);
    bool is_new = false;
    while (found.id != id[i]) {
      if (found.id == kEmpty) {
        is_new = Claim(place, found, mine);
        if (is_new) break;
      } else {
        place = (place + 1) & mask_;
        found = Load(place);
      }
    }
    bool is_first = is_new && !kWide;  // a claimed large entry has no label of its own yet
    while (!is_first && found.label >= kPending && mine.label < found.label) {
      if (!Lower(place, found, mine)) continue;
      // A later appearance was inserted first.
      if (!kWide || found.label != kNone) Lose(found.label & ~kPending);
      is_first = true;
    }
    const bool known = !is_new && found.label < kPending;
    neighbors[i] = static_cast<int32_t>(known ? found.label : ~place);
    firsts[num_firsts] = static_cast<uint64_t>(edge + i) << 32 | place;
    num_firsts += is_first;
    num_new += is_new;
  }
  Chunk& mine = chunks_[chunk];
  mine.firsts.insert(mine.firsts.end(), firsts, firsts + num_firsts);
  mine.unreported += num_new;
  return mine.unreported <= kUnreported - kMost || EndChunk(chunk);
}

template <typename Id>
bool RelabelerOf<Id>::EndChunk(int64_t chunk) {
  const int64_t num_new = std::exchange(chunks_[chunk].unreported, 0);
  return known_.fetch_add(num_new, std::memory_order_relaxed) + num_new <= capacity_;
}

// Records that the edge is no longer its node's first appearance.
template <typename Id>
void RelabelerOf<Id>::Lose(int64_t edge) {
  const auto after = std::upper_bound(starts_->begin(), starts_->end(), edge);
  __atomic_fetch_add(&chunks_[after - starts_->begin() - 1].num_lost, 1, __ATOMIC_RELAXED);
}

template <typename Id>
int64_t RelabelerOf<Id>::Number() {
  for (int64_t c = 0; c < num_chunks_; ++c) {
    Chunk& chunk = chunks_[c];
    chunk.first_id = num_known_;
    num_known_ += static_cast<int64_t>(chunk.firsts.size()) - chunk.num_lost;
  }
  return num_known_ <= capacity_ ? num_known_ : -1;
}

template <typename Id>
typename RelabelerOf<Id>::Range RelabelerOf<Id>::Label(int64_t chunk, int32_t* nodes,
                                                       int32_t* era) {
  const std::vector<uint64_t>& firsts = chunks_[chunk].firsts;
  const int64_t num_firsts = static_cast<int64_t>(firsts.size());
  int64_t id = chunks_[chunk].first_id;
  for (int64_t i = 0; i < num_firsts; ++i) {
    if (i + kAhead < num_firsts) {
      __builtin_prefetch(&table_[static_cast<uint32_t>(firsts[i + kAhead])], 1);
    }
    const uint32_t edge = static_cast<uint32_t>(firsts[i] >> 32);
    const uint32_t place = static_cast<uint32_t>(firsts[i]);
    Entry entry = Load(place);
    if (entry.label != (kPending | edge)) continue;  // lost
    if constexpr (kWide) {
      nodes[id] = static_cast<int32_t>(entry.id);
      era[id] = static_cast<int32_t>(entry.id >> 32);
    } else if (era == nullptr) {
      nodes[id] = entry.id;
    } else {
      nodes[id] = static_cast<int32_t>(static_cast<uint32_t>(entry.id) % per_era_);
      era[id] = static_cast<int32_t>(static_cast<uint32_t>(entry.id) / per_era_);
    }
    entry.label = static_cast<uint32_t>(id++);
    if constexpr (kWide) {
      __atomic_store_n(reinterpret_cast<Half*>(&table_[place].label), entry.label,
                       __ATOMIC_RELAXED);
    } else {
      uint64_t word;
      std::memcpy(&word, &entry, sizeof word);
      __atomic_store_n(reinterpret_cast<Word*>(&table_[place]), word, __ATOMIC_RELAXED);
    }
  }
  return {chunks_[chunk].first_id, id};
}

template <typename Id>
void RelabelerOf<Id>::Resolve(int32_t* neighbors, int64_t count) const {
  int16_t open[kStretch];
  for (int64_t at = 0; at < count; at += kStretch) {
    const int64_t size = std::min(kStretch, count - at);
    int32_t* some = neighbors + at;
    int64_t num_open = 0;
    for (int64_t i = 0; i < size; ++i) {  // no branch to mispredict
      open[num_open] = static_cast<int16_t>(i);
      num_open += some[i] < 0;
    }
    for (int64_t i = 0; i < num_open; ++i) {
      if (i + kAhead < num_open) {
        __builtin_prefetch(&table_[static_cast<uint32_t>(~some[open[i + kAhead]])], 0, 2);
      }
      int32_t& neighbor = some[open[i]];
      neighbor = static_cast<int32_t>(Load(static_cast<uint32_t>(~neighbor)).label);
    }
  }
}

template class RelabelerOf<int32_t>;
template class RelabelerOf<int64_t>;

}  // namespace jgs
