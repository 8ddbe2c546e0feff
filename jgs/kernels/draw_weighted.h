// Draws by weight: a random point below a row's weight, and the position whose share of the
// row it falls on. The meaning is jgs/sampling/draw.py.
//
// Rows are drawn 64 at a time and their searches run side by side, so that the reads of one
// row's prefix sums overlap with those of the others.
#ifndef JGS_KERNELS_DRAW_WEIGHTED_H_
#define JGS_KERNELS_DRAW_WEIGHTED_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "draw.h"

namespace jgs {

// A uniform integer below n from 64 random bits; its bias is below n / 2**64.
inline int64_t Below(uint64_t bits, uint64_t n) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// Sums that wrap around: damaged prefix sums give a wrong draw, not undefined behaviour.
JGS_INLINE inline int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
JGS_INLINE inline int64_t Minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// Draws by weight for the rows of a batch_.
//
// Without replacement these are successive draws, each in proportion to the weights not drawn
// yet: a point below the remaining weight; stepping over the intervals already drawn, in
// ascending order, makes it a point of the whole row. So each draw is exact and none is
// repeated. A row stops when no weight is left.
class WeightedDraws {
 public:
  WeightedDraws(Draws& batch, bool replace) : batch_(batch), replace_(replace) {}

  // Draws for the batch's rows, whose prefix sums are at `prefix`, into its `position`.
  void Draw(Key key, Isa isa) {
    if (!replace_ && drawn_begin_ == nullptr) {
      drawn_begin_.reset(new int64_t[batch_.fanout * kLanes]);
      drawn_weight_.reset(new int64_t[batch_.fanout * kLanes]);
    }
    for (int r = 0; r < kLanes; ++r) {
      count[r] = 0;
      left_[r] = r < batch_.num_rows ? prefix[r][batch_.degree[r] - 1] : 0;
      per_weight_[r] = left_[r] > 0 ? batch_.degree[r] / static_cast<double>(left_[r]) : 0;
    }
    for (int64_t i = 0; i < batch_.fanout; ++i) {
      uint32_t high[kLanes], low[kLanes];
      RunOn(isa, Bits{key, batch_, i, high, low});
      for (int r = 0; r < kLanes; ++r) {
        point_[r] = Below(static_cast<uint64_t>(high[r]) << 32 | low[r], left_[r]);
      }
      if (!replace_) RunOn(isa, StepOver{*this, i});
      num_searching_ = 0;
      for (int r = 0; r < batch_.num_rows; ++r) {
        searching_[num_searching_] = static_cast<uint8_t>(r);
        num_searching_ += left_[r] > 0;
        count[r] += left_[r] > 0;
      }
      if (num_searching_ == 0) return;
      Search(&batch_.position[i * kLanes]);
      if (!replace_) {
        Take(&batch_.position[i * kLanes]);
        RunOn(isa, Remember{*this, i});
      }
    }
  }

  const int64_t* prefix[kLanes];  // each row's inclusive prefix sums
  int32_t count[kLanes];          // how many positions were drawn

 private:
  static constexpr int kLine = 8;      // prefix sums in a cache line
  static constexpr int kGuesses = 6;   // by interpolation, then by halves

  struct Bits {
    Key key;
    const Draws& d;
    int64_t draw;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const { RandomBits(key, d, draw, high, low); }
  };

  // Steps over what the rows have drawn before draw number `draws`.
  struct StepOver {
    WeightedDraws& w;
    int64_t draws;
    JGS_INLINE void operator()() const {
      for (int64_t i = 0; i < draws; ++i) {
        const int64_t* begin = &w.drawn_begin_[i * kLanes];
        const int64_t* weight = &w.drawn_weight_[i * kLanes];
        for (int r = 0; r < kLanes; ++r) {
          w.point_[r] = Plus(w.point_[r], w.point_[r] >= begin[r] ? weight[r] : 0);
        }
      }
    }
  };

