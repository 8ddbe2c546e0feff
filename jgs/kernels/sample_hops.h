// The hops of a sample, for any way of drawing rows: chunks of targets, local ids of
// neighbours, overflow and padding. Included by sample.cc and labor.cc.
#ifndef JGS_KERNELS_SAMPLE_HOPS_H_
#define JGS_KERNELS_SAMPLE_HOPS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "read_ahead.h"
#include "sample.h"
#include "sample_stream.h"
#include "time_search.h"

namespace jgs {

constexpr int kRowLanes = 64;       // the number of rows in a chunk is a multiple of this
constexpr int64_t kMostRows = 512;  // the most targets that a thread takes at a time
constexpr int64_t kMostAhead = 1 << 16;  // edges whose pages are read ahead together, 256 MB
constexpr int64_t kAhead = 16;      // how many rows ahead offsets are prefetched

// The targets of a hop, divided into chunks. Their rows are in the Workspace.
struct Targets {
  const int32_t* nodes;
  int64_t num, rows, num_chunks;  // rows: the number in a chunk

  int64_t Begin(int64_t chunk) const { return chunk * rows; }
  int64_t End(int64_t chunk) const { return std::min((chunk + 1) * rows, num); }
};

// Samples hop by hop. `Rows` draws from the rows; it has
//
//   bool Bound(const Hop&, const Targets&): sets the Workspace's `bound`, [chunks + 1], which
//     begins with 0: an upper bound of the position at which each chunk's edges end. False if
//     the graph is damaged.
//   void Draw(const Hop&, const Targets&, int64_t chunk, StreamOf<kTimed, Id>&): adds the chunk's
//     edges, row by row, and writes where each row begins to the hop's `indptr`. Any thread may
//     call it.
//   bool kScans: whether Bound reads the rows; otherwise Draw reads the edges that it draws.
//   bool kTimed: whether nodes have cutoffs.
//   Id: the type that holds a node and the number of its cutoff, see RelabelerOf.
//   bool kByRelation: whether they draw from runs, the edges of one relation. They then have
//   void FindRuns(const int32_t* nodes, int64_t begin, int64_t end): finds the runs of these
//     nodes. Any thread may call it.
template <typename Rows>
class HopSampler {
 public:
  HopSampler(const GraphView& graph, const Limits& limits, Rows& rows, int32_t* nodes, Team& team,
             Workspace& work)
      : graph_(graph), limits_(limits), rows_(rows), nodes_(nodes), team_(team), w_(work),
        relabeler_(RelabelerIn<Id>(work)) {}

  // Samples the hops for the first `num_targets` nodes. Hops from number `relabelled` on have
  // no local ids. Returns how many of `nodes` are used, or -1 on overflow or bad input.
  int64_t Run(std::vector<Hop>& hops, size_t relabelled, int64_t num_targets) {
    Start(hops, relabelled, num_targets);
    for (size_t h = 0; h < hops.size() && !bad_.load(); ++h) {
      relabel_ = h < relabelled;
      targets_.num = num_targets;
      if (!RunHop(hops[h], h + 1 < hops.size())) return -1;
      if (relabel_) num_targets = hops[h].num_sources;
    }
    if (bad_.load()) return -1;
    team_.For(unresolved_.num_chunks(), [&](int64_t chunk) { Resolve(unresolved_, chunk); });
    return num_targets;
  }

  bool bad() const { return bad_.load(); }

 private:
  static constexpr bool kTimed = Rows::kTimed;
  using Id = typename Rows::Id;

  // A hop whose indices are still places instead of local ids.
  struct Unresolved {
    int32_t* indices = nullptr;
    std::vector<int64_t> begin;  // [chunks + 1]
    int64_t num_chunks() const {
      return indices == nullptr ? 0 : static_cast<int64_t>(begin.size()) - 1;
    }
  };

  int32_t* Eras() { return kTimed ? w_.era.data() : nullptr; }

