#include "route.h"

#include <algorithm>
#include <vector>

namespace jgs {

void Route(const Routing& r, const int32_t* nodes, int64_t num_nodes, int32_t* requests,
           int32_t* place) {
  const int32_t* last = r.offsets + r.num_ranks;
  const int64_t columns = r.capacity + 1, first = r.round * r.capacity;
  std::fill(requests, requests + r.num_ranks * columns, *last);
  std::vector<int64_t> count(r.num_ranks, 0);
  for (int64_t i = 0; i < num_nodes; ++i) {
    const int32_t node = nodes[i];
    place[i] = -1;
    if (node < r.offsets[0] || node >= *last) continue;
    const int64_t owner = std::upper_bound(r.offsets, last, node) - r.offsets - 1;
    if (owner == r.rank) {
      if (r.round == 0) place[i] = node - r.offsets[r.rank];
      continue;
    }
    const int32_t slot = node < r.num_slots ? r.cache_slot[node] : -1;
    if (slot >= 0) {
      if (r.round == 0) place[i] = static_cast<int32_t>(r.num_own + slot);
      continue;
    }
    const int64_t nth = count[owner]++ - first;
    if (nth < 0 || nth >= r.capacity) continue;
    requests[owner * columns + nth] = node;
    place[i] = static_cast<int32_t>(r.num_own + r.num_cached + owner * r.capacity + nth);
  }
  const int64_t most = *std::max_element(count.begin(), count.end());
  for (int64_t p = 0; p < r.num_ranks; ++p) {
    requests[p * columns + r.capacity] = static_cast<int32_t>(most);
  }
}

}  // namespace jgs