  // Adds the intervals just drawn, begin_ and weight_, to the `draws` before, in order.
  struct Remember {
    WeightedDraws& w;
    int64_t draws;
    JGS_INLINE void operator()() const {
      for (int64_t i = 0; i < draws; ++i) {
        int64_t* begin = &w.drawn_begin_[i * kLanes];
        int64_t* weight = &w.drawn_weight_[i * kLanes];
        for (int r = 0; r < kLanes; ++r) {
          const bool before = w.begin_[r] < begin[r];
          const int64_t later_begin = before ? begin[r] : w.begin_[r];
          const int64_t later_weight = before ? weight[r] : w.weight_[r];
          begin[r] = before ? w.begin_[r] : begin[r];
          weight[r] = before ? w.weight_[r] : weight[r];
          w.begin_[r] = later_begin;
          w.weight_[r] = later_weight;
        }
      }
      for (int r = 0; r < kLanes; ++r) {
        w.drawn_begin_[draws * kLanes + r] = w.begin_[r];
        w.drawn_weight_[draws * kLanes + r] = w.weight_[r];
      }
    }
  };

  // The interval of each position drawn; its weight is no longer left.
  void Take(const int32_t* position) {
    for (int r = 0; r < kLanes; ++r) {
      begin_[r] = std::numeric_limits<int64_t>::max();
      weight_[r] = 0;
      if (left_[r] <= 0) continue;
      begin_[r] = position[r] == 0 ? 0 : prefix[r][position[r] - 1];
      weight_[r] = Minus(prefix[r][position[r]], begin_[r]);
      left_[r] = Minus(left_[r], weight_[r]);
    }
  }

  // For the rows searched, the first position whose prefix sum exceeds the point. Looks at a
  // line of sums a time: a line that the point does not fall on still says how far it is.
  void Search(int32_t* position) {
    for (int i = 0; i < num_searching_; ++i) {
      const int r = searching_[i];
      low_[r] = 0;
      high_[r] = static_cast<int32_t>(batch_.degree[r]) - 1;
      Guess(r, static_cast<double>(point_[r]) * per_weight_[r]);
    }
    for (int round = 1; num_searching_ > 0; ++round) {
      int still = 0;
      for (int i = 0; i < num_searching_; ++i) {
        const int r = searching_[i];
        if (Look(r, round)) {
          position[r] = low_[r];
          __builtin_prefetch(&prefix[r][std::max(low_[r] - 1, 0)]);  // for Take
        } else {
          searching_[still++] = static_cast<uint8_t>(r);
        }
      }
      num_searching_ = still;
    }
  }

  // Makes the position nearest to `at` among those possible the next to look at.
  void Guess(int r, double at) {
    at = std::min<double>(std::max<double>(at, low_[r]), high_[r]);
    guess_[r] = static_cast<int32_t>(at);
    __builtin_prefetch(&prefix[r][guess_[r]], 0, 2);
  }

  // Looks at the guess's line; returns whether row r's position, low_[r], is found.
  bool Look(int r, int round) {
    const int64_t *sums = prefix[r], point = point_[r];
    const int into = static_cast<int>(reinterpret_cast<uintptr_t>(sums + guess_[r]) /
                                      sizeof(int64_t) % kLine);
    const int32_t first = std::max(low_[r], guess_[r] - into);
    const int32_t last = std::min(high_[r], guess_[r] - into + kLine - 1);
    const bool past = sums[last] <= point;
    if (!past && (first == low_[r] || sums[first] <= point)) {
      int32_t at = first;
      for (int32_t i = first; i < last; ++i) at += sums[i] <= point;
      low_[r] = at;
      return true;
    }
    if (past) {
      low_[r] = std::min(last + 1, high_[r]);  // beyond it only if the sums are damaged
    } else {
      high_[r] = first;
    }
    if (low_[r] == high_[r]) return true;
    const int32_t seen = past ? last : first;
    Guess(r, round < kGuesses
                 ? seen + static_cast<double>(Minus(point, sums[seen])) * per_weight_[r]
                 : low_[r] + (high_[r] - low_[r]) / 2);
    return false;
  }

  Draws& batch_;
  const bool replace_;
  int64_t left_[kLanes];       // weight not drawn yet
  double per_weight_[kLanes];  // mean number of positions for a unit of weight
  int64_t point_[kLanes], begin_[kLanes], weight_[kLanes];
  int32_t low_[kLanes], high_[kLanes], guess_[kLanes];  // the position is in [low, high]
  uint8_t searching_[kLanes];
  int num_searching_ = 0;
  std::unique_ptr<int64_t[]> drawn_begin_, drawn_weight_;  // [draws][kLanes], ascending
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_WEIGHTED_H_
