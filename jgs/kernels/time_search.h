// Where cutoffs lie in rows of ascending times, for many rows at a time.
#ifndef JGS_KERNELS_TIME_SEARCH_H_
#define JGS_KERNELS_TIME_SEARCH_H_

#include <cstdint>

#include "line_search.h"

namespace jgs {

// Finds how many of each row's ascending values are less than the row's target. A search reads
// both ends of its row, guesses the place from them, and then goes on as LineSearch does. Many
// searches are under way at once, so that none waits for its reads: a row of any length costs
// a few of them.
//
//   task(i): sets the values, their number and the target of search `i`.
//   done(i, position): takes what search `i` has found.
template <typename TaskOf, typename Done>
void SearchTimes(int64_t num, const TaskOf& task_of, const Done& done) {
  constexpr int kAtOnce = 24;
  struct Search {
    int64_t number;
    const int64_t* values;
    int64_t target;
    double slope;
    int32_t low, high, guess, round;
  };
  Search searches[kAtOnce];
  int active = 0;
  for (int64_t next = 0; next < num || active > 0;) {
    while (active < kAtOnce && next < num) {
      Search& s = searches[active];
      s.number = next++;
      s.low = s.round = 0;
      task_of(s.number, s.values, s.high, s.target);
      if (s.high <= 0) {
        done(s.number, 0);
        continue;
      }
      __builtin_prefetch(&s.values[0], 0, 2);
      __builtin_prefetch(&s.values[s.high - 1], 0, 2);
      ++active;
    }
    for (int a = 0; a < active;) {
      Search& s = searches[a];
      const SearchRange range{s.low, s.high, s.guess};
      bool found = false;
      if (s.round++ == 0) {
        const int64_t first = s.values[0], last = s.values[s.high - 1];
        if (first >= s.target || last < s.target) {
          found = true;
          s.low = first >= s.target ? 0 : s.high;
        } else {  // as unsigned numbers, whose differences do not overflow
          const auto from_first = [&](int64_t time) {
            return static_cast<double>(static_cast<uint64_t>(time) - static_cast<uint64_t>(first));
          };
          s.slope = (s.high - 1) / from_first(last);
          range.Guess(s.values, from_first(s.target) * s.slope);
        }
      } else {
        found = range.Look(s.values, s.target, s.slope, s.round - 1);
      }
      if (!found) {
        ++a;
        continue;
      }
      done(s.number, s.low);
      s = searches[--active];
    }
  }
}

}  // namespace jgs

#endif  // JGS_KERNELS_TIME_SEARCH_H_
