// Which of a node's neighbours are drawn: positions within its row, by integer arithmetic only.
// The meaning is jgs/sampling/draw.py.
#ifndef JGS_KERNELS_DRAW_H_
#define JGS_KERNELS_DRAW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "threefry.h"

namespace jgs {

// A uniform integer below n from 64 random bits; its bias is below n / 2**64.
inline int64_t Below(uint64_t bits, uint64_t n) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// Scratch of one thread for drawing `fanout` neighbours of a node.
class Drawer {
 public:
  explicit Drawer(int64_t fanout) : fanout_(fanout) {
    if (fanout > kScan) seen_.resize(TableSize());
  }

  // `fanout` distinct positions below `degree` > fanout, every subset equally likely
  // (Floyd; Bentley and Floyd, "A sample of brilliance", CACM 1987).
  void Distinct(const uint64_t* bits, int64_t degree, int64_t* position) {
    if (fanout_ > kScan) return DistinctHashed(bits, degree, position);
    for (int64_t i = 0; i < fanout_; ++i) {
      const int64_t last = degree - fanout_ + i;
      const int64_t drawn = Below(bits[i], static_cast<uint64_t>(last + 1));
      bool taken = false;
      for (int64_t j = 0; j < i; ++j) taken |= position[j] == drawn;
      position[i] = taken ? last : drawn;
    }
  }

  // `fanout` positions below `degree` > 0, each uniform.
  void Repeated(const uint64_t* bits, int64_t degree, int64_t* position) const {
    for (int64_t i = 0; i < fanout_; ++i) {
      position[i] = Below(bits[i], static_cast<uint64_t>(degree));
    }
  }

  // `fanout` positions, each with probability its weight / the row's weight; returns how many
  // (0 if the row weighs nothing). `prefix` are the row's inclusive prefix sums.
  int64_t WeightedRepeated(const uint64_t* bits, const int64_t* prefix, int64_t degree,
                           int64_t* position) const {
    if (degree == 0 || prefix[degree - 1] == 0) return 0;
    for (int64_t i = 0; i < fanout_; ++i) {
      position[i] = Find(prefix, degree, Below(bits[i], prefix[degree - 1]));
    }
    return fanout_;
  }

  // Up to `fanout` distinct positions by successive draws, each in proportion to the weights
  // not drawn yet. The next draw is a point below the remaining weight; stepping over the
  // intervals already drawn, in ascending order, makes it a point of the whole row. So each
  // draw is exact and none is repeated. Stops when no weight is left.
  int64_t WeightedDistinct(const uint64_t* bits, const int64_t* prefix, int64_t degree,
                           int64_t* position) {
    int64_t left = prefix[degree - 1];
    drawn_.clear();
    for (int64_t i = 0; i < fanout_; ++i) {
      if (left == 0) return i;
      int64_t point = Below(bits[i], left);
      size_t at = 0;
      for (; at < drawn_.size() && point >= drawn_[at].begin; ++at) point += drawn_[at].weight;
      position[i] = Find(prefix, degree, point);
      const int64_t begin = position[i] == 0 ? 0 : prefix[position[i] - 1];
      const int64_t weight = prefix[position[i]] - begin;
      drawn_.insert(drawn_.begin() + at, {begin, weight});
      left -= weight;
    }
    return fanout_;
  }

 private:
  static constexpr int64_t kScan = 48;  // up to here comparing with all earlier draws is faster

  struct Interval {
    int64_t begin, weight;
  };

  static int64_t Find(const int64_t* prefix, int64_t degree, int64_t point) {
    // The last position if the prefix sums are damaged: never a read past the row.
    return std::min<int64_t>(std::upper_bound(prefix, prefix + degree, point) - prefix,
                             degree - 1);
  }

  size_t TableSize() const {
    size_t size = 128;
    while (size < 2 * static_cast<size_t>(fanout_)) size *= 2;
    return size;
  }

  void DistinctHashed(const uint64_t* bits, int64_t degree, int64_t* position) {
    std::fill(seen_.begin(), seen_.end(), int64_t{-1});
    for (int64_t i = 0; i < fanout_; ++i) {
      const int64_t last = degree - fanout_ + i;
      const int64_t drawn = Below(bits[i], static_cast<uint64_t>(last + 1));
      position[i] = Insert(drawn) ? drawn : last;
      if (position[i] == last) Insert(last);
    }
  }

  bool Insert(int64_t value) {
    const size_t mask = seen_.size() - 1;
    size_t s = (static_cast<uint64_t>(value) * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (seen_[s] != -1 && seen_[s] != value) s = (s + 1) & mask;
    if (seen_[s] == value) return false;
    seen_[s] = value;
    return true;
  }

  int64_t fanout_;
  std::vector<int64_t> seen_;
  std::vector<Interval> drawn_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_H_
