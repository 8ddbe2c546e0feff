#include "sample.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "draw.h"
#include "draw_weighted.h"
#include "sample_stream.h"

namespace jgs {
namespace {

constexpr int64_t kMostRows = 512;  // targets a thread takes at a time, at most
constexpr int64_t kAhead = 16;      // rows ahead whose offsets are prefetched

class Sampler {
 public:
  Sampler(const GraphView& graph, bool replace, bool weighted, int32_t* nodes, Team& team,
          Workspace& work)
      : graph_(graph),
        replace_(replace),
        weighted_(weighted),
        nodes_(nodes),
        team_(team),
        w_(work) {}

  // Samples the hops for the first `num_targets` nodes, those from number `relabelled` on
  // without local ids; returns how many of `nodes` are used then, or -1 on overflow or bad
  // input.
  int64_t Run(std::vector<Hop>& hops, size_t relabelled, int64_t num_targets) {
    Start(hops, relabelled, num_targets);
    for (size_t h = 0; h < hops.size() && !bad_.load(); ++h) {
      relabel_ = h < relabelled;
      num_targets_ = num_targets;
      if (!RunHop(hops[h], h + 1 < hops.size())) return -1;
      if (relabel_) num_targets = hops[h].num_sources;
    }
    if (bad_.load()) return -1;
    team_.For(unresolved_.num_chunks(), [&](int64_t chunk) { Resolve(unresolved_, chunk); });
    return num_targets;
  }

  bool bad() const { return bad_.load(); }

 private:
  // A hop whose indices still name places instead of local ids.
  struct Unresolved {
    int32_t* indices = nullptr;
    std::vector<int64_t> begin;  // [chunks + 1]
    int64_t num_chunks() const {
      return indices == nullptr ? 0 : static_cast<int64_t>(begin.size()) - 1;
    }
  };

  void Start(const std::vector<Hop>& hops, size_t relabelled, int64_t num_targets) {
    int64_t most_targets = num_targets;
    for (const Hop& hop : hops) most_targets = std::max(most_targets, hop.target_capacity);
    w_.row_start.Reserve(most_targets);
    w_.degree.Reserve(most_targets);
    int64_t pieces = 0;
    if (relabelled > 0) {
      const int64_t capacity = hops[relabelled - 1].source_capacity;
      pieces = w_.relabeler.Reset(capacity, team_.num_threads());
    }
    const int64_t seeds = (num_targets + kMostRows - 1) / kMostRows;
    team_.For(pieces + seeds, [&](int64_t task) {
      if (task < pieces) return w_.relabeler.Clear(task);
      const int64_t begin = (task - pieces) * kMostRows;
      FindRows(begin, std::min(begin + kMostRows, num_targets));
    });
    if (relabelled > 0) w_.relabeler.AddTargets(nodes_, num_targets);
  }

  // Where the rows of nodes [begin, end) lie.
  void FindRows(int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (t + kAhead < end) PrefetchFar(&graph_.indptr[nodes_[t + kAhead]]);
      const int64_t node = nodes_[t];
      int64_t start = 0, degree = 0;
      if (node < graph_.num_nodes) {  // else padding among the seeds
        start = graph_.indptr[node];
        degree = graph_.indptr[node + 1] - start;
        if (start < 0 || degree < 0 || degree > std::numeric_limits<int32_t>::max() ||
            degree > graph_.num_edges - start) {
          bad_.store(true);
          start = degree = 0;
        }
      }
      w_.row_start[t] = start;
      w_.degree[t] = static_cast<int32_t>(degree);
    }
  }

