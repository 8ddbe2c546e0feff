// The runs of rows: the edges of one relation. jgs/graph/grouping.py calls it.
#ifndef JGS_KERNELS_RELATION_INDEX_H_
#define JGS_KERNELS_RELATION_INDEX_H_

#include <cstdint>

extern "C" {

// For the rows [first, last) of `indptr`, as far as they are within the edges, writes counts[v - first], the number of runs of row v.
// Unless `runs` is null it writes there, run by run, the first edge times 2^bits plus the relation.
void JgsRelationRuns(const int64_t* indptr, const int16_t* types, int64_t num_edges,
                     int64_t first, int64_t last, int64_t bits, int64_t* counts, int64_t* runs);
}

#endif  // JGS_KERNELS_RELATION_INDEX_H_
