// Edges by target: a stable counting sort in two passes, in which no edge is moved far at once.
//
// Keys are cut into buckets of 2^shift neighbouring ones. Chunks of edges are counted, then
// spread over the buckets in order; then each bucket is sorted where it lies. What is spread
// lies in the results themselves, so the only memory beside them is a copy of the buckets
// that are being sorted: 8 bytes an edge at most, and as a rule a thousandth of that.
//
// Plain C++ with no threads of its own: `jgs/graph/grouping.py` calls it, on its threads, and
// has the meaning, in NumPy and SciPy.
#ifndef JGS_KERNELS_GROUP_H_
#define JGS_KERNELS_GROUP_H_

#include <cstdint>

extern "C" {

// Integers of 4 or 8 bytes.
struct JgsInts {
  void* data;
  int64_t bytes;
};

// Adds to counts [buckets] how many keys of the chunk [first, last) each bucket has. Returns 0;
// or 1, and counts nothing more, where a key or a value (values.data may be null) is not in
// [0, num_keys).
int64_t JgsGroupCount(JgsInts keys, JgsInts values, int64_t first, int64_t last,
                      int64_t num_keys, int64_t shift, int64_t* counts);

// Writes the keys of the chunk and their positions to spread and order, from next[bucket] on.
void JgsGroupSpread(JgsInts keys, int64_t first, int64_t last, int64_t shift, int64_t* next,
                    int32_t* spread, JgsInts order);

// Sorts the bucket [first, last) of spread and order, whose keys are first_key and the
// num_keys - 1 after it: sets the ends of its groups [num_keys], order, and, where there are
// values, spread to those at the positions in order. Returns 0, or 1 if memory is short.
int64_t JgsGroupSort(int64_t first, int64_t last, int64_t first_key, int64_t num_keys,
                     JgsInts values, int32_t* spread, JgsInts order, int64_t* ends);

// Asks for huge pages for a result that is about to be written.
void JgsGroupResult(void* data, int64_t bytes);
}

#endif  // JGS_KERNELS_GROUP_H_
