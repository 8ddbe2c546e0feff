#include "runs.h"

#include <algorithm>
#include <vector>

namespace jgs {
namespace {

// Which relations a target has had an edge of, without clearing between targets.
class Seen {
 public:
  explicit Seen(int64_t num_relations) : by_(num_relations, -1) {}

  // Whether this is the first edge of the relation into target t. Targets ascend.
  bool First(int16_t relation, int32_t t) {
    const bool first = by_[relation] != t;
    by_[relation] = t;
    return first;
  }

 private:
  std::vector<int32_t> by_;
};

}  // namespace

std::string FindRuns(const TypedEdges& edges, RunsOut& out) {
  const BlockView& block = edges.block;
  if (const std::string error = CheckRows(block); !error.empty()) return error;
  const int64_t num_edges = block.indptr[block.num_targets], num_relations = edges.num_relations;
  for (int64_t e = 0; e < num_edges; ++e) {
    if (edges.type[e] < 0 || edges.type[e] >= num_relations) {
      return "edge_type must be in [0, " + std::to_string(num_relations) + "), not " +
             std::to_string(edges.type[e]);
    }
  }
  std::vector<int64_t> next(num_relations + 1, 0);
  Seen counted(num_relations);
  out.num_runs = 0;
  for (int32_t t = 0; t < block.num_targets; ++t) {
    for (int32_t e = block.indptr[t]; e < block.indptr[t + 1]; ++e) {
      if (counted.First(edges.type[e], t)) ++next[edges.type[e] + 1], ++out.num_runs;
    }
  }
  for (int64_t r = 0; r < num_relations; ++r) {
    const int64_t tiles = (next[r + 1] + out.tile - 1) / out.tile;
    std::fill_n(out.relation + next[r] / out.tile, tiles, static_cast<int32_t>(r));
    next[r + 1] = next[r] + tiles * out.tile;
  }
  out.num_slots = next[num_relations];
  std::fill(out.relation + out.num_slots / out.tile,
            out.relation + out.num_slots_capacity / out.tile, 0);

  // At first an edge's place is its slot.
  std::fill_n(out.target, out.num_slots_capacity, static_cast<int32_t>(block.target_capacity));
  std::vector<int32_t> slot_of(num_relations);
  std::vector<int32_t> start(out.num_slots_capacity + 1, 0);
  Seen seen(num_relations);
  int32_t run = 0;
  out.sum_indptr[0] = 0;
  for (int32_t t = 0; t < block.target_capacity; ++t) {
    for (int32_t e = block.indptr[t]; e < block.indptr[t + 1]; ++e) {
      const int16_t r = edges.type[e];
      if (seen.First(r, t)) {
        slot_of[r] = static_cast<int32_t>(next[r]++);
        out.target[slot_of[r]] = t;
        out.sum_indices[run++] = slot_of[r];
      }
      out.place[e] = slot_of[r];
      ++start[slot_of[r] + 1];
    }
    int32_t* const runs = out.sum_indices + out.sum_indptr[t];
    if (!std::is_sorted(runs, out.sum_indices + run)) std::sort(runs, out.sum_indices + run);
    out.sum_indptr[t + 1] = run;
  }
  for (int64_t k = 0; k < out.num_slots_capacity; ++k) start[k + 1] += start[k];
  std::copy(start.begin(), start.end(), out.indptr);
  for (int32_t e = 0; e < num_edges; ++e) {
    const int32_t at = start[out.place[e]]++;
    out.order[at] = e;
    out.indices[at] = block.indices[e];
    out.place[e] = at;
  }
  const auto edge_padding = static_cast<int32_t>(block.edge_capacity);
  for (int64_t e = num_edges; e < block.edge_capacity; ++e) {
    out.order[e] = out.place[e] = edge_padding;
    out.indices[e] = static_cast<int32_t>(block.num_rows);
  }
  std::fill(out.sum_indices + run, out.sum_indices + out.num_runs_capacity,
            static_cast<int32_t>(out.num_slots_capacity));
  return "";
}

}  // namespace jgs
