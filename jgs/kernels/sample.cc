#include "sample.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "draw.h"
#include "draw_recent.h"
#include "draw_weighted.h"
#include "sample_hops.h"
#include "sample_runs.h"

namespace jgs {
namespace {

static_assert(kRowLanes == kLanes, "rows are drawn so many at a time");

// `fanout` neighbours of every row: the Rows of a HopSampler. `limited`: whether there are Limits.
template <bool limited, bool timed, typename IdOfRows = int32_t>
class NeighborRows {
 public:
  static constexpr bool kTimed = timed, kByRelation = false, kScans = false;
  using Id = IdOfRows;
  using Stream = StreamOf<timed, Id>;

  NeighborRows(const GraphView& graph, const Limits& limits, const NeighborOptions& options,
               Workspace& work)
      : graph_(graph), limits_(limits), replace_(options.replace), weighted_(options.weighted),
        latest_(options.latest), recency_(options.recency), w_(work) {}

  bool Bound(const Hop& hop, const Targets& targets) {
    if constexpr (timed) FindKeys(hop.key);
    w_.bound.assign(targets.num_chunks + 1, 0);
    const int64_t fanout = hop.fanout;
    const int32_t most = static_cast<int32_t>(
        std::min<int64_t>(fanout < 0 ? std::numeric_limits<int32_t>::max() : fanout,
                          std::numeric_limits<int32_t>::max()));
    for (int64_t c = 0; c < targets.num_chunks; ++c) {
      int64_t sum = 0;
      for (int64_t t = targets.Begin(c); t < targets.End(c); ++t) {
        const int32_t degree = w_.degree[t];
        sum += replace_ && fanout >= 0 ? (degree > 0 ? fanout : 0) : std::min(degree, most);
      }
      w_.bound[c + 1] = w_.bound[c] + sum;
    }
    return true;
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, Stream& stream) {
    const int64_t begin = targets.Begin(chunk), end = targets.End(chunk), k = hop.fanout;
    int64_t edges = w_.bound[chunk];
    if (k < 0) {
      for (int64_t t = begin; t < end; ++t) edges = Row(hop, t, edges, All(targets, t, stream));
    } else if (latest_) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t count = std::min<int64_t>(k, w_.degree[t]);
        const int64_t first = w_.degree[t] - count;
        Take(t, count, stream, [=](int64_t i) { return first + i; });
        edges = Row(hop, t, edges, count);
      }
    } else {
      Draws draws(k);
      WeightedDraws<limited, timed> by_weight(draws, replace_);
      RecentDraws by_recency(draws, recency_, replace_);
      int64_t ahead = begin;  // the first row whose weight is not prefetched
      for (int64_t first = begin, last = first; first < end; first = last) {
        draws.num_rows = 0;
        for (; last < end && draws.num_rows < kLanes; ++last) {
          if (!Random(k, w_.degree[last])) continue;
          const int row = draws.num_rows++;
          draws.node[row] = static_cast<uint32_t>(targets.nodes[last]);
          draws.degree[row] = static_cast<uint32_t>(w_.degree[last]);
          draws.own_fanout[row] = static_cast<uint32_t>(k);
          if constexpr (timed) {
            const Key& key = keys_[w_.era[last]];
            draws.key0[row] = key.word[0];
            draws.key1[row] = key.word[1];
          }
          if (timed && recency_.half_life > 0) {
            const int32_t node = targets.nodes[last];
            by_recency.Limit(row, {w_.row_start[last], w_.degree[last], w_.holes[last]},
                             node < graph_.num_nodes ? graph_.indptr[node] : 0);
          }
          if (!weighted_) continue;
          by_weight.prefix[row] = graph_.weight_prefix + w_.row_start[last];
          if constexpr (limited) {
            draws.degree[row] += static_cast<uint32_t>(w_.holes[last].num);
            const int64_t start = w_.row_start[last], base = Base(targets.nodes[last], last);
            by_weight.Limit(row, start, w_.holes[last],
                            limits_.WeightsOf(w_.holes[last], start, base));
          }
        }
        for (; weighted_ && ahead < std::min(last + 2 * kLanes, end); ++ahead) {
          const int64_t length = w_.degree[ahead] + (limited ? w_.holes[ahead].num : 0);
          const int64_t last_of_row = w_.row_start[ahead] + length - 1;
          PrefetchFar(&graph_.weight_prefix[std::max<int64_t>(last_of_row, 0)]);
        }
        if (draws.num_rows > 0) {
          draws.MakeRoom();
          if (timed && recency_.half_life > 0) {
            by_recency.Draw(hop.key, isa_);
          } else if (weighted_) {
            by_weight.Draw(hop.key, isa_);
          } else if (replace_) {
            RunOn(isa_, DrawRows<Mode::kRepeated, timed>{hop.key, draws});
          } else {
            RunOn(isa_, DrawRows<Mode::kDistinct, timed>{hop.key, draws});
          }
        }
        int row = 0;
        for (int64_t t = first; t < last; ++t) {
          int64_t count;
          if (Random(k, w_.degree[t])) {
            count = weighted_ ? by_weight.count[row] : k;
            const int64_t start = w_.row_start[t];
            const int32_t* position = &draws.position[row++];
            if (limited && !weighted_ && recency_.half_life == 0) {
              Take(t, count, stream, [=](int64_t i) { return position[i * kLanes]; });
            } else {  // draws by weight and by recency are positions in the stretch
              stream.Add(
                  count, [=](int64_t i) { return start + position[i * kLanes]; }, Era(t));
            }
          } else {
            count = All(targets, t, stream);
          }
          edges = Row(hop, t, edges, count);
        }
      }
    }
  }

