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
  const int32_t* logarithms;  // [1026] -log(1 - t) / t, see `exponential` in jgs/sampling/edges/random.py
};

// The rank of a candidate is an exponential number over its weight. The candidates of the k
// smallest ranks are drawn; among equal ranks the smaller node comes first. In the order of
// their nodes, `slot` gets their positions. The rest of it is `num`. Returns the k+1-st smallest
// rank; infinity if there is none.
double SmallestRanks(const Candidates& candidates, int64_t k, int32_t* slot,
                     const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_COLLECTIVE_H_
