// The runs that the targets of a hop draw from, in draws by relation. Included by sample_runs.h.
#ifndef JGS_KERNELS_FIND_RUNS_H_
#define JGS_KERNELS_FIND_RUNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "sample_hops.h"
#include "time_search.h"

namespace jgs {

constexpr int kRelationBits = 15;  // of an entry of RelationIndex::runs
constexpr int64_t kRelations = int64_t{1} << kRelationBits;

// The fanout of each relation. A hop that draws from all edges has one run a node, of relation 0.
inline const int64_t* FanoutsOf(const Hop& hop) {
  return hop.relation_fanout != nullptr ? hop.relation_fanout : &hop.fanout;
}

template <bool timed>
class RunFinder {
 public:
  RunFinder(const GraphView& graph, const Limits& limits, const NeighborOptions& options,
            Workspace& work)
      : graph_(graph), limits_(limits), replace_(options.replace), relations_(options.relations),
        w_(work) {}

  // Finds where the index has the runs of these nodes: the first in `row_start`, and their number
  // in `degree`.
  void Locate(const int32_t* nodes, int64_t begin, int64_t end) {
    const RelationIndex& index = relations_.index;
    if (index.indptr == nullptr) return;
    for (int64_t t = begin; t < end; ++t) {
      if (t + kAhead < end) {
        PrefetchFar(&index.indptr[nodes[t + kAhead]]);
        PrefetchFar(&index.ends[nodes[t + kAhead]]);
      }
      int64_t first = 0, num = 0;
      if (nodes[t] < graph_.num_nodes) {
        first = index.indptr[nodes[t]];
        num = index.ends[nodes[t]] - first;
        if (first < 0 || num < 0 || num > index.num_runs - first) {
          damaged_.store(true);
          first = num = 0;
        }
      }
      w_.row_start[t] = first;
      w_.degree[t] = static_cast<int32_t>(num);
    }
  }

  // Finds the eligible edges of the runs that the targets of a chunk draw from, in order. Returns
  // how many edges are drawn at most. Any thread may call it.
  int64_t Find(const Hop& hop, const Targets& targets, int64_t chunk, FoundRuns& found) {
    found.num = 0;
    found.skipped.clear();
    Collect(hop, targets, chunk, found);
    if constexpr (timed) LimitByTime(found);
    return Count(hop, targets, chunk, found);
  }

  bool damaged() const { return damaged_.load(); }  // whether the graph or its index is

 private:
  // Finds the runs that the targets of a chunk draw from, in order, before their cutoffs too.
  void Collect(const Hop& hop, const Targets& targets, int64_t chunk, FoundRuns& found) {
    const int64_t end = targets.End(chunk);
    const int64_t* const runs = relations_.index.runs;
    const int64_t* const fanouts = FanoutsOf(hop);
    const bool indexed = hop.relation_fanout != nullptr && relations_.index.indptr != nullptr;
    for (int64_t t = targets.Begin(chunk); t < end; ++t) {
      const int32_t node = targets.nodes[t];
      if (indexed) {
        if (t + kAhead < end) {
          const int64_t* const ahead = &runs[w_.row_start[t + kAhead]];
          PrefetchFar(ahead);
          PrefetchFar(ahead + std::min(w_.degree[t + kAhead], 8));
        }
        Indexed(fanouts, t, found);
        continue;
      }
      if (node >= graph_.num_nodes) continue;  // padding among the seeds
      const int64_t start = graph_.indptr[node], length = graph_.ends[node] - start;
      if (!Sound(start, start + length)) continue;
      if (hop.relation_fanout == nullptr) {
        found.Room(1);
        Append(fanouts, start << kRelationBits, length, t, found);
      } else {
        OfTypes(fanouts, t, start, length, found);
      }
    }
  }

  void Indexed(const int64_t* fanouts, int64_t t, FoundRuns& found) {
    const int64_t* const runs = &relations_.index.runs[w_.row_start[t]];
    const int32_t num = w_.degree[t];
    found.Room(num);
    for (int32_t i = 0; i < num; ++i) {
      const int64_t start = runs[i] >> kRelationBits, stop = runs[i + 1] >> kRelationBits;
      if (!Sound(start, stop) || !Known(runs[i] & (kRelations - 1))) return;
      Append(fanouts, runs[i], stop - start, t, found);
    }
  }

