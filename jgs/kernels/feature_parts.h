// Into how many parts the features of a sum are split, so that a part of all rows that the
// edges read stays in the cache while the edges read it.
//
// gcn-ipdps19 (Zeng et al., IPDPS 2019), Algorithm 6: one part after the other, all rows of each.
// Its Theorem 2 has P = 1 parts of the rows and Q = max(C, n f b / S) parts of the features, for
// C cores, n rows of f features of b bytes, and a cache of S bytes. It moves at most twice the
// data that the best split moves. There the cache is a core's own. Here it is the last level,
// which the cores share, so that all threads work on one part: Q = n f b / (S / 2).
#ifndef JGS_KERNELS_FEATURE_PARTS_H_
#define JGS_KERNELS_FEATURE_PARTS_H_

#include <cstdint>

namespace jgs {

// The number of parts for a sum over `num_edges` edges that read `num_rows` rows. It is 1 where
// the rows fit the cache, where they are read too few times to pay for the copy of the parts,
// where they have fewer than 512 features, and where even parts of 64, the least, are far larger
// than the cache: measured by
// `python -m benchmarks.feature_parts`. JgsSetFeatureParts forces another number.
int64_t FeatureParts(int64_t num_rows, int64_t num_edges, int64_t num_features);

// The rule, for a last-level cache of so many bytes.
int64_t FeaturePartsFor(int64_t num_rows, int64_t num_edges, int64_t num_features, int64_t cache);

// Where part `part` of `num_parts` begins, a multiple of the floats in a cache line.
inline int64_t PartBegin(int64_t part, int64_t num_parts, int64_t num_features) {
  constexpr int64_t kLine = 16;
  const int64_t lines = (num_features + kLine - 1) / kLine;
  const int64_t begin = lines * part / num_parts * kLine;
  return begin < num_features ? begin : num_features;
}

}  // namespace jgs

#endif  // JGS_KERNELS_FEATURE_PARTS_H_
