// Where cutoffs lie in rows of ascending times, for many rows at a time.
#ifndef JGS_KERNELS_TIME_SEARCH_H_
#define JGS_KERNELS_TIME_SEARCH_H_

#include <algorithm>
#include <cstdint>

#include "line_search.h"

namespace jgs {

// Finds how many of a row's ascending values are less than a target. It reads both ends of the
// row, guesses the place from them, and then goes on as LineSearch does. So a row of any length
// costs a few reads, and never waits for one if many searches are under way at once.
class TimeSearch {
 public:
  // Prefetches the ends.
  void Begin(const int64_t* values, int32_t count, int64_t target) {
    values_ = values;
    target_ = target;
    low_ = round_ = 0;
    high_ = std::max(count, 0);
    if (high_ == 0) return;
    __builtin_prefetch(&values[0], 0, 2);
    __builtin_prefetch(&values[high_ - 1], 0, 2);
  }

  // Reads what was prefetched. Returns whether the position is found; otherwise prefetches more.
  bool Look() {
    const SearchRange range{low_, high_, guess_};
    if (round_++ > 0) return range.Look(values_, target_, slope_, round_ - 1);
    if (high_ == 0 || values_[0] >= target_) return true;
    const int64_t first = values_[0], last = values_[high_ - 1];
    if (last < target_) {
      low_ = high_;
      return true;
    }
    const auto from_first = [&](int64_t time) {  // as unsigned numbers, which do not overflow
      return static_cast<double>(static_cast<uint64_t>(time) - static_cast<uint64_t>(first));
    };
    slope_ = (high_ - 1) / from_first(last);
    range.Guess(values_, from_first(target_) * slope_);
    return false;
  }

  // The position, once it is found.
  int32_t position() const { return low_; }

 private:
  const int64_t* values_;
  int64_t target_;
  double slope_;
  int32_t low_, high_, guess_, round_;
};

// Makes the searches 0, .., num - 1, many of them at once.
//
//   task(i): sets the values, their number and the target of search `i`.
//   done(i, position): takes what search `i` has found.
template <typename TaskOf, typename Done>
void SearchTimes(int64_t num, const TaskOf& task_of, const Done& done) {
  constexpr int kAtOnce = 24;
  struct Task {
    int64_t number;
    TimeSearch search;
  };
  Task tasks[kAtOnce];
  int active = 0;
  for (int64_t next = 0; next < num || active > 0;) {
    while (active < kAtOnce && next < num) {
      const int64_t* values;
      int32_t count;
      int64_t target;
      task_of(next, values, count, target);
      if (count <= 0) {
        done(next++, 0);
        continue;
      }
      tasks[active].number = next++;
      tasks[active++].search.Begin(values, count, target);
    }
    for (int a = 0; a < active;) {
      if (!tasks[a].search.Look()) {
        ++a;
        continue;
      }
      done(tasks[a].number, tasks[a].search.position());
      tasks[a] = tasks[--active];
    }
  }
}

}  // namespace jgs

#endif  // JGS_KERNELS_TIME_SEARCH_H_
