// Skip-gram whose negatives are shared by a run of centers: the loss and its gradient
// (jgs/models/skipgram.py).
#ifndef JGS_KERNELS_SKIPGRAM_H_
#define JGS_KERNELS_SKIPGRAM_H_

#include <cstdint>

#include "parallel.h"

namespace jgs {

// B walks of T places. A walk is divided into C runs of ceil(T / C) places, with K negatives
// each. A row is a vector of `width` floats, and the number of pairs that it is in. The rows
// are those of all centers [B, T], then of all contexts [B, T], then of all negatives
// [B, C, K].
struct WalkPairs {
  int64_t num_walks, num_places, num_runs, num_negatives, width;
  int32_t num_nodes;       // ids from here on are padding
  float weight;            // the number of negatives that a pair counts for
  float rate;              // the factor of the gradient
  const int32_t* nodes;    // [B, T]
  const int32_t* windows;  // [B, T]
  const float* rows;       // [B * (2 * T + C * K), width + 1]

  int64_t run_size() const { return (num_places + num_runs - 1) / num_runs; }
};

// Writes the gradient by `rows`, with the shape of `rows`, and each walk's loss and number of
// pairs, [B, 2]. One thread computes a walk, so the bits are always the same.
void Skipgram(const Executor& executor, const WalkPairs& pairs, float* gradient, float* sums);

}  // namespace jgs

#endif  // JGS_KERNELS_SKIPGRAM_H_
