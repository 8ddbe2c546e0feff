// A search among ascending numbers that reads a cache line at a time. Many searches can be
// under way at once, and none waits for its reads.
#ifndef JGS_KERNELS_LINE_SEARCH_H_
#define JGS_KERNELS_LINE_SEARCH_H_

#include <algorithm>
#include <cstdint>

namespace jgs {

// Where a search stands: the position is in [low, high], and the line of `guess` is prefetched.
// The numbers may lie anywhere, so that many searches can keep theirs side by side.
struct SearchRange {
  int32_t &low, &high, &guess;

  // Makes the value nearest to `at` the next to read.
  template <typename T>
  void Guess(const T* values, double at) const {
    at = std::min<double>(std::max<double>(at, low), high - 1);
    guess = static_cast<int32_t>(at);
    __builtin_prefetch(&values[guess], 0, 2);
  }

  // Reads the prefetched line, in round 1 the first. Returns whether the position is found:
  // `low` is that of the first value that is at least `target`. Otherwise prefetches another
  // line. `slope` is the mean number of values for a unit.
  template <typename T>
  bool Look(const T* values, int64_t target, double slope, int round) const {
    if (low >= high) return true;
    constexpr int kLine = 64 / sizeof(T);
    const int into =
        static_cast<int>(reinterpret_cast<uintptr_t>(values + guess) / sizeof(T) % kLine);
    const int32_t first = std::max(low, guess - into);
    const int32_t last = guess + std::min(high - 1 - guess, kLine - 1 - into);
    const bool past = values[last] < target;
    if (!past && (first == low || values[first] < target)) {
      int32_t at = first;
      for (int32_t i = first; i < last; ++i) at += values[i] < target;
      low = at;
      return true;
    }
    int32_t seen = first;
    if (past) {
      seen = last;
      low = last + 1;
      if (low == high) return true;
    } else {
      high = first;
    }
    const auto away = static_cast<int64_t>(static_cast<uint64_t>(target) -
                                           static_cast<uint64_t>(values[seen]));
    Guess(values, round < kGuesses ? seen + static_cast<double>(away) * slope
                                   : low + (high - low) / 2);
    return false;
  }

  static constexpr int kGuesses = 6;  // rounds that interpolate; those after them halve
};

// Finds the first of ascending values that is at least `target`. A line without it still shows
// how far away it is, so few lines are read where values grow evenly.
template <typename T>
class LineSearch {
 public:
  // Prefetches the first line to read. `slope` is the mean number of values for a unit; 0 if it
  // is not known.
  void Begin(const T* values, int32_t count, int64_t target, double slope) {
    values_ = values;
    target_ = target;
    slope_ = slope;
    low_ = 0;
    high_ = count;
    round_ = slope > 0 ? 0 : SearchRange::kGuesses;
    if (count > 0) {
      Range().Guess(values, slope > 0 ? static_cast<double>(target) * slope : count / 2);
    }
  }

  // Reads the prefetched line. Returns whether the position is found; otherwise prefetches
  // another.
  bool Look() { return Range().Look(values_, target_, slope_, ++round_); }

  // The position, once it is found; the number of values if all are less.
  int32_t position() const { return low_; }

 private:
  SearchRange Range() { return {low_, high_, guess_}; }

  const T* values_;
  int64_t target_;
  double slope_;
  int32_t low_, high_, guess_;
  int round_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LINE_SEARCH_H_
