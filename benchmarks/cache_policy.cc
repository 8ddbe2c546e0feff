// How many rows a cache must fetch under a policy.
// Usage: cache_policy POLICY NODES CAPACITY < steps; POLICY is s3-fifo or lru. Steps are read
// from standard input. Each is an int32 count and as many int32 nodes, all different. The
// program prints the number of rows that were not in the cache when their step began.
//
// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) as
// GraphBolt has it: a small queue of a tenth of the rows, a main queue, and a ghost queue of
// the nodes that left the small one, nine tenths as long as the cache. A step looks up all its
// nodes first, and then inserts the missed ones. A row that a step inserts stays until its end,
// so no step may read more than nine tenths of the capacity.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

namespace {

class S3Fifo {
 public:
  S3Fifo(int64_t nodes, int64_t capacity)
      : capacity_(capacity), rows_(nodes), ghost_(nodes, false) {}

  bool Read(int32_t node) {
    Row& row = rows_[node];
    if (row.cached) row.uses = std::min(row.uses + 1, 3);
    return row.cached;
  }

  void Insert(int32_t node, int32_t step) {
    if (used_ < capacity_) {
      ++used_;
    } else if (!EvictSmall(step)) {
      EvictMain(step);
    }
    (ghost_[node] ? main_ : small_).push_back(node);
    ghost_[node] = false;
    rows_[node] = {true, 0, step};
  }

 private:
  struct Row {
    bool cached = false;
    int uses = 0;
    int32_t inserted = -1;  // the step that inserted it
  };

  bool Stays(const Row& row, int32_t step) const {
    return row.uses > 0 || row.inserted == step;
  }

  bool EvictSmall(int32_t step) {
    const auto target = static_cast<size_t>(capacity_ / 10);
    while (small_.size() > target) {
      const int32_t node = small_.front();
      small_.pop_front();
      Row& row = rows_[node];
      if (Stays(row, step)) {
        row.uses = 0;
        main_.push_back(node);
        continue;
      }
      row.cached = false;
      if (ghosts_.size() == static_cast<size_t>(capacity_ - capacity_ / 10)) {
        ghost_[ghosts_.front()] = false;
        ghosts_.pop_front();
      }
      ghost_[node] = true;
      ghosts_.push_back(node);
      return true;
    }
    return false;
  }

  void EvictMain(int32_t step) {
    for (;;) {
      const int32_t node = main_.front();
      main_.pop_front();
      Row& row = rows_[node];
      if (!Stays(row, step)) {
        row.cached = false;
        return;
      }
      row.uses = std::max(row.uses - 1, 0);
      main_.push_back(node);
    }
  }

  const int64_t capacity_;
  int64_t used_ = 0;
  std::vector<Row> rows_;
  std::vector<bool> ghost_;
  std::deque<int32_t> small_, main_, ghosts_;
};

// Evicts the row read longest ago. Reads are queued; a row is as recent as its last entry.
class Lru {
 public:
  Lru(int64_t nodes, int64_t capacity) : capacity_(capacity), entries_(nodes, 0) {}

  bool Read(int32_t node) {
    if (entries_[node] == 0) return false;
    Push(node);
    return true;
  }

  void Insert(int32_t node, int32_t) {
    while (used_ >= capacity_) {
      const int32_t oldest = queue_.front();
      queue_.pop_front();
      if (--entries_[oldest] == 0) --used_;
    }
    ++used_;
    Push(node);
  }

 private:
  void Push(int32_t node) {
    ++entries_[node];
    queue_.push_back(node);
  }

  const int64_t capacity_;
  int64_t used_ = 0;
  std::vector<int32_t> entries_;  // how often each node is in the queue
  std::deque<int32_t> queue_;
};

template <typename Policy>
int64_t Misses(Policy policy) {
  int64_t misses = 0;
  std::vector<int32_t> nodes, missed;
  int32_t count;
  for (int32_t step = 0; std::fread(&count, sizeof count, 1, stdin) == 1; ++step) {
    nodes.resize(count);
    if (std::fread(nodes.data(), sizeof(int32_t), nodes.size(), stdin) != nodes.size()) exit(1);
    missed.clear();
    for (int32_t node : nodes) {
      if (!policy.Read(node)) missed.push_back(node);
    }
    for (int32_t node : missed) policy.Insert(node, step);
    misses += static_cast<int64_t>(missed.size());
  }
  return misses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int64_t nodes = std::atoll(argv[2]), capacity = std::atoll(argv[3]);
  const bool lru = std::strcmp(argv[1], "lru") == 0;
  const int64_t misses = lru ? Misses(Lru(nodes, capacity)) : Misses(S3Fifo(nodes, capacity));
  std::printf("%lld\n", static_cast<long long>(misses));
}
