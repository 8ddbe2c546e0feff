// Edges by target: a stable counting sort in two passes, each of which writes close together.
//
// Keys are divided into buckets of 2^shift consecutive keys. Chunks of edges are counted, then
// spread over the buckets in order; then each bucket is sorted in place. The spread edges are
// in the arrays of the results. The only other memory is a copy of the buckets that are being
// sorted: at most 8 bytes an edge, and usually a thousandth of that.
//
// Plain C++ without threads of its own: `jgs/graph/grouping.py` calls it from its threads, and
// defines the results, in NumPy and SciPy.
#ifndef JGS_KERNELS_GROUP_H_
#define JGS_KERNELS_GROUP_H_

#include <cstdint>

extern "C" {

// Integers of 4 or 8 bytes.
struct JgsInts {
  void* data;
  int64_t bytes;
};

// Adds to counts [buckets] the number of keys of the chunk [first, last) in each bucket.
// Returns 0; or 1, with the counting stopped, if a key or a value (values.data may be null) is
// not in [0, num_keys).
int64_t JgsGroupCount(JgsInts keys, JgsInts values, int64_t first, int64_t last,
                      int64_t num_keys, int64_t shift, int64_t* counts);

// Writes the chunk's keys and their positions to spread and order, from next[bucket] on.
void JgsGroupSpread(JgsInts keys, int64_t first, int64_t last, int64_t shift, int64_t* next,
                    int32_t* spread, JgsInts order);

// Sorts the bucket [first, last) of spread and order, whose keys are first_key and the next
// num_keys - 1. It sets the ends of the bucket's groups [num_keys] and order. If there are
// values, it sets spread to the values at the positions in order. Returns 0, or 1 if memory is
// short.
int64_t JgsGroupSort(int64_t first, int64_t last, int64_t first_key, int64_t num_keys,
                     JgsInts values, int32_t* spread, JgsInts order, int64_t* ends);

// Asks for huge pages for a result, before it is written.
void JgsGroupResult(void* data, int64_t bytes);
}

#endif  // JGS_KERNELS_GROUP_H_
