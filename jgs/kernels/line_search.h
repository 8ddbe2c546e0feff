// A search among ascending numbers that reads a cache line at a time. Many searches can be
// under way at once, and none waits for its reads.
#ifndef JGS_KERNELS_LINE_SEARCH_H_
#define JGS_KERNELS_LINE_SEARCH_H_

#include <algorithm>
#include <cstdint>

namespace jgs {

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
    round_ = slope > 0 ? 0 : kGuesses;
    if (count > 0) Guess(slope > 0 ? static_cast<double>(target) * slope : count / 2);
  }

  // Reads the prefetched line. Returns whether the position is found; otherwise prefetches
  // another.
  bool Look() {
    if (low_ >= high_) return true;
    const int into = static_cast<int>(reinterpret_cast<uintptr_t>(values_ + guess_) /
                                      sizeof(T) % kLine);
    const int32_t first = std::max(low_, guess_ - into);
    const int32_t last = static_cast<int32_t>(
        std::min<int64_t>(high_ - 1, int64_t{guess_} - into + kLine - 1));
    const bool past = values_[last] < target_;
    if (!past && (first == low_ || values_[first] < target_)) {
      int32_t at = first;
      for (int32_t i = first; i < last; ++i) at += values_[i] < target_;
      low_ = at;
      return true;
    }
    (past ? low_ : high_) = past ? last + 1 : first;
    if (low_ == high_) return true;
    const int32_t seen = past ? last : first;
    const double away = static_cast<double>(target_) - static_cast<double>(values_[seen]);
    Guess(++round_ < kGuesses ? seen + away * slope_ : low_ + (high_ - low_) / 2);
    return false;
  }

  // The position, once it is found; the number of values if all are less.
  int32_t position() const { return low_; }

 private:
  static constexpr int kLine = 64 / sizeof(T);
  static constexpr int kGuesses = 6;  // by interpolation, after that by halves

  void Guess(double at) {
    at = std::min<double>(std::max<double>(at, low_), high_ - 1);
    guess_ = static_cast<int32_t>(at);
    __builtin_prefetch(&values_[guess_], 0, 2);
  }

  const T* values_;
  int64_t target_;
  double slope_;
  int32_t low_, high_, guess_;  // the position is in [low_, high_]
  int round_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LINE_SEARCH_H_