  // Samples one hop of the first num_targets_ nodes; false on overflow or bad input. With
  // `more` hops to come, finds the rows of the new nodes.
  bool RunHop(Hop& hop, bool more) {
    Bound(hop.fanout);
    const int64_t bound = w_.bound[num_chunks_];
    hop.edges_needed =
        static_cast<int32_t>(std::min<int64_t>(bound, std::numeric_limits<int32_t>::max()));
    if (bound > hop.edge_capacity) return false;
    // Known once they are numbered; until then, should they not fit.
    if (relabel_) hop.sources_needed = static_cast<int32_t>(hop.source_capacity + 1);
    w_.begin.assign(num_chunks_ + 1, 0);
    if (relabel_) w_.relabeler.Begin(w_.bound, hop.source_capacity);
    // The hop before is resolved on the side: its small tasks come last and fill the time in
    // which a thread would wait for another.
    team_.For(num_chunks_ + unresolved_.num_chunks(), [&](int64_t task) {
      if (task < num_chunks_) return DrawChunk(hop, task);
      Resolve(unresolved_, task - num_chunks_);
    });
    unresolved_.indices = nullptr;
    if (bad_.load() || full_.load()) return false;
    CloseGaps(hop);
    const int64_t num_edges = w_.begin[num_chunks_];
    int64_t num_sources = graph_.num_nodes;
    if (relabel_) {
      num_sources = w_.relabeler.Number();
      if (num_sources < 0) return false;
      hop.sources_needed = static_cast<int32_t>(num_sources);
      team_.For(num_chunks_, [&](int64_t chunk) {
        const Relabeler::Range found = w_.relabeler.Label(chunk, nodes_);
        if (more) FindRows(found.begin, found.end);
      });
      unresolved_.indices = hop.indices;
      unresolved_.begin.swap(w_.begin);
    }
    hop.indptr[num_targets_] = static_cast<int32_t>(num_edges);
    hop.num_targets = static_cast<int32_t>(num_targets_);
    hop.num_sources = static_cast<int32_t>(num_sources);
    hop.num_edges = static_cast<int32_t>(num_edges);
    return !bad_.load();
  }

  void Resolve(const Unresolved& hop, int64_t chunk) {
    const int64_t begin = hop.begin[chunk], end = hop.begin[chunk + 1];
    w_.relabeler.Resolve(hop.indices + begin, end - begin);
  }

  int64_t End(int64_t chunk) const { return std::min((chunk + 1) * rows_, num_targets_); }

  // How the targets are cut into chunks, and where each chunk's sample may start.
  void Bound(int64_t fanout) {
    const int64_t share = num_targets_ / (16 * team_.num_threads());
    rows_ = std::min(std::max(share / kLanes, int64_t{1}) * kLanes, kMostRows);
    num_chunks_ = (num_targets_ + rows_ - 1) / rows_;
    w_.bound.assign(num_chunks_ + 1, 0);
    const int32_t most = static_cast<int32_t>(
        std::min<int64_t>(fanout < 0 ? std::numeric_limits<int32_t>::max() : fanout,
                          std::numeric_limits<int32_t>::max()));
    for (int64_t c = 0; c < num_chunks_; ++c) {
      int64_t sum = 0;
      for (int64_t t = c * rows_; t < End(c); ++t) {
        const int32_t degree = w_.degree[t];
        sum += replace_ && fanout >= 0 ? (degree > 0 ? fanout : 0) : std::min(degree, most);
      }
      w_.bound[c + 1] = w_.bound[c] + sum;
    }
  }

