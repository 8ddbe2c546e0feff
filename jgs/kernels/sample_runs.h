// Draws by relation: `fanout` neighbours of every run, which are the edges of one relation into a
// node. Included by sample.cc; jgs/sampling/algorithms/neighbors.py defines the
// results.
#ifndef JGS_KERNELS_SAMPLE_RUNS_H_
#define JGS_KERNELS_SAMPLE_RUNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "draw.h"
#include "draw_recent.h"
#include "draw_weighted.h"
#include "sample_hops.h"

namespace jgs {

constexpr int kRelationBits = 15;  // of an entry of RelationIndex::runs

// The Rows of a HopSampler. A hop that draws from all edges has one run a node. `simple`: whether
// all draws are uniform, of all edges; nothing but the speed depends on it.
template <bool timed, bool simple>
class RunRows {
 public:
  static constexpr bool kTimed = timed, kByRelation = true, kScans = false;
  using Id = std::conditional_t<timed, int64_t, int32_t>;

  RunRows(const GraphView& graph, const Limits& limits, const NeighborOptions& options, Team& team,
          Workspace& work)
      : graph_(graph), limits_(limits), replace_(options.replace), weighted_(options.weighted),
        latest_(options.latest), relations_(options.relations), recency_(options.recency),
        team_(team), w_(work) {}

  // Finds where the index has the runs of these nodes: the first in `row_start`, and their number
  // in `degree`.
  void FindRuns(const int32_t* nodes, int64_t begin, int64_t end) {
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

  bool Bound(const Hop& hop, const Targets& targets) {
    FindKeys(hop);
    w_.bound.assign(targets.num_chunks + 1, 0);
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      int64_t sum = 0;
      ForRuns(hop, targets, chunk, [&](const Run& run) { sum += Most(run); });
      w_.bound[chunk + 1] = sum;
    });
    for (int64_t c = 0; c < targets.num_chunks; ++c) w_.bound[c + 1] += w_.bound[c];
    return !damaged_.load();
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, StreamOf<timed>& stream) {
    Together together(*this, hop, targets.Begin(chunk), w_.bound[chunk], stream);
    ForRuns(hop, targets, chunk, [&](const Run& run) { together.Add(run); });
    together.Flush();
    together.EndRows(targets.End(chunk));
  }

 private:
  // The eligible edges of a run.
  struct Run {
    int64_t target;
    int32_t node;
    Stretch edges;
    int64_t fanout;
    int32_t relation;  // -1: those of all relations
    int64_t begin;     // of the run's edges, those that are not eligible too
  };

  static constexpr size_t kTogether = 256;  // runs that are drawn together

  // Draws for some runs at a time, in lanes, and adds their edges in order.
  class Together {
   public:
    Together(const RunRows& rows, const Hop& hop, int64_t first_target, int64_t edges,
             StreamOf<timed>& stream)
        : r_(rows), hop_(hop), stream_(stream), draws_(0), by_weight_(draws_, rows.replace_),
          by_recency_(draws_, rows.recency_, rows.replace_),
          row_(first_target), edges_(edges) {
      runs_.reserve(kTogether);
    }

    void Add(const Run& run) {
      runs_.push_back(run);
      if (r_.Random(run)) AddLane(run);
      if (runs_.size() == kTogether || draws_.num_rows == kLanes) Flush();
    }

    void Flush() {
      if (draws_.num_rows > 0) {
        draws_.MakeRoom();
        if (r_.Recent()) {
          by_recency_.Draw(hop_.key, r_.isa_);
        } else if (!simple && r_.weighted_) {
          by_weight_.Draw(hop_.key, r_.isa_);
        } else if (r_.replace_) {
          RunOn(r_.isa_, DrawRows<Mode::kRepeated, true>{hop_.key, draws_});
        } else {
          RunOn(r_.isa_, DrawRows<Mode::kDistinct, true>{hop_.key, draws_});
        }
      }
      int lane = 0;
      for (const Run& run : runs_) {
        EndRows(run.target + 1);
        const int64_t count = Take(run, lane);
        if (hop_.edge_type != nullptr && run.relation >= 0) {
          std::fill_n(hop_.edge_type + edges_, count, static_cast<int16_t>(run.relation));
        }
        edges_ += count;
      }
      runs_.clear();
      draws_.num_rows = 0;
      draws_.fanout = 0;
    }

    // The next edges belong to the target before `row`, or to later ones.
    void EndRows(int64_t row) {
      for (; row_ < row; ++row_) hop_.indptr[row_] = static_cast<int32_t>(edges_);
    }