  void Start(const std::vector<Hop>& hops, size_t relabelled, int64_t num_targets) {
    int64_t most_targets = num_targets;
    for (const Hop& hop : hops) most_targets = std::max(most_targets, hop.target_capacity);
    w_.row_start.Reserve(most_targets);
    w_.degree.Reserve(most_targets);
    if (limits_.any()) w_.holes.Reserve(most_targets);
    int64_t pieces = 0;
    if (relabelled > 0) {
      const int64_t capacity = hops[relabelled - 1].source_capacity;
      pieces = relabeler_.Reset(capacity, graph_.num_nodes, team_.num_threads());
    }
    const int64_t seeds = (num_targets + kMostRows - 1) / kMostRows;
    team_.For(pieces + seeds, [&](int64_t task) {
      if (task < pieces) return relabeler_.Clear(task);
      const int64_t begin = (task - pieces) * kMostRows;
      FindRows(begin, std::min(begin + kMostRows, num_targets));
    });
    if (relabelled > 0) relabeler_.AddTargets(nodes_, Eras(), num_targets);
  }

  // Finds the rows of the nodes [begin, end).
  void FindRows(int64_t begin, int64_t end) {
    if constexpr (Rows::kByRelation) return rows_.FindRuns(nodes_, begin, end);
    const bool apart = graph_.ends != graph_.indptr + 1;
    for (int64_t t = begin; t < end; ++t) {
      if (t + kAhead < end) {
        PrefetchFar(&graph_.indptr[nodes_[t + kAhead]]);
        if (apart) PrefetchFar(&graph_.ends[nodes_[t + kAhead]]);
      }
      const int64_t node = nodes_[t];
      int64_t start = 0, degree = 0;
      if (node < graph_.num_nodes) {  // otherwise it is padding among the seeds
        start = graph_.indptr[node];
        degree = graph_.ends[node] - start;
        if (start < 0 || degree < 0 || degree > std::numeric_limits<int32_t>::max() ||
            degree > graph_.num_edges - start) {
          bad_.store(true);
          start = degree = 0;
        }
      }
      if (!kTimed && limits_.any()) w_.holes[t] = limits_.StepOver(start, degree);
      w_.row_start[t] = start;
      w_.degree[t] = static_cast<int32_t>(degree);
    }
    if constexpr (kTimed) LimitByTime(begin, end);
  }

  // Leaves in the rows [begin, end) the edges before their cutoffs, and since their windows begin.
  void LimitByTime(int64_t begin, int64_t end) {
    const auto search = [&](bool window, const auto& keep) {
      SearchTimes(
          end - begin,
          [&](int64_t i, const int64_t*& values, int32_t& count, int64_t& target) {
            const int64_t t = begin + i, cutoff = w_.cutoffs[w_.era[t]];
            values = limits_.time + w_.row_start[t];
            count = w_.degree[t];
            target = window ? limits_.Since(cutoff) : cutoff;
          },
          [&](int64_t i, int32_t found) { keep(begin + i, found); });
    };
    search(false, [&](int64_t t, int32_t found) { w_.degree[t] = found; });
    if (limits_.window >= 0) {
      search(true, [&](int64_t t, int32_t found) {
        w_.row_start[t] += found;
        w_.degree[t] -= found;
      });
    }
    for (int64_t t = begin; t < end; ++t) {
      int64_t degree = w_.degree[t];
      w_.holes[t] = limits_.StepOver(w_.row_start[t], degree);
      w_.degree[t] = static_cast<int32_t>(degree);
    }
  }

  // Samples one hop for the first targets_.num nodes; false on overflow or bad input. If `more`
  // hops follow, it finds the rows of the new nodes.
  bool RunHop(Hop& hop, bool more) {
    Cut();
    if constexpr (Rows::kScans && !Rows::kByRelation) {
      ReadRowsAhead(graph_.indices, w_.row_start.data(), w_.degree.data(), targets_.num);
    }
    if (!rows_.Bound(hop, targets_)) bad_.store(true);
    if (bad_.load()) return false;
    const int64_t bound = w_.bound[targets_.num_chunks];
    hop.edges_needed =
        static_cast<int32_t>(std::min<int64_t>(bound, std::numeric_limits<int32_t>::max()));
    if (bound > hop.edge_capacity) return false;
    // The number is known once they are numbered. This value is for the case that they do not
    // fit.
    if (relabel_) hop.sources_needed = static_cast<int32_t>(hop.source_capacity + 1);
    w_.begin.assign(targets_.num_chunks + 1, 0);
    if (relabel_) relabeler_.Begin(w_.bound, hop.source_capacity);
    // The hop before is resolved in the same loop: its small tasks come last, and fill the time
    // in which a thread would wait for another.
    const int64_t first = DrawAhead(hop), left = targets_.num_chunks - first;
    team_.For(left + unresolved_.num_chunks(), [&](int64_t task) {
      if (task < left) return DrawChunk(hop, first + task);
      Resolve(unresolved_, task - left);
    });
    unresolved_.indices = nullptr;
    if (bad_.load() || full_.load()) return false;
    CloseGaps(hop);
    const int64_t num_edges = w_.begin[targets_.num_chunks];
    int64_t num_sources = graph_.num_nodes;
    if (relabel_) {
      num_sources = relabeler_.Number();
      if (num_sources < 0) return false;
      hop.sources_needed = static_cast<int32_t>(num_sources);
      team_.For(targets_.num_chunks, [&](int64_t chunk) {
        const auto found = relabeler_.Label(chunk, nodes_, Eras());
        if (more) FindRows(found.begin, found.end);
      });
      unresolved_.indices = hop.indices;
      unresolved_.begin.swap(w_.begin);
    }
    hop.indptr[targets_.num] = static_cast<int32_t>(num_edges);
    hop.num_targets = static_cast<int32_t>(targets_.num);
    hop.num_sources = static_cast<int32_t>(num_sources);
    hop.num_edges = static_cast<int32_t>(num_edges);
    return !bad_.load();
  }

