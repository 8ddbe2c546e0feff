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

inline Relabeler::Entry Relabeler::Load(uint32_t place) const {
  const uint64_t word =
      __atomic_load_n(reinterpret_cast<const Word*>(&table_[place]), __ATOMIC_RELAXED);
  Entry entry;
  std::memcpy(&entry, &word, sizeof entry);
  return entry;
}

inline bool Relabeler::Exchange(uint32_t place, Entry& expected, Entry desired) {
  uint64_t before, after;
  std::memcpy(&before, &expected, sizeof before);
  std::memcpy(&after, &desired, sizeof after);
  const bool done = __atomic_compare_exchange_n(reinterpret_cast<Word*>(&table_[place]),
                                                &before, after, false, __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED);
  std::memcpy(&expected, &before, sizeof before);
  return done;
}

int64_t Relabeler::Reset(int64_t capacity, int64_t num_threads) {
  // At most three quarters full, with room for what threads insert before they report it. 2**31
  // entries are enough for all possible node ids.
  const int64_t most = capacity + kUnreported * num_threads;
  int bits = 10;
  while (bits < 31 && int64_t{3} << bits < 4 * most) ++bits;
  const int64_t size = int64_t{1} << bits;
  table_.Reserve(size);
  shift_ = 32 - bits;
  mask_ = static_cast<uint32_t>(size - 1);
  piece_ = std::min(size, kPiece);
  return size / piece_;
}

void Relabeler::Clear(int64_t piece) {
  static_assert(kEmpty == -1, "an entry of ones is free");
  std::memset(static_cast<void*>(&table_[piece * piece_]), 0xFF, piece_ * sizeof(Entry));
}

void Relabeler::AddTargets(const int32_t* targets, int64_t num_targets) {
  for (int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) Prefetch(targets[i + kAhead]);
    uint32_t s = Home(targets[i]);
    while (table_[s].node != kEmpty && table_[s].node != targets[i]) s = (s + 1) & mask_;
    if (table_[s].node == kEmpty) table_[s] = {targets[i], static_cast<uint32_t>(i)};
  }
  num_known_ = num_targets;
}

void Relabeler::Begin(const std::vector<int64_t>& starts, int64_t capacity) {
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

bool Relabeler::Insert(int64_t chunk, int64_t edge, int32_t* neighbors, int count) {
  // If the table is full nothing is inserted, because a search without a free entry never ends.
  if (known_.load(std::memory_order_relaxed) > capacity_) return false;
  int32_t node[kMost];
  uint8_t missed[kMost];
  int num_missed = 0;
  for (int i = 0; i < count; ++i) {  // no branch to mispredict: most nodes are found at once
    node[i] = neighbors[i];
    const uint32_t place = Home(node[i]), mine = kPending | static_cast<uint32_t>(edge + i);
    const Entry home = Load(place);
    const uint32_t pending = 0 - (home.label >> 31);  // all ones or zero
    neighbors[i] = static_cast<int32_t>((home.label & ~pending) | (~place & pending));
    missed[num_missed] = static_cast<uint8_t>(i);
    num_missed += !((home.node == node[i]) & (home.label < mine));
  }
  uint64_t firsts[kMost];
  int num_firsts = 0;
  int64_t num_new = 0;
  for (int m = 0; m < num_missed; ++m) {
    const int i = missed[m];
    const Entry mine{node[i], kPending | static_cast<uint32_t>(edge + i)};
    uint32_t place = Home(node[i]);
    Entry found = Load(place);
    while (found.node != node[i]) {
      if (found.node == kEmpty) {
        if (Exchange(place, found, mine)) break;
      } else {
        place = (place + 1) & mask_;
        found = Load(place);
      }
    }
    const bool is_new = found.node == kEmpty;
    bool is_first = is_new;
    while (!is_new && found.label >= kPending && mine.label < found.label) {
      if (!Exchange(place, found, mine)) continue;
      Lose(found.label & ~kPending);  // a later appearance was inserted first
      is_first = true;
      break;
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

bool Relabeler::EndChunk(int64_t chunk) {
  const int64_t num_new = std::exchange(chunks_[chunk].unreported, 0);
  return known_.fetch_add(num_new, std::memory_order_relaxed) + num_new <= capacity_;
}

// Records that the edge is no longer its node's first appearance.
void Relabeler::Lose(int64_t edge) {
  const auto after = std::upper_bound(starts_->begin(), starts_->end(), edge);
  __atomic_fetch_add(&chunks_[after - starts_->begin() - 1].num_lost, 1, __ATOMIC_RELAXED);
}

int64_t Relabeler::Number() {
  for (int64_t c = 0; c < num_chunks_; ++c) {
    Chunk& chunk = chunks_[c];
    chunk.first_id = num_known_;
    num_known_ += static_cast<int64_t>(chunk.firsts.size()) - chunk.num_lost;
  }
  return num_known_ <= capacity_ ? num_known_ : -1;
}

Relabeler::Range Relabeler::Label(int64_t chunk, int32_t* nodes) {
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
    nodes[id] = entry.node;
    entry.label = static_cast<uint32_t>(id++);
    uint64_t word;
    std::memcpy(&word, &entry, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(&table_[place]), word, __ATOMIC_RELAXED);
  }
  return {chunks_[chunk].first_id, id};
}

void Relabeler::Resolve(int32_t* neighbors, int64_t count) const {
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

}  // namespace jgs
