#include "rows.h"

#include <algorithm>
#include <vector>

namespace jgs {

void RouteRows(const Owners& o, const int32_t* nodes, int64_t num_nodes, int64_t capacity,
               int32_t* own, int32_t* requests, int32_t* place) {
  constexpr int64_t kAhead = 16;
  const int32_t* last = o.offsets + o.num_ranks;
  const int32_t begin = o.offsets[o.rank], end = o.offsets[o.rank + 1];
  const int64_t columns = 1 + capacity;
  std::fill(requests, requests + o.num_ranks * columns, *last);
  std::vector<int64_t> count(o.num_ranks, 0);
  const auto in_mask = [&](int32_t node) { return node >= 0 && node < o.num_held; };
  for (int64_t i = 0; i < num_nodes; ++i) {
    if (i + kAhead < num_nodes && in_mask(nodes[i + kAhead])) {
      __builtin_prefetch(&o.held[nodes[i + kAhead]]);
    }
    const int32_t node = nodes[i];
    place[i] = -1;
    own[i] = *last;
    if (node < o.offsets[0] || node >= *last) continue;
    if ((node >= begin && node < end) || (in_mask(node) && o.held[node])) {
      own[i] = node;
      continue;
    }
    const int64_t owner = std::upper_bound(o.offsets, last, node) - o.offsets - 1;
    const int64_t nth = count[owner]++;
    if (nth >= capacity) continue;
    requests[owner * columns + 1 + nth] = node;
    place[i] = static_cast<int32_t>(owner * capacity + nth);
  }
  const int64_t most = *std::max_element(count.begin(), count.end());
  for (int64_t r = 0; r < o.num_ranks; ++r) requests[r * columns] = static_cast<int32_t>(most);
}

std::string MergeRows(const Answers& a, int64_t room, int32_t* indptr, int32_t* neighbors) {
  const char* const damaged =
      "a rank's reply must have rows within it and node ids in range. Do all ranks run the same "
      "version on the same partition?";
  const int64_t columns = 2 + a.capacity + a.edge_capacity;
  int64_t at = 0;
  uint32_t largest = 0;  // as unsigned, so that a negative id is large
  indptr[0] = 0;
  for (int64_t t = 0; t < a.num_rows; ++t) {
    const int32_t* from = a.own_indices;
    int64_t begin = a.own_indptr[t], end = a.own_indptr[t + 1], limit = a.num_own;
    if (a.place[t] >= 0) {
      const int64_t rank = a.place[t] / a.capacity, nth = a.place[t] % a.capacity;
      if (rank >= a.num_ranks) return damaged;
      const int32_t* ends = a.replies + rank * columns + 2;
      from = ends + a.capacity;
      begin = nth > 0 ? ends[nth - 1] : 0;
      end = ends[nth];
      limit = a.edge_capacity;
    }
    if (begin < 0 || end < begin || end > limit) return damaged;
    const int64_t count = std::min(end - begin, room - at);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t node = from[begin + i];
      neighbors[at + i] = node;
      largest = std::max(largest, static_cast<uint32_t>(node));
    }
    at += count;
    indptr[t + 1] = static_cast<int32_t>(at);
  }
  if (at > 0 && largest >= static_cast<uint32_t>(a.num_nodes)) return damaged;
  std::fill(neighbors + at, neighbors + room, a.num_nodes);
  return "";
}

}  // namespace jgs