  // Draws for a chunk of targets, reads the neighbours drawn and writes the rows' starts.
  void DrawChunk(const Hop& hop, int64_t chunk) {
    Stream stream(graph_, hop, relabel_, w_, chunk);
    const int64_t end = End(chunk), k = hop.fanout;
    int64_t edges = w_.bound[chunk];
    if (k < 0) {
      for (int64_t t = chunk * rows_; t < end; ++t) edges = Row(hop, t, edges, All(t, stream));
    } else {
      Draws draws(k);
      WeightedDraws by_weight(draws, replace_);
      int64_t ahead = chunk * rows_;  // the first row whose weight is not prefetched
      for (int64_t first = chunk * rows_, last = first; first < end; first = last) {
        draws.num_rows = 0;
        for (; last < end && draws.num_rows < kLanes; ++last) {
          if (!Random(k, w_.degree[last])) continue;
          const int row = draws.num_rows++;
          draws.node[row] = static_cast<uint32_t>(nodes_[last]);
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
    stream.Finish();
    w_.begin[chunk + 1] = stream.num_edges();
    if (!stream.good()) bad_.store(true);
    if (!stream.fits()) full_.store(true);
  }

  // Notes that target t has drawn `count` edges from `edges` on; returns where they end.
  int64_t Row(const Hop& hop, int64_t t, int64_t edges, int64_t count) {
    hop.indptr[t] = static_cast<int32_t>(edges);
    return edges + count;
  }

  // Whether a row needs random bits; otherwise all its neighbours are taken.
  bool Random(int64_t k, int64_t degree) const { return replace_ ? degree > 0 : degree > k; }

  // Takes every neighbour of target t, by weight those that weigh something.
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

  // Turns the chunks' numbers of edges into where they begin, and moves the edges together
  // where chunks have drawn less than their bound and left gaps (by weight only).
  void CloseGaps(const Hop& hop) {
    for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
      const int64_t from = w_.bound[chunk], to = w_.begin[chunk], count = w_.begin[chunk + 1];
      w_.begin[chunk + 1] += to;
      if (from == to) continue;
      std::copy_n(hop.indices + from, count, hop.indices + to);
      if (hop.edge_id != nullptr) std::copy_n(hop.edge_id + from, count, hop.edge_id + to);
      if (hop.edge_weight != nullptr) {
        std::copy_n(hop.edge_weight + from, count, hop.edge_weight + to);
      }
      for (int64_t t = chunk * rows_; t < End(chunk); ++t) {
        hop.indptr[t] -= static_cast<int32_t>(from - to);
      }
    }
  }

  const GraphView& graph_;
  const bool replace_, weighted_;
  int32_t* const nodes_;
  Team& team_;
  Workspace& w_;
  const Isa isa_ = BestIsa();
  Unresolved unresolved_;
  bool relabel_ = true;
  int64_t num_targets_ = 0, rows_ = 0, num_chunks_ = 0;
  std::atomic<bool> bad_{false}, full_{false};
};

// Fills what the sample left free; `no_source` is the padding of `indices`, `no_edge` that of
// edge ids.
void Pad(Hop& hop, int64_t no_source, int64_t no_edge) {
  std::fill(hop.indptr + hop.num_targets + 1, hop.indptr + hop.target_capacity + 1,
            hop.num_edges);
  std::fill(hop.indices + hop.num_edges, hop.indices + hop.edge_capacity,
            static_cast<int32_t>(no_source));
  if (hop.edge_id != nullptr) {
    std::fill(hop.edge_id + hop.num_edges, hop.edge_id + hop.edge_capacity, no_edge);
  }
  if (hop.edge_weight != nullptr) {
    std::fill(hop.edge_weight + hop.num_edges, hop.edge_weight + hop.edge_capacity, 0.0f);
  }
}

}  // namespace

std::string SampleNeighbors(const GraphView& graph, const int32_t* seeds, int64_t num_seeds,
                            bool replace, bool weighted, bool relabel_inputs,
                            std::vector<Hop>& hops, int32_t* nodes, bool* overflow,
                            const Executor& executor) {
  int64_t num_targets = 0;
  for (int64_t i = 0; i < num_seeds; ++i) {
    if (seeds[i] < 0 || seeds[i] > graph.num_nodes) {
      return "seeds must be node ids in [0, " + std::to_string(graph.num_nodes) + "), or " +
             std::to_string(graph.num_nodes) + " for padding; got " + std::to_string(seeds[i]) +
             " at position " + std::to_string(i) + ". Check where the seeds come from";
    }
    if (seeds[i] < graph.num_nodes) num_targets = i + 1;
  }
  const size_t relabelled = relabel_inputs || hops.empty() ? hops.size() : hops.size() - 1;
  const int64_t capacity =
      relabelled > 0 ? hops[relabelled - 1].source_capacity
                     : hops.empty() ? num_seeds : hops[0].target_capacity;
  auto work = Pool().Take();
  Team team(executor);
  std::copy_n(seeds, num_targets, nodes);
  Sampler sampler(graph, replace, weighted, nodes, team, *work);
  const int64_t num_nodes = sampler.Run(hops, relabelled, num_targets);
  Pool().Give(std::move(work));
  if (sampler.bad()) {
    return "the graph's arrays must be valid: indptr not decreasing and within the edges, "
           "indices in [0, " + std::to_string(graph.num_nodes) + "). Its files are damaged: "
           "write the graph again";
  }
  *overflow = num_nodes < 0;
  if (*overflow) {
    for (Hop& hop : hops) {
      hop.num_targets = hop.num_sources = hop.num_edges = 0;
      hop.indptr[0] = 0;
    }
  }
  team.For(hops.size() + 1, [&](int64_t h) {
    if (h < static_cast<int64_t>(hops.size())) {
      const bool local = h < static_cast<int64_t>(relabelled);
      return Pad(hops[h], local ? hops[h].source_capacity : graph.num_nodes, graph.num_edges);
    }
    std::fill(nodes + std::max<int64_t>(num_nodes, 0), nodes + capacity,
              static_cast<int32_t>(graph.num_nodes));
  });
  return "";
}

}  // namespace jgs
