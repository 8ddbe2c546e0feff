// Rows drawn jointly: those of the k smallest ranks.
#ifndef JGS_KERNELS_COLLECTIVE_H_
#define JGS_KERNELS_COLLECTIVE_H_

#include <cstdint>

#include "parallel.h"
#include "threefry.h"

namespace jgs {

struct Candidates {
  Key key;
  const int32_t* nodes;  // [num]
  const float* weight;   // [num]; only nodes with a positive weight can be drawn
  int64_t num;
};

// The rank of a candidate is (its 52 random bits + 1/2) / 2**52 / weight. The candidates of the
// k smallest ranks are drawn; among equal ranks the smaller node comes first. In the order of
// their nodes, `slot` gets their positions, and `probs` their probabilities of inclusion,
// min(1, weight * the k+1-st smallest rank). The rest of `slot` is `num`, and of `probs` 1.
void SmallestRanks(const Candidates& candidates, int64_t k, int32_t* slot, float* probs,
                   const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_COLLECTIVE_H_