 private:
  int32_t Era(int64_t t) const { return timed ? w_.era[t] : 0; }

  // The keys of this hop, one for each cutoff.
  void FindKeys(Key key) {
    keys_.clear();
    for (const int64_t cutoff : w_.cutoffs) keys_.push_back(WithCutoff(key, cutoff));
  }

  // The weight in the row before its stretch.
  int64_t Base(int32_t node, int64_t t) const {
    const int64_t start = w_.row_start[t];
    const bool inside = node < graph_.num_nodes && start > graph_.indptr[node];
    return inside ? graph_.weight_prefix[start - 1] : 0;
  }

  // Adds `count` edges of target t, given by their positions among the eligible edges.
  template <typename PositionOf>
  void Take(int64_t t, int64_t count, Stream& stream, const PositionOf& position_of) {
    const int64_t start = w_.row_start[t];
    if (limited && w_.holes[t].num > 0) {
      const Holes holes = w_.holes[t];
      stream.Add(
          count, [=](int64_t i) { return holes.Edge(start, position_of(i)); }, Era(t));
    } else {
      stream.Add(count, [=](int64_t i) { return start + position_of(i); }, Era(t));
    }
  }

  // Records that target t has drawn `count` edges from `edges` on; returns where they end.
  int64_t Row(const Hop& hop, int64_t t, int64_t edges, int64_t count) {
    hop.indptr[t] = static_cast<int32_t>(edges);
    return edges + count;
  }

  // Whether a row needs random bits; otherwise all its neighbours are taken.
  bool Random(int64_t k, int64_t degree) const { return replace_ ? degree > 0 : degree > k; }

  // Takes every neighbour of target t, or with draws by weight those of positive weight.
  int64_t All(const Targets& targets, int64_t t, Stream& stream) {
    const int64_t start = w_.row_start[t], degree = w_.degree[t];
    if (!weighted_) {
      Take(t, degree, stream, [](int64_t i) { return i; });
      return degree;
    }
    const Holes holes = limited ? w_.holes[t] : Holes{};
    int64_t count = 0, before = timed ? Base(targets.nodes[t], t) : 0;
    int32_t hole = 0;
    for (int64_t i = 0; i < degree + holes.num; ++i) {
      const int64_t through = graph_.weight_prefix[start + i];
      const bool nothing = through == before;
      before = through;
      if (limited && hole < holes.num && holes.edge[hole] == start + i) {
        ++hole;
        continue;
      }
      if (nothing) continue;
      stream.Add(1, [=](int64_t) { return start + i; }, Era(t));
      ++count;
    }
    return count;
  }

  const GraphView& graph_;
  const Limits& limits_;
  const bool replace_, weighted_, latest_;
  const Recency recency_;
  Workspace& w_;
  std::vector<Key> keys_;  // of this hop, one for each cutoff
  const Isa isa_ = BestIsa();
};

}  // namespace

std::string SampleNeighbors(const GraphView& graph, const Seeds& seeds,
                            const NeighborOptions& options, bool relabel_inputs,
                            std::vector<Hop>& hops, const SampledNodes& sampled,
                            const Executor& executor) {
  std::string error;
  const Limits limits =
      LimitsOf(seeds, options.edge_time, graph.num_edges,
               options.weighted ? graph.weight_prefix : nullptr, options.window, error);
  if (!error.empty()) return error;
  const auto sample = [&](auto make) {
    return SampleHops(graph, seeds, limits, relabel_inputs, hops, sampled, executor, make);
  };
  const bool packs = limits.time != nullptr && Packs(seeds, graph.num_nodes);
  if (options.relations.num > 0) {
    if (packs) {
      return sample([&](Team& team, Workspace& work) {
        return RunRows<true>(graph, limits, options, team, work);
      });
    }
    if (limits.time != nullptr) {
      return sample([&](Team& team, Workspace& work) {
        return RunRows<true, int64_t>(graph, limits, options, team, work);
      });
    }
    return sample([&](Team& team, Workspace& work) {
      return RunRows<false>(graph, limits, options, team, work);
    });
  }
  if (packs) {
    return sample([&](Team&, Workspace& work) {
      return NeighborRows<true, true>(graph, limits, options, work);
    });
  }
  if (limits.time != nullptr) {
    return sample([&](Team&, Workspace& work) {
      return NeighborRows<true, true, int64_t>(graph, limits, options, work);
    });
  }
  if (limits.any()) {
    return sample([&](Team&, Workspace& work) {
      return NeighborRows<true, false>(graph, limits, options, work);
    });
  }
  return sample([&](Team&, Workspace& work) {
    return NeighborRows<false, false>(graph, limits, options, work);
  });
}

}  // namespace jgs
