// Sums over features, for the kernels of CPUs and GPUs.
#ifndef JGS_KERNELS_LANES_H_
#define JGS_KERNELS_LANES_H_

#include <cstdint>

#include "steps.h"

namespace jgs {

// The sum of term(f) over [begin, end), in fixed partial sums, whatever the vectors' width is.
template <typename Term>
JGS_BOTH JGS_ALWAYS inline float SumInLanes(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t f = begin;
  for (; f + kLanes <= end; f += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] += term(f + i);
  }
  for (int64_t i = 0; f < end; ++i, ++f) lanes[i] += term(f);
  float sum = 0.0f;
  for (int64_t i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

}  // namespace jgs

#endif  // JGS_KERNELS_LANES_H_