   private:
    void AddLane(const Run& run) {
      const int lane = draws_.num_rows++;
      const Key& key = r_.KeyOf(run);
      const Stretch& edges = run.edges;
      draws_.node[lane] = static_cast<uint32_t>(run.node);
      draws_.degree[lane] = static_cast<uint32_t>(edges.count);
      draws_.own_fanout[lane] = static_cast<uint32_t>(run.fanout);
      draws_.fanout = std::max(draws_.fanout, run.fanout);
      draws_.key0[lane] = key.word[0];
      draws_.key1[lane] = key.word[1];
      if (r_.Recent()) by_recency_.Limit(lane, edges, run.begin);
      if (simple || !r_.weighted_) return;
      const int64_t* const prefix = r_.graph_.weight_prefix;
      PrefetchFar(&prefix[edges.start + edges.length() - 1]);
      draws_.degree[lane] = static_cast<uint32_t>(edges.length());
      by_weight_.prefix[lane] = prefix + edges.start;
      const int64_t base = r_.Base(run);
      by_weight_.Limit(lane, edges.start, edges.holes,
                       r_.limits_.WeightsOf(edges.holes, edges.start, base));
    }

    // Adds the edges that a run draws; returns their number.
    int64_t Take(const Run& run, int& lane) {
      const int32_t era = timed ? r_.w_.era[run.target] : 0;
      const Holes holes = run.edges.holes;
      const int64_t start = run.edges.start, degree = run.edges.count;
      const auto add = [&](int64_t count, const auto& position) {
        if (holes.num == 0) {
          stream_.Add(count, [=](int64_t i) { return start + position(i); }, era);
        } else {
          stream_.Add(count, [=](int64_t i) { return holes.Edge(start, position(i)); }, era);
        }
        return count;
      };
      if constexpr (simple) {
        if (r_.Random(run)) {
          const int32_t* const drawn = &draws_.position[lane++];
          stream_.Add(run.fanout, [=](int64_t i) { return start + drawn[i * kLanes]; }, era);
          return run.fanout;
        }
        stream_.Add(degree, [=](int64_t i) { return start + i; }, era);
        return degree;
      }
      if (r_.Random(run)) {
        const int32_t* const drawn = &draws_.position[lane];
        const int64_t count =
            r_.weighted_ ? std::min<int64_t>(by_weight_.count[lane], run.fanout) : run.fanout;
        ++lane;
        const auto position = [=](int64_t i) -> int64_t { return drawn[i * kLanes]; };
        if (!r_.weighted_ && !r_.Recent()) return add(count, position);
        // Draws by weight and by recency are positions in the stretch, holes and all.
        stream_.Add(count, [=](int64_t i) { return start + position(i); }, era);
        return count;
      }
      if (r_.latest_ && run.fanout >= 0) {
        const int64_t count = std::min(degree, run.fanout);
        return add(count, [=](int64_t i) { return degree - count + i; });
      }
      if (!r_.weighted_) return add(degree, [](int64_t i) { return i; });
      return TakeWeighted(run, era);
    }

    // Adds a run's edges of positive weight; returns their number.
    int64_t TakeWeighted(const Run& run, int32_t era) {
      const Stretch& edges = run.edges;
      int64_t count = 0, before = r_.Base(run);
      int32_t hole = 0;
      for (int64_t i = 0; i < edges.length(); ++i) {
        const int64_t edge = edges.start + i;
        const int64_t through = r_.graph_.weight_prefix[edge];
        const bool nothing = through == before;
        before = through;
        if (hole < edges.holes.num && edges.holes.edge[hole] == edge) {
          ++hole;
          continue;
        }
        if (nothing) continue;
        stream_.Add(1, [=](int64_t) { return edge; }, era);
        ++count;
      }
      return count;
    }

    const RunRows& r_;
    const Hop& hop_;
    StreamOf<timed>& stream_;
    Draws draws_;
    WeightedDraws<true, true> by_weight_;
    RecentDraws by_recency_;
    std::vector<Run> runs_;
    int64_t row_;    // the first target whose row has not begun
    int64_t edges_;  // where the next edge is placed
  };

  // Calls `look` with the runs that the targets of a chunk draw from, in order.
  template <typename Look>
  void ForRuns(const Hop& hop, const Targets& targets, int64_t chunk, const Look& look) {
    const int64_t end = targets.End(chunk);
    for (int64_t t = targets.Begin(chunk); t < end; ++t) {
      const int32_t node = targets.nodes[t];
      if (node >= graph_.num_nodes) continue;  // padding among the seeds
      if (hop.relation_fanout != nullptr && relations_.index.indptr != nullptr) {
        if (t + kAhead < end) PrefetchFar(&relations_.index.runs[w_.row_start[t + kAhead]]);
        if (t + kAhead / 2 < end) PrefetchTimes(t + kAhead / 2);
        ForIndexed(hop, t, node, look);
        continue;
      }
      const int64_t start = graph_.indptr[node], length = graph_.ends[node] - start;
      if (!Sound(start, start + length)) continue;
      if (hop.relation_fanout == nullptr) {
        LookAt(t, node, start, length, hop.fanout, -1, look);
      } else {
        ForRow(hop, t, node, start, length, look);
      }
    }
  }