  void Resolve(const Unresolved& hop, int64_t chunk) {
    const int64_t begin = hop.begin[chunk], end = hop.begin[chunk + 1];
    relabeler_.Resolve(hop.indices + begin, end - begin);
  }

  // Divides the targets into chunks.
  void Cut() {
    const int64_t share = targets_.num / (16 * team_.num_threads());
    targets_.nodes = nodes_;
    targets_.rows = std::min(std::max(share / kRowLanes, int64_t{1}) * kRowLanes, kMostRows);
    targets_.num_chunks = (targets_.num + targets_.rows - 1) / targets_.rows;
  }

  // Draws for a chunk of targets, and reads the drawn neighbours.
  void DrawChunk(const Hop& hop, int64_t chunk) {
    StreamOf<kTimed, Id> stream(graph_, hop, relabel_, w_, chunk);
    rows_.Draw(hop, targets_, chunk, stream);
    stream.Finish();
    w_.begin[chunk + 1] = stream.num_edges();
    if (!stream.good()) bad_.store(true);
    if (!stream.fits()) full_.store(true);
  }

  // Where edges are read ahead: draws for some chunks at a time, first to know the edges, then
  // with their pages in memory. Returns the first chunk that is left.
  int64_t DrawAhead(const Hop& hop) {
    if (Rows::kScans || !IsReadAhead(graph_.indices)) return 0;
    std::vector<int64_t> edges;
    for (int64_t begin = 0, end = 0; begin < targets_.num_chunks; begin = end) {
      edges.clear();
      for (; end < targets_.num_chunks; ++end) {
        if (end > begin && w_.bound[end + 1] - w_.bound[begin] > kMostAhead) break;
        StreamOf<kTimed, Id> stream(graph_, hop, relabel_, w_, end);
        stream.OnlyList(&edges);
        rows_.Draw(hop, targets_, end, stream);
      }
      ReadEdgesAhead(graph_.indices, edges);
      team_.For(end - begin, [&](int64_t task) { DrawChunk(hop, begin + task); });
    }
    return targets_.num_chunks;
  }

  // Turns the chunks' numbers of edges into their beginnings. Moves the edges together where
  // chunks have drawn less than their bound and left gaps (only in draws by weight).
  void CloseGaps(const Hop& hop) {
    for (int64_t chunk = 0; chunk < targets_.num_chunks; ++chunk) {
      const int64_t from = w_.bound[chunk], to = w_.begin[chunk], count = w_.begin[chunk + 1];
      w_.begin[chunk + 1] += to;
      if (from == to) continue;
      std::copy_n(hop.indices + from, count, hop.indices + to);
      if (hop.edge_id != nullptr) std::copy_n(hop.edge_id + from, count, hop.edge_id + to);
      if (hop.edge_weight != nullptr) {
        std::copy_n(hop.edge_weight + from, count, hop.edge_weight + to);
      }
      if (hop.edge_type != nullptr) {
        std::copy_n(hop.edge_type + from, count, hop.edge_type + to);
      }
      for (int64_t t = targets_.Begin(chunk); t < targets_.End(chunk); ++t) {
        hop.indptr[t] -= static_cast<int32_t>(from - to);
      }
    }
  }

