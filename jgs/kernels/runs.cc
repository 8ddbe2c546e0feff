#include "runs.h"

#include <algorithm>
#include <vector>

namespace jgs {
namespace {

// Calls visit(target, first edge, end, relation) for every run, in the order of the edges.
template <typename Visit>
void ForRuns(const TypedEdges& edges, const Visit& visit) {
  const BlockView& block = edges.block;
  for (int64_t t = 0; t < block.num_targets; ++t) {
    const int32_t end = block.indptr[t + 1];
    for (int32_t first = block.indptr[t]; first < end;) {
      int32_t last = first + 1;
      while (last < end && edges.type[last] == edges.type[first]) ++last;
      visit(static_cast<int32_t>(t), first, last, edges.type[first]);
      first = last;
    }
  }
}

}  // namespace

std::string FindRuns(const TypedEdges& edges, RunsOut& out) {
  const BlockView& block = edges.block;
  if (const std::string error = CheckRows(block); !error.empty()) return error;
  const int64_t num_edges = block.indptr[block.num_targets];
  for (int64_t e = 0; e < num_edges; ++e) {
    if (edges.type[e] < 0 || edges.type[e] >= edges.num_relations) {
      return "edge_type must be in [0, " + std::to_string(edges.num_relations) + "), not " +
             std::to_string(edges.type[e]);
    }
  }
  std::vector<int64_t> next(edges.num_relations + 1, 0);
  out.num_runs = 0;
  ForRuns(edges, [&](int32_t, int32_t, int32_t, int16_t r) { ++next[r + 1], ++out.num_runs; });
  if (out.num_runs > out.num_runs_capacity) return "a row must be sorted by edge_type";
  for (int64_t r = 0; r < edges.num_relations; ++r) {
    const int64_t tiles = (next[r + 1] + out.tile - 1) / out.tile;
    std::fill_n(out.relation + next[r] / out.tile, tiles, static_cast<int32_t>(r));
    next[r + 1] = next[r] + tiles * out.tile;
  }
  out.num_slots = next[edges.num_relations];
  std::fill(out.relation + out.num_slots / out.tile,
            out.relation + out.num_slots_capacity / out.tile, 0);

  std::fill_n(out.target, out.num_slots_capacity, static_cast<int32_t>(block.target_capacity));
  std::fill_n(out.indptr, out.num_slots_capacity + 1, 0);
  std::fill_n(out.sum_indptr, block.target_capacity + 1, 0);
  // At first the place of a run's first edge holds its slot, and the row starts hold lengths.
  int64_t run = 0;
  ForRuns(edges, [&](int32_t t, int32_t first, int32_t last, int16_t r) {
    const int64_t slot = next[r]++;
    out.target[slot] = t;
    out.indptr[slot + 1] = last - first;
    out.place[first] = static_cast<int32_t>(slot);
    out.sum_indices[run++] = static_cast<int32_t>(slot);
    ++out.sum_indptr[t + 1];
  });
  for (int64_t k = 0; k < out.num_slots_capacity; ++k) out.indptr[k + 1] += out.indptr[k];
  for (int64_t t = 0; t < block.target_capacity; ++t) {
    out.sum_indptr[t + 1] += out.sum_indptr[t];
  }
  ForRuns(edges, [&](int32_t, int32_t first, int32_t last, int16_t) {
    int32_t at = out.indptr[out.place[first]];
    for (int32_t e = first; e < last; ++e, ++at) {
      out.order[at] = e;
      out.indices[at] = block.indices[e];
      out.place[e] = at;
    }
  });
  const auto edge_padding = static_cast<int32_t>(block.edge_capacity);
  for (int64_t e = num_edges; e < block.edge_capacity; ++e) {
    out.order[e] = out.place[e] = edge_padding;
    out.indices[e] = static_cast<int32_t>(block.num_rows);
  }
  std::fill(out.sum_indices + out.num_runs, out.sum_indices + out.num_runs_capacity,
            static_cast<int32_t>(out.num_slots_capacity));
  return "";
}

}  // namespace jgs