  // Prefetches the times of the first edges of a row, which the search for its cutoff reads.
  void PrefetchTimes(int64_t t) {
    if (simple || !timed || limits_.time == nullptr) return;
    PrefetchFar(&limits_.time[relations_.index.runs[w_.row_start[t]] >> kRelationBits]);
  }

  template <typename Look>
  void ForIndexed(const Hop& hop, int64_t t, int32_t node, const Look& look) {
    const int64_t* const runs = &relations_.index.runs[w_.row_start[t]];
    int64_t start = runs[0] >> kRelationBits;
    for (int32_t i = 0; i < w_.degree[t]; ++i) {
      const int64_t relation = runs[i] & ((1 << kRelationBits) - 1);
      const int64_t stop = runs[i + 1] >> kRelationBits;
      if (!Sound(start, stop) || !Known(relation)) return;
      LookAt(t, node, start, stop - start, hop.relation_fanout[relation],
            static_cast<int32_t>(relation), look);
      start = stop;
    }
  }

  // Finds the runs of a row in its edges' types.
  template <typename Look>
  void ForRow(const Hop& hop, int64_t t, int32_t node, int64_t start, int64_t length,
              const Look& look) {
    const int16_t* const types = relations_.edge_type + start;
    for (int64_t first = 0, last = first; first < length; first = last) {
      const int16_t relation = types[first];
      last = std::upper_bound(types + first, types + length, relation) - types;
      if (!Known(relation)) return;
      LookAt(t, node, start + first, last - first, hop.relation_fanout[relation], relation, look);
    }
  }

  template <typename Look>
  void LookAt(int64_t t, int32_t node, int64_t start, int64_t length, int64_t fanout,
             int32_t relation, const Look& look) {
    if (fanout == 0) return;
    Run run{t, node, {start, static_cast<int32_t>(length), {}}, fanout, relation, start};
    if (!simple && limits_.any()) {
      run.edges = limits_.Of(start, length, timed ? w_.cutoffs[w_.era[t]] : 0);
    }
    if (run.edges.count > 0) look(run);
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

  // The keys of a hop: for every relation one for each cutoff.
  void FindKeys(const Hop& hop) {
    keys_.clear();
    const int64_t num = hop.relation_fanout == nullptr ? 1 : relations_.num;
    for (int64_t relation = 0; relation < num; ++relation) {
      Key of_relation = hop.key;
      if (hop.relation_fanout != nullptr) {
        of_relation = {{0, static_cast<uint32_t>(relation)}};
        Threefry(hop.key, of_relation.word[0], of_relation.word[1]);
      }
      if constexpr (!timed) keys_.push_back(of_relation);
      for (size_t era = 0; timed && era < w_.cutoffs.size(); ++era) {
        keys_.push_back(WithCutoff(of_relation, w_.cutoffs[era]));
      }
    }
  }

  const Key& KeyOf(const Run& run) const {
    const int64_t relation = std::max(run.relation, 0);
    if constexpr (!timed) return keys_[relation];
    return keys_[relation * w_.cutoffs.size() + w_.era[run.target]];
  }

  bool Recent() const { return timed && recency_.half_life > 0; }

  // Whether a run needs random bits; otherwise its edges are taken in order.
  bool Random(const Run& run) const {
    if (run.fanout < 0 || (!simple && latest_)) return false;
    return replace_ || run.edges.count > run.fanout;
  }

  // The most edges that a run draws.
  int64_t Most(const Run& run) const {
    if (run.fanout < 0) return run.edges.count;
    return replace_ ? run.fanout : std::min<int64_t>(run.edges.count, run.fanout);
  }

  // The weight in the row before a run's edges.
  int64_t Base(const Run& run) const {
    const int64_t start = run.edges.start;
    return start > graph_.indptr[run.node] ? graph_.weight_prefix[start - 1] : 0;
  }

  const GraphView& graph_;
  const Limits& limits_;
  const bool replace_, weighted_, latest_;
  const Relations relations_;
  const Recency recency_;
  Team& team_;
  Workspace& w_;
  std::vector<Key> keys_;
  std::atomic<bool> damaged_{false};
  const Isa isa_ = BestIsa();
};

}  // namespace jgs

#endif  // JGS_KERNELS_SAMPLE_RUNS_H_
