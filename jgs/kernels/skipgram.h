// Skip-gram with negatives that a walk shares: the loss and its gradient (jgs/models/skipgram.py).
#ifndef JGS_KERNELS_SKIPGRAM_H_
#define JGS_KERNELS_SKIPGRAM_H_

#include <cstdint>

#include "parallel.h"

namespace jgs {

// B walks of T places with K negatives each, and rows of 2 * width + 2 floats: the vector of a
// center, that of a context, and of both how many pairs they are in.
struct WalkPairs {
  int64_t num_walks, num_places, num_negatives, width;
  int32_t num_nodes;         // padding is this or more
  float weight;              // how many negatives a pair counts for
  const int32_t* nodes;      // [B, T]
  const int32_t* windows;    // [B, T]
  const float* rows;         // [B, T, 2 * width + 2]
  const float* negatives;    // [B, K, 2 * width + 2]

  int64_t stride() const { return 2 * width + 2; }
};

// Writes the gradients by `rows` and `negatives`, of their shapes, and of each walk its loss and
// its number of pairs, [B, 2]. A walk is done by one thread: the bits are always the same.
void Skipgram(const Executor& executor, const WalkPairs& pairs, float* grad_rows,
              float* grad_negatives, float* sums);

}  // namespace jgs

#endif  // JGS_KERNELS_SKIPGRAM_H_
