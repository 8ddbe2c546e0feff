// The rows that a hop of LABOR draws from: one for each target or, in draws by relation, one for
// each of its runs, which are its edges of one relation. Included by labor.cc.
#ifndef JGS_KERNELS_LABOR_ROWS_H_
#define JGS_KERNELS_LABOR_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "sample_hops.h"

namespace jgs {

// `kLimited`: whether there are Limits; `kTimed`: whether nodes have cutoffs. A row has a number,
// and those of a chunk of targets follow each other. If no hop draws by relation, a row's number
// is that of its target.
template <bool kLimited, bool kTimed, bool kByRelation>
class HopRows {
 public:
  HopRows(const GraphView& graph, const Limits& limits, const Relations& relations, Team& team,
          Workspace& work)
      : graph_(graph), limits_(limits), relations_(relations), team_(team), w_(work),
        s_(work.labor) {}

  // Finds the rows of a hop; false if the graph is damaged.
  bool Find(const Hop& hop, const Targets& targets) {
    if constexpr (!kByRelation) return true;
    std::atomic<bool> good{true};
    if (s_.found.size() < static_cast<size_t>(targets.num_chunks)) {
      s_.found.resize(targets.num_chunks);
    }
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      auto& found = s_.found[chunk];
      found.clear();
      for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
        if (!OfTarget(hop, targets.nodes[t], t, found)) good.store(false);
      }
    });
    s_.row_begin.assign(targets.num_chunks + 1, 0);
    for (int64_t chunk = 0; chunk < targets.num_chunks; ++chunk) {
      const int64_t num = static_cast<int64_t>(s_.found[chunk].size());
      s_.row_begin[chunk + 1] = s_.row_begin[chunk] + num;
    }
    s_.rows.Reserve(s_.row_begin[targets.num_chunks]);
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      std::copy(s_.found[chunk].begin(), s_.found[chunk].end(),
                s_.rows.data() + s_.row_begin[chunk]);
    });
    return good.load();
  }

  int64_t Num(const Targets& targets) const { return End(targets, targets.num_chunks - 1); }

  int64_t Begin(const Targets& targets, int64_t chunk) const {
    return kByRelation ? s_.row_begin[chunk] : targets.Begin(chunk);
  }

  int64_t End(const Targets& targets, int64_t chunk) const {
    return kByRelation ? s_.row_begin[chunk + 1] : targets.End(chunk);
  }

  int64_t Start(int64_t r) const { return kByRelation ? s_.rows[r].start : w_.row_start[r]; }
  int32_t Degree(int64_t r) const { return kByRelation ? s_.rows[r].degree : w_.degree[r]; }
  int64_t Target(int64_t r) const { return kByRelation ? s_.rows[r].target : r; }
  int32_t Era(int64_t target) const { return kTimed ? w_.era[target] : 0; }
  int32_t Relation(int64_t r) const { return kByRelation ? s_.rows[r].relation : -1; }

  Holes HolesOf(int64_t r) const {
    if (!kLimited) return {};
    return kByRelation ? s_.rows[r].holes : w_.holes[r];
  }

  int64_t Fanout(const Hop& hop, int64_t r) const {
    return kByRelation ? s_.rows[r].fanout : hop.fanout;
  }

  // Whether the row takes all its neighbours.
  bool Whole(const Hop& hop, int64_t r) const {
    const int64_t fanout = Fanout(hop, r);
    return fanout < 0 || Degree(r) <= fanout;
  }

  // Whether some rows of the hop draw, and not all take all their neighbours.
  bool AnyDraws(const Hop& hop) const {
    if (hop.relation_fanout == nullptr) return hop.fanout >= 0;
    return std::any_of(hop.relation_fanout, hop.relation_fanout + relations_.num,
                       [](int64_t fanout) { return fanout > 0; });
  }

 private:
  using Row = LaborScratch::Row;

  // Appends the rows of a target; false if the graph is damaged.
  bool OfTarget(const Hop& hop, int32_t node, int64_t target, std::vector<Row>& found) const {
    if (node >= graph_.num_nodes) return true;  // padding among the seeds
    const int64_t start = graph_.indptr[node], length = graph_.ends[node] - start;
    if (start < 0 || length < 0 || length > graph_.num_edges - start ||
        length > std::numeric_limits<int32_t>::max()) {
      return false;
    }
    if (hop.relation_fanout == nullptr) {
      Append(start, length, {0, hop.fanout, target, {}, 0, -1}, found);
      return true;
    }
    const int16_t* const types = relations_.edge_type + start;
    for (int64_t first = 0, last = first; first < length; first = last) {
      const int16_t relation = types[first];
      if (relation < 0 || relation >= relations_.num) return false;
      last = std::upper_bound(types + first, types + length, relation) - types;
      if (last == first) return false;  // the types do not ascend
      const int64_t fanout = hop.relation_fanout[relation];
      if (fanout == 0) continue;
      Append(start + first, last - first, {0, fanout, target, {}, 0, relation}, found);
    }
    return true;
  }

  void Append(int64_t start, int64_t length, Row row, std::vector<Row>& found) const {
    row.start = start;
    row.degree = static_cast<int32_t>(length);
    if (kLimited) {
      const Stretch part = limits_.Of(start, length, kTimed ? w_.cutoffs[Era(row.target)] : 0);
      row.start = part.start;
      row.degree = part.count;
      row.holes = part.holes;
    }
    if (row.degree > 0) found.push_back(row);
  }

  const GraphView& graph_;
  const Limits& limits_;
  const Relations& relations_;
  Team& team_;
  Workspace& w_;
  LaborScratch& s_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_ROWS_H_
