// Draws by relation: `fanout` neighbours of every run, which are the edges of one relation into a
// node. Included by sample.cc; jgs/sampling/algorithms/neighbors.py defines the
// results.
#ifndef JGS_KERNELS_SAMPLE_RUNS_H_
#define JGS_KERNELS_SAMPLE_RUNS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draw.h"
#include "draw_recent.h"
#include "draw_weighted.h"
#include "find_runs.h"
#include "sample_hops.h"

namespace jgs {

// The Rows of a HopSampler.
template <bool timed, typename IdOfRows = int32_t>
class RunRows {
 public:
  static constexpr bool kTimed = timed, kByRelation = true, kScans = false;
  using Id = IdOfRows;
  using Stream = StreamOf<timed, Id>;

  RunRows(const GraphView& graph, const Limits& limits, const NeighborOptions& options, Team& team,
          Workspace& work)
      : graph_(graph), limits_(limits), replace_(options.replace), weighted_(options.weighted),
        latest_(options.latest), num_relations_(options.relations.num), recency_(options.recency),
        team_(team), w_(work), finder_(graph, limits, options, work) {}

  void FindRuns(const int32_t* nodes, int64_t begin, int64_t end) {
    finder_.Locate(nodes, begin, end);
  }

  bool Bound(const Hop& hop, const Targets& targets) {
    FindKeys(hop);
    fanouts_ = FanoutsOf(hop);
    w_.bound.assign(targets.num_chunks + 1, 0);
    if (static_cast<int64_t>(w_.found.size()) < targets.num_chunks) {
      w_.found.resize(targets.num_chunks);
    }
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      w_.bound[chunk + 1] = finder_.Find(hop, targets, chunk, w_.found[chunk]);
    });
    for (int64_t c = 0; c < targets.num_chunks; ++c) w_.bound[c + 1] += w_.bound[c];
    return !finder_.damaged();
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, Stream& stream) {
    const FoundRuns& found = w_.found[chunk];
    if (!weighted_ && !latest_ && !Recent() && limits_.num_excluded == 0) {
      return DrawUniform(hop, targets, chunk, found, stream);
    }
    Together together(*this, hop, targets.Begin(chunk), w_.bound[chunk], stream);
    for (int64_t i = 0; i < found.num; ++i) together.Add(RunOf(targets, found, i));
    together.Flush();
    together.EndRows(targets.End(chunk));
  }

 private:
  static constexpr int kFew = 8;  // so many edges of a run are read without a branch

  // The eligible edges of a run.
  struct Run {
    int64_t target;
    Stretch edges;
    int64_t fanout, relation;
    int64_t begin;  // of the run's edges, those that are not eligible too
    int32_t node;
  };

  Run RunOf(const Targets& targets, const FoundRuns& found, int64_t i) const {
    const FoundRuns::Run& run = found.runs[i];
    const int64_t start = run.run >> kRelationBits, relation = run.run & (kRelations - 1);
    int64_t count = run.length;
    const Holes holes = limits_.StepOver(start, count);
    const Stretch edges{start, static_cast<int32_t>(count), holes};
    const int64_t begin = start - (found.skipped.empty() ? 0 : found.skipped[i]);
    return {run.target, edges, fanouts_[relation], relation, begin, targets.nodes[run.target]};
  }

  // Draws where all edges that were found are equally likely.
  void DrawUniform(const Hop& hop, const Targets& targets, int64_t chunk, const FoundRuns& found,
                   Stream& stream) {
    const int64_t begin = targets.Begin(chunk), end = targets.End(chunk);
    for (int64_t t = begin; t < end; ++t) {
      hop.indptr[t] = static_cast<int32_t>(w_.bound[chunk] + found.before[t - begin]);
    }
    int16_t* types = hop.edge_type == nullptr ? nullptr : hop.edge_type + w_.bound[chunk];
    int32_t ascending[kFew];
    for (int i = 0; i < kFew; ++i) ascending[i] = i;
    Draws draws(0);
    for (int64_t first = 0, last = 0; first < found.num; first = last) {
      draws.num_rows = 0;
      draws.fanout = 0;
      // A lane is written for each run, and kept for those that draw: no branch to mispredict.
      for (; last < found.num && last - first < kTogether && draws.num_rows < kLanes; ++last) {
        const FoundRuns::Run& run = found.runs[last];
        const int64_t relation = run.run & (kRelations - 1), fanout = fanouts_[relation];
        const int lane = draws.num_rows;
        const Key& key = KeyOf(relation, run.target);
        draws.node[lane] = static_cast<uint32_t>(targets.nodes[run.target]);
        draws.degree[lane] = static_cast<uint32_t>(run.length);
        draws.own_fanout[lane] = static_cast<uint32_t>(fanout);
        draws.key0[lane] = key.word[0];
        draws.key1[lane] = key.word[1];
        const bool random = Random(run.length, fanout);
        draws.fanout = std::max(draws.fanout, random ? fanout : 0);
        draws.num_rows += random;
      }
      if (draws.num_rows > 0) DrawLanes(hop.key, draws);
      const int32_t* drawn = draws.position.get();
      for (int64_t i = first; i < last; ++i) {
        const FoundRuns::Run& run = found.runs[i];
        const int64_t start = run.run >> kRelationBits, relation = run.run & (kRelations - 1);
        const int64_t fanout = fanouts_[relation];
        const bool random = Random(run.length, fanout);
        const int64_t count = random ? fanout : run.length;
        const int32_t era = timed ? w_.era[run.target] : 0;
        if (fanout >= 0 && fanout <= kFew) {
          const int32_t* const position = random ? drawn : ascending;
          const int64_t step = random ? kLanes : 1;
          const auto edge_of = [=](int64_t j) { return start + position[j * step]; };
          stream.AddFew(fanout, count, edge_of, era);
        } else if (random) {
          stream.Add(count, [=](int64_t j) { return start + drawn[j * kLanes]; }, era);
        } else {
          stream.Add(count, [=](int64_t j) { return start + j; }, era);
        }
        drawn += random;
        if (types != nullptr) types = std::fill_n(types, count, static_cast<int16_t>(relation));
      }
    }
  }

  void DrawLanes(Key key, Draws& draws) const {
    draws.MakeRoom();
    if (replace_) {
      RunOn(isa_, DrawRows<Mode::kRepeated, true>{key, draws});
    } else {
      RunOn(isa_, DrawRows<Mode::kDistinct, true>{key, draws});
    }
  }

  static constexpr int64_t kTogether = 256;  // runs that are drawn together

  // Draws for some runs at a time, in lanes, and adds their edges in order.
  class Together {
   public:
    Together(const RunRows& rows, const Hop& hop, int64_t first_target, int64_t edges,
             Stream& stream)
        : r_(rows), hop_(hop), stream_(stream), draws_(0), by_weight_(draws_, rows.replace_),
          by_recency_(draws_, rows.recency_, rows.replace_),
          row_(first_target), edges_(edges) {
      runs_.reserve(kTogether);
    }

    void Add(const Run& run) {
      runs_.push_back(run);
      if (r_.Random(run.edges.count, run.fanout)) AddLane(run);
      if (runs_.size() == size_t{kTogether} || draws_.num_rows == kLanes) Flush();
    }

    void Flush() {
      if (draws_.num_rows > 0) {
        draws_.MakeRoom();
        if (r_.Recent()) {
          by_recency_.Draw(hop_.key, r_.isa_);
        } else if (r_.weighted_) {
          by_weight_.Draw(hop_.key, r_.isa_);
        } else {
          r_.DrawLanes(hop_.key, draws_);
        }
      }
      int lane = 0;
      for (const Run& run : runs_) {
        EndRows(run.target + 1);
        const int64_t count = Take(run, lane);
        if (hop_.edge_type != nullptr) {
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
      const Key& key = r_.KeyOf(run.relation, run.target);
      const Stretch& edges = run.edges;
      draws_.node[lane] = static_cast<uint32_t>(run.node);
      draws_.degree[lane] = static_cast<uint32_t>(edges.count);
      draws_.own_fanout[lane] = static_cast<uint32_t>(run.fanout);
      draws_.fanout = std::max(draws_.fanout, run.fanout);
      draws_.key0[lane] = key.word[0];
      draws_.key1[lane] = key.word[1];
      if (r_.Recent()) by_recency_.Limit(lane, edges, run.begin);
      if (!r_.weighted_) return;
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
      if (r_.Random(run.edges.count, run.fanout)) {
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
    Stream& stream_;
    Draws draws_;
    WeightedDraws<true, true> by_weight_;
    RecentDraws by_recency_;
    std::vector<Run> runs_;
    int64_t row_;    // the first target whose row has not begun
    int64_t edges_;  // where the next edge is placed
  };

  // The keys of a hop: for every relation one for each cutoff.
  void FindKeys(const Hop& hop) {
    keys_.clear();
    const int64_t num = hop.relation_fanout == nullptr ? 1 : num_relations_;
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

  const Key& KeyOf(int64_t relation, int64_t target) const {
    if constexpr (!timed) return keys_[relation];
    return keys_[relation * w_.cutoffs.size() + w_.era[target]];
  }

  bool Recent() const { return timed && recency_.half_life > 0; }

  // Whether a run needs random bits; otherwise its edges are taken in order.
  bool Random(int64_t count, int64_t fanout) const {
    return (fanout >= 0) & !latest_ & (replace_ | (count > fanout));
  }

  // The weight in the row before a run's edges.
  int64_t Base(const Run& run) const {
    const int64_t start = run.edges.start;
    return start > graph_.indptr[run.node] ? graph_.weight_prefix[start - 1] : 0;
  }

  const GraphView& graph_;
  const Limits& limits_;
  const bool replace_, weighted_, latest_;
  const int64_t num_relations_;
  const Recency recency_;
  Team& team_;
  Workspace& w_;
  std::vector<Key> keys_;
  const int64_t* fanouts_ = nullptr;  // of each relation
  RunFinder<timed> finder_;
  const Isa isa_ = BestIsa();
};

}  // namespace jgs

#endif  // JGS_KERNELS_SAMPLE_RUNS_H_