  // Finds the runs of a row in its edges' types.
  void OfTypes(const int64_t* fanouts, int64_t t, int64_t start, int64_t length,
               FoundRuns& found) {
    const int16_t* const types = relations_.edge_type + start;
    for (int64_t first = 0, last = first; first < length; first = last) {
      const int16_t relation = types[first];
      last = std::upper_bound(types + first, types + length, relation) - types;
      if (!Known(relation)) return;
      found.Room(1);
      const int64_t run = (start + first) << kRelationBits | relation;
      Append(fanouts, run, last - first, t, found);
    }
  }

  // Keeps a run if the hop draws from it. There is room.
  static void Append(const int64_t* fanouts, int64_t run, int64_t length, int64_t t,
                     FoundRuns& found) {
    found.runs[found.num] = {run, static_cast<int32_t>(length), static_cast<int32_t>(t)};
    found.num += (length > 0) & (fanouts[run & (kRelations - 1)] != 0);
  }

  // Leaves in the runs the edges before their cutoffs, and since their windows begin.
  void LimitByTime(FoundRuns& found) {
    const auto search = [&](bool window, const auto& keep) {
      SearchTimes(
          found.num,
          [&](int64_t i, const int64_t*& values, int32_t& count, int64_t& target) {
            const FoundRuns::Run& run = found.runs[i];
            const int64_t cutoff = w_.cutoffs[w_.era[run.target]];
            values = limits_.time + (run.run >> kRelationBits);
            count = run.length;
            target = window ? limits_.Since(cutoff) : cutoff;
          },
          keep);
    };
    search(false, [&](int64_t i, int32_t at) { found.runs[i].length = at; });
    if (limits_.window < 0) return;
    found.skipped.resize(found.num);
    search(true, [&](int64_t i, int32_t at) {
      found.runs[i].run += int64_t{at} << kRelationBits;
      found.runs[i].length -= at;
      found.skipped[i] = at;
    });
  }

  // Leaves the runs that have eligible edges. Returns how many edges are drawn at most.
  int64_t Count(const Hop& hop, const Targets& targets, int64_t chunk, FoundRuns& found) const {
    const int64_t begin = targets.Begin(chunk), rows = targets.End(chunk) - begin;
    found.before.assign(rows, 0);
    int64_t num = 0;
    for (int64_t i = 0; i < found.num; ++i) {
      const FoundRuns::Run run = found.runs[i];
      int64_t count = run.length;
      if (limits_.num_excluded > 0) limits_.StepOver(run.run >> kRelationBits, count);
      const int64_t fanout = FanoutsOf(hop)[run.run & (kRelations - 1)];
      found.before[run.target - begin] += Most(count, fanout);
      found.runs[num] = run;
      if (!found.skipped.empty()) found.skipped[num] = found.skipped[i];
      num += count > 0;
    }
    found.num = num;
    int64_t sum = 0;
    for (int64_t& before : found.before) sum += std::exchange(before, sum);
    return sum;
  }

  // Whether the graph has the edges [start, stop) of a run.
  bool Sound(int64_t start, int64_t stop) {
    const bool sound = start >= 0 && stop >= start && stop <= graph_.num_edges &&
                       stop - start <= std::numeric_limits<int32_t>::max();
    if (!sound) damaged_.store(true);
    return sound;
  }

  bool Known(int64_t relation) {
    const bool known = relation >= 0 && relation < relations_.num;
    if (!known) damaged_.store(true);
    return known;
  }

  // The most edges that are drawn of a run with so many.
  int64_t Most(int64_t count, int64_t fanout) const {
    if (fanout < 0) return count;
    return replace_ && count > 0 ? fanout : std::min(count, fanout);
  }

  const GraphView& graph_;
  const Limits& limits_;
  const bool replace_;
  const Relations relations_;
  Workspace& w_;
  std::atomic<bool> damaged_{false};
};

}  // namespace jgs

#endif  // JGS_KERNELS_FIND_RUNS_H_
