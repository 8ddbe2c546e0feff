#include "sample.h"

#include <algorithm>
#include <limits>

#include "draw.h"
#include "draw_weighted.h"
#include "sample_hops.h"

namespace jgs {
namespace {

static_assert(kRowLanes == kLanes, "rows are drawn so many at a time");

// `fanout` neighbours of every row: the Rows of a HopSampler.
class NeighborRows {
 public:
  NeighborRows(const GraphView& graph, bool replace, bool weighted, Workspace& work)
      : graph_(graph), replace_(replace), weighted_(weighted), w_(work) {}

  bool Bound(const Hop& hop, const Targets& targets) {
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
      for (int64_t t = begin; t < end; ++t) edges = Row(hop, t, edges, All(t, stream));
    } else {
      Draws draws(k);
      WeightedDraws by_weight(draws, replace_);
      int64_t ahead = begin;  // the first row whose weight is not prefetched
      for (int64_t first = begin, last = first; first < end; first = last) {
        draws.num_rows = 0;
        for (; last < end && draws.num_rows < kLanes; ++last) {
          if (!Random(k, w_.degree[last])) continue;
          const int row = draws.num_rows++;
          draws.node[row] = static_cast<uint32_t>(targets.nodes[last]);
          draws.degree[row] = static_cast<uint32_t>(w_.degree[last]);
          if (!weighted_) continue;
          by_weight.prefix[row] = graph_.weight_prefix + w_.row_start[last];
        }
        for (; weighted_ && ahead < std::min(last + 2 * kLanes, end); ++ahead) {
          const int64_t last_of_row = w_.row_start[ahead] + w_.degree[ahead] - 1;
          PrefetchFar(&graph_.weight_prefix[std::max<int64_t>(last_of_row, 0)]);
        }
        if (draws.num_rows > 0) {
          draws.MakeRoom();
          if (weighted_) {
            by_weight.Draw(hop.key, isa_);
          } else if (replace_) {
            RunOn(isa_, DrawRows<Mode::kRepeated>{hop.key, draws});
          } else {
            RunOn(isa_, DrawRows<Mode::kDistinct>{hop.key, draws});
          }
        }
        int row = 0;
        for (int64_t t = first; t < last; ++t) {
          int64_t count;
          if (Random(k, w_.degree[t])) {
            count = weighted_ ? by_weight.count[row] : k;
            const int64_t start = w_.row_start[t];
            const int32_t* position = &draws.position[row++];
            stream.Add(count, [=](int64_t i) { return start + position[i * kLanes]; });
          } else {
            count = All(t, stream);
          }
          edges = Row(hop, t, edges, count);
        }
      }
    }
  }

 private:
  // Records that target t has drawn `count` edges from `edges` on; returns where they end.
  int64_t Row(const Hop& hop, int64_t t, int64_t edges, int64_t count) {
    hop.indptr[t] = static_cast<int32_t>(edges);
    return edges + count;
  }

  // Whether a row needs random bits; otherwise all its neighbours are taken.
  bool Random(int64_t k, int64_t degree) const { return replace_ ? degree > 0 : degree > k; }

  // Takes every neighbour of target t, or with draws by weight those of positive weight.
  int64_t All(int64_t t, Stream& stream) {
    const int64_t start = w_.row_start[t], degree = w_.degree[t];
    if (!weighted_) {
      stream.Add(degree, [=](int64_t i) { return start + i; });
      return degree;
    }
    int64_t count = 0, before = 0;
    for (int64_t i = 0; i < degree; ++i) {
      const int64_t through = graph_.weight_prefix[start + i];
      const bool nothing = through == before;
      before = through;
      if (nothing) continue;
      stream.Add(1, [=](int64_t) { return start + i; });
      ++count;
    }
    return count;
  }

  const GraphView& graph_;
  const bool replace_, weighted_;
  Workspace& w_;
  const Isa isa_ = BestIsa();
};

}  // namespace

std::string SampleNeighbors(const GraphView& graph, const int32_t* seeds, int64_t num_seeds,
                            bool replace, bool weighted, bool relabel_inputs,
                            std::vector<Hop>& hops, int32_t* nodes, bool* overflow,
                            const Executor& executor) {
  return SampleHops(graph, seeds, num_seeds, relabel_inputs, hops, nodes, overflow, executor,
                    [&](Team&, Workspace& work) {
                      return NeighborRows(graph, replace, weighted, work);
                    });
}

}  // namespace jgs
