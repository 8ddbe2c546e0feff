// Draws by weight: a random point below a row's total weight, and the position whose part of
// the row has the point. jgs/sampling/edges/draw.py defines the results.
//
// 64 rows are drawn at a time, and their searches run side by side, so that the reads of one
// row's prefix sums overlap with those of the others.
#ifndef JGS_KERNELS_DRAW_WEIGHTED_H_
#define JGS_KERNELS_DRAW_WEIGHTED_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "draw.h"
#include "eligible.h"
#include "line_search.h"

namespace jgs {

// A uniform integer below n from 64 random bits; its bias is below n / 2**64.
inline int64_t Below(uint64_t bits, uint64_t n) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// Draws by weight for the rows of a batch_.
//
// Without replacement these are successive draws, each in proportion to the weights not yet
// drawn. A draw is a point below the remaining weight. It becomes a point of the whole row by
// stepping over the intervals already drawn, in ascending order. So each draw is exact, and
// none is repeated. A row stops when no weight is left.
//
// With `limited` a row is a stretch with holes (see Limit). Its points are those of the eligible
// edges; to search the prefix sums, a point steps over the holes too.
template <bool limited, bool own_keys>
class WeightedDraws {
 public:
  WeightedDraws(Draws& batch, bool replace) : batch_(batch), replace_(replace) {}

  // The stretch of a row: its first edge, its holes and their weights.
  void Limit(int row, int64_t start, const Holes& holes, const HoleWeights& weights) {
    start_[row] = start;
    holes_[row] = holes;
    weights_[row] = weights;
  }

  // Draws for the batch's rows, whose prefix sums are at `prefix`, into its `position`.
  void Draw(Key key, Isa isa) {
    if (!replace_ && room_ < batch_.fanout) {
      drawn_begin_.reset(new int64_t[batch_.fanout * kLanes]);
      drawn_weight_.reset(new int64_t[batch_.fanout * kLanes]);
      room_ = batch_.fanout;
    }
    for (int r = 0; r < kLanes; ++r) {
      count[r] = 0;
      left_[r] = r < batch_.num_rows ? prefix[r][batch_.degree[r] - 1] : 0;
      if (limited && r < batch_.num_rows) {
        const HoleWeights& holes = weights_[r];
        left_[r] = Minus(Minus(left_[r], holes.base), holes.Lost(holes.num));
      }
      per_weight_[r] = left_[r] > 0 ? batch_.degree[r] / static_cast<double>(left_[r]) : 0;
    }
    for (int64_t i = 0; i < batch_.fanout; ++i) {
      uint32_t high[kLanes], low[kLanes];
      RunOn(isa, Bits{key, batch_, i, high, low});
      for (int r = 0; r < kLanes; ++r) {
        point_[r] = Below(static_cast<uint64_t>(high[r]) << 32 | low[r], left_[r]);
      }
      if (!replace_) RunOn(isa, StepOver{*this, i});
      if constexpr (limited) {
        for (int r = 0; r < batch_.num_rows; ++r) point_[r] = weights_[r].InRow(point_[r]);
      }
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
  int32_t count[kLanes];          // the number of positions drawn

 private:
  struct Bits {
    Key key;
    const Draws& d;
    int64_t draw;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const {
      RandomBits<own_keys>(key, d, draw, high, low);
    }
  };

  // Steps over the intervals that the rows have drawn before draw number `draws`.
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

  // Inserts the intervals just drawn, begin_ and weight_, among the `draws` earlier ones, in
  // order.
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

  // Finds the interval of each position drawn, and subtracts its weight from what is left.
  void Take(const int32_t* position) {
    for (int r = 0; r < kLanes; ++r) {
      begin_[r] = std::numeric_limits<int64_t>::max();
      weight_[r] = 0;
      if (left_[r] <= 0) continue;
      begin_[r] = position[r] == 0 ? (limited ? weights_[r].base : 0) : prefix[r][position[r] - 1];
      weight_[r] = Minus(prefix[r][position[r]], begin_[r]);
      if constexpr (limited) {
        const HoleWeights& holes = weights_[r];
        const int64_t lost = holes.Lost(holes_[r].Before(start_[r] + position[r]));
        begin_[r] = Minus(begin_[r], Plus(holes.base, lost));
      }
      left_[r] = Minus(left_[r], weight_[r]);
    }
  }

  // Finds, for the rows searched, the first position whose prefix sum exceeds the point.
  void Search(int32_t* position) {
    for (int i = 0; i < num_searching_; ++i) {
      const int r = searching_[i];  // points from the total on have the last position
      low_[r] = 0;
      high_[r] = static_cast<int32_t>(batch_.degree[r]) - 1;
      if (high_[r] > 0) Range(r).Guess(prefix[r], static_cast<double>(point_[r]) * per_weight_[r]);
    }
    for (int round = 1; num_searching_ > 0; ++round) {
      int still = 0;
      for (int i = 0; i < num_searching_; ++i) {
        const int r = searching_[i];
        if (Range(r).Look(prefix[r], Plus(point_[r], 1), per_weight_[r], round)) {
          position[r] = low_[r];
          __builtin_prefetch(&prefix[r][std::max(position[r] - 1, 0)]);  // for Take
        } else {
          searching_[still++] = static_cast<uint8_t>(r);
        }
      }
      num_searching_ = still;
    }
  }

  SearchRange Range(int r) { return {low_[r], high_[r], guess_[r]}; }

  Draws& batch_;
  const bool replace_;
  int64_t start_[limited ? kLanes : 1];
  Holes holes_[limited ? kLanes : 1];
  HoleWeights weights_[limited ? kLanes : 1];
  int64_t left_[kLanes];       // the weight not yet drawn
  double per_weight_[kLanes];  // the mean number of positions for a unit of weight
  int64_t point_[kLanes], begin_[kLanes], weight_[kLanes];
  // The Range of each search. As arrays they are a few percent faster than as LineSearches.
  int32_t low_[kLanes], high_[kLanes], guess_[kLanes];
  uint8_t searching_[kLanes];
  int num_searching_ = 0;
  int64_t room_ = 0;
  std::unique_ptr<int64_t[]> drawn_begin_, drawn_weight_;  // [draws][kLanes], ascending
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_WEIGHTED_H_
