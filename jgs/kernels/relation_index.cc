#include "relation_index.h"

#include <algorithm>

void JgsRelationRuns(const int64_t* indptr, const int16_t* types, int64_t num_edges,
                     int64_t first, int64_t last, int64_t bits, int64_t* counts, int64_t* runs) {
  for (int64_t v = first; v < last; ++v) {
    const int64_t begin = std::max<int64_t>(indptr[v], 0);
    const int64_t end = std::min(indptr[v + 1], num_edges);
    int64_t count = begin < end ? 1 : 0;
    if (runs == nullptr) {
      for (int64_t e = begin + 1; e < end; ++e) count += types[e] != types[e - 1];
      counts[v - first] = count;
      continue;
    }
    for (int64_t e = begin; e < end; ++e) {
      if (e == begin || types[e] != types[e - 1]) *runs++ = (e << bits) | types[e];
    }
  }
}
