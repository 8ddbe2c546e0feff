// Skip-gram with negatives that a run of centers shares: the loss and its gradient
// (jgs/models/skipgram.py).
#ifndef JGS_KERNELS_SKIPGRAM_H_
#define JGS_KERNELS_SKIPGRAM_H_

#include <cstdint>

#include "parallel.h"

namespace jgs {

// B walks of T places; a walk is cut in C runs of ceil(T / C) places, with K negatives each.
// A row is a vector of `width` floats and how many pairs it is in. The rows are those of all
// centers [B, T], of all contexts [B, T], and of all negatives [B, C, K].
struct WalkPairs {
  int64_t num_walks, num_places, num_runs, num_negatives, width;
  int32_t num_nodes;       // padding is this or more
  float weight;            // how many negatives a pair counts for
  float rate;              // the gradient is multiplied by it
  const int32_t* nodes;    // [B, T]
  const int32_t* windows;  // [B, T]
  const float* rows;       // [B * (2 * T + C * K), width + 1]

  int64_t run_size() const { return (num_places + num_runs - 1) / num_runs; }
};

// Writes the gradient by `rows`, of their shape, and of each walk its loss and its number of
// pairs, [B, 2]. A walk is done by one thread: the bits are always the same.
void Skipgram(const Executor& executor, const WalkPairs& pairs, float* gradient, float* sums);

}  // namespace jgs

#endif  // JGS_KERNELS_SKIPGRAM_H_