  const GraphView& graph_;
  const Limits& limits_;
  Rows& rows_;
  int32_t* const nodes_;
  Team& team_;
  Workspace& w_;
  RelabelerOf<Id>& relabeler_;
  Unresolved unresolved_;
  bool relabel_ = true;
  Targets targets_{};
  std::atomic<bool> bad_{false}, full_{false};
};

// Fills the rest of a sample's arrays. `no_source` is the padding of `indices`, and `no_edge`
// that of edge ids.
inline void Pad(Hop& hop, int64_t no_source, int64_t no_edge) {
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
  if (hop.edge_type != nullptr) {
    std::fill(hop.edge_type + hop.num_edges, hop.edge_type + hop.edge_capacity, int16_t{0});
  }
}

// Numbers the cutoffs of the seeds; padding has that of the first.
inline void FindEras(const Seeds& seeds, int64_t num_nodes, int64_t most_targets,
                     Workspace& work) {
  work.era.Reserve(most_targets);
  work.cutoffs.clear();
  for (int64_t i = 0; i < seeds.num; ++i) {
    if (seeds.nodes[i] < num_nodes) work.cutoffs.push_back(seeds.time[i]);
  }
  std::sort(work.cutoffs.begin(), work.cutoffs.end());
  work.cutoffs.erase(std::unique(work.cutoffs.begin(), work.cutoffs.end()), work.cutoffs.end());
  if (work.cutoffs.empty()) work.cutoffs.push_back(0);
  for (int64_t i = 0; i < seeds.num; ++i) {
    const auto at = std::lower_bound(work.cutoffs.begin(), work.cutoffs.end(), seeds.time[i]);
    const bool real = seeds.nodes[i] < num_nodes;
    work.era[i] = real ? static_cast<int32_t>(at - work.cutoffs.begin()) : 0;
  }
}

// Whether 32 bits hold the nodes and the numbers of the seeds' cutoffs, those of padding too.
inline bool Packs(const Seeds& seeds, int64_t num_nodes) {
  std::vector<int64_t> cutoffs(seeds.time, seeds.time + seeds.num);
  std::sort(cutoffs.begin(), cutoffs.end());
  const auto end = std::unique(cutoffs.begin(), cutoffs.end());
  return RelabelerOf<int32_t>::Packs(num_nodes, end - cutoffs.begin());
}

// See SampleNeighbors; `make_rows(team, workspace)` makes the object that draws the rows.
template <typename MakeRows>
std::string SampleHops(const GraphView& graph, const Seeds& of, const Limits& limits,
                       bool relabel_inputs, std::vector<Hop>& hops, const SampledNodes& sampled,
                       const Executor& executor, const MakeRows& make_rows) {
  const int32_t* seeds = of.nodes;
  const int64_t num_seeds = of.num;
  int32_t* nodes = sampled.nodes;
  bool* overflow = sampled.overflow;
  int64_t num_targets = 0;
  std::string error = CheckSeeds(seeds, num_seeds, graph.num_nodes);
  if (!error.empty()) return error;
  for (int64_t i = 0; i < num_seeds; ++i) {
    if (seeds[i] < graph.num_nodes) num_targets = i + 1;
  }
  const size_t relabelled = relabel_inputs || hops.empty() ? hops.size() : hops.size() - 1;
  const int64_t capacity =
      relabelled > 0 ? hops[relabelled - 1].source_capacity
                     : hops.empty() ? num_seeds : hops[0].target_capacity;
  auto work = Pool().Take();
  Team team(executor);
  std::copy_n(seeds, num_targets, nodes);
  auto rows = make_rows(team, *work);
  if (rows.kTimed) FindEras(of, graph.num_nodes, std::max(capacity, num_seeds), *work);
  HopSampler<decltype(rows)> sampler(graph, limits, rows, nodes, team, *work);
  const int64_t num_nodes = sampler.Run(hops, relabelled, num_targets);
  if (sampled.cutoff != nullptr) {
    constexpr int64_t kAtOnce = 1 << 13;
    team.For((capacity + kAtOnce - 1) / kAtOnce, [&](int64_t chunk) {
      for (int64_t i = chunk * kAtOnce; i < std::min((chunk + 1) * kAtOnce, capacity); ++i) {
        const bool real = i < num_nodes && nodes[i] < graph.num_nodes;
        sampled.cutoff[i] = real ? work->cutoffs[work->era[i]] : 0;
      }
    });
  }
  Pool().Give(std::move(work));
  if (sampler.bad()) return DamagedGraph(graph.num_nodes);
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

#endif  // JGS_KERNELS_SAMPLE_HOPS_H_
