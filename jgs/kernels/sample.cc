#include "sample.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>

#include "draw.h"
#include "relabel.h"
#include "scratch.h"

namespace jgs {
namespace {

constexpr int64_t kRows = 512;  // targets a thread takes at a time
constexpr int64_t kAhead = 16;  // rows ahead whose offsets are prefetched
constexpr int kFlight = 32;     // edges whose reads are in flight together

// Memory that a call needs and the next call can use again.
struct Workspace {
  Scratch<int64_t> row_start;   // [targets] first edge of each target's row
  Scratch<int32_t> degree;      // [targets] that row's length
  Scratch<int32_t> row_count;   // [targets] how many were drawn (by weight only)
  std::vector<int64_t> bound;   // [chunks + 1] where each chunk's sample starts, at most
  std::vector<int64_t> begin;   // [chunks + 1] where it starts
  Relabeler relabeler;
};

// Workspaces wait here between calls; as many exist as calls ever ran at the same time.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void Give(std::unique_ptr<Workspace> workspace) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

WorkspacePool& Pool() {
  static auto* pool = new WorkspacePool;  // never destroyed: calls may outlive main
  return *pool;
}

// Takes the drawn edges of a chunk one by one and carries each through three stages, a batch
// apart, so that no read waits: prefetch its neighbour; read the neighbour and prefetch its
// table entry; insert it. Without `relabel` the neighbour is all there is to read.
class Stream {
 public:
  Stream(const GraphView& graph, const Hop& hop, bool relabel, Workspace& work,
         int64_t first_edge)
      : graph_(graph), hop_(hop), relabel_(relabel), work_(work), next_(first_edge) {}

  void Add(int64_t edge) {
    __builtin_prefetch(&graph_.indices[edge]);
    if (hop_.edge_weight != nullptr) __builtin_prefetch(&graph_.edge_weight[edge]);
    batch_[now_][filled_] = edge;
    if (++filled_ == kFlight) Advance();
  }

  // Finishes the edges under way.
  void Finish() {
    for (int stage = 0; stage < 3; ++stage) Advance();
    if (relabel_) fits_ &= work_.relabeler.Report(new_);
  }

  int64_t num_edges() const { return num_edges_; }
  bool good() const { return good_; }  // every neighbour was a node
  bool fits() const { return fits_; }

 private:
  void Advance() {
    Insert(inserting_);
    inserting_ = Read(batch_[now_ ^ 1], read_);
    read_ = filled_;
    num_edges_ += filled_;
    filled_ = 0;
    now_ ^= 1;
  }

  struct Range {
    int64_t begin, end;
  };

  Range Read(const int64_t* edges, int count) {
    const Range range{next_, next_ + count};
    for (int i = 0; i < count; ++i) {
      const int64_t edge = edges[i], e = next_ + i;
      const int32_t node = graph_.indices[edge];
      good_ &= node >= 0 && node < graph_.num_nodes;
      hop_.indices[e] = node;
      if (relabel_) work_.relabeler.Prefetch(node);
      if (hop_.edge_id != nullptr) hop_.edge_id[e] = edge;
      if (hop_.edge_weight != nullptr) hop_.edge_weight[e] = graph_.edge_weight[edge];
    }
    next_ += count;
    return range;
  }

  void Insert(Range range) {
    if (!relabel_ || !fits_ || !good_) return;
    for (int64_t e = range.begin; e < range.end; ++e) {
      new_ += work_.relabeler.Insert(hop_.indices[e], e);
    }
    if (new_ > Relabeler::kUnreported - kFlight) {
      fits_ = work_.relabeler.Report(new_);
      new_ = 0;
    }
  }

  const GraphView& graph_;
  const Hop& hop_;
  const bool relabel_;
  Workspace& work_;
  int64_t batch_[2][kFlight];
  int now_ = 0, filled_ = 0, read_ = 0;
  Range inserting_{0, 0};
  int64_t next_, num_edges_ = 0, new_ = 0;
  bool good_ = true, fits_ = true;
};

class Sampler {
 public:
  Sampler(const GraphView& graph, bool replace, bool weighted, const Executor& executor,
          Workspace& work)
      : graph_(graph), replace_(replace), weighted_(weighted), executor_(executor), w_(work) {}

  // Samples one hop of the first `num_targets` nodes; false on overflow or bad input. With
  // `relabel` the neighbours get local ids and the new ones among them are added to `nodes`.
  bool Run(Hop& hop, bool relabel, int32_t* nodes, int64_t num_targets) {
    relabel_ = relabel;
    num_targets_ = num_targets;
    num_chunks_ = (num_targets + kRows - 1) / kRows;
    Bounds(hop, nodes);
    const int64_t bound = w_.bound[num_chunks_];
    if (bad_.load() || bound > hop.edge_capacity) return false;
    if (weighted_) w_.row_count.Reserve(num_targets);
    w_.begin.assign(num_chunks_ + 1, 0);
    if (relabel) w_.relabeler.Begin(bound, hop.source_capacity);
    ParallelFor(executor_, num_chunks_, [&](int64_t chunk) { DrawChunk(hop, nodes, chunk); });
    if (bad_.load() || full_.load()) return false;
    if (weighted_) CloseGaps(hop);
    const int64_t num_edges = weighted_ ? w_.begin[num_chunks_] : bound;
    const int64_t num_sources =
        relabel ? w_.relabeler.End(hop.indices, num_edges, nodes, executor_) : graph_.num_nodes;
    if (num_sources < 0) return false;
    hop.indptr[num_targets] = static_cast<int32_t>(num_edges);
    hop.num_targets = static_cast<int32_t>(num_targets);
    hop.num_sources = static_cast<int32_t>(num_sources);
    hop.num_edges = static_cast<int32_t>(num_edges);
    return true;
  }

  bool bad() const { return bad_.load(); }

 private:
  int64_t End(int64_t chunk) const { return std::min((chunk + 1) * kRows, num_targets_); }

  int64_t Bound(int64_t fanout, int64_t degree) const {
    if (fanout < 0) return degree;
    if (replace_) return degree > 0 ? fanout : 0;
    return std::min(fanout, degree);
  }

  // Where each target's row lies, and where each chunk's sample may start.
  void Bounds(const Hop& hop, const int32_t* nodes) {
    w_.row_start.Reserve(num_targets_);
    w_.degree.Reserve(num_targets_);
    w_.bound.assign(num_chunks_ + 1, 0);
    ParallelFor(executor_, num_chunks_, [&](int64_t chunk) {
      int64_t sum = 0;
      const int64_t end = End(chunk);
      for (int64_t t = chunk * kRows; t < end; ++t) {
        if (t + kAhead < end) __builtin_prefetch(&graph_.indptr[nodes[t + kAhead]]);
        const int64_t node = nodes[t];
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
        sum += Bound(hop.fanout, degree);
      }
      w_.bound[chunk + 1] = sum;
    });
    for (int64_t c = 0; c < num_chunks_; ++c) w_.bound[c + 1] += w_.bound[c];
  }

  // Draws for a chunk of targets, reads the neighbours drawn and writes the rows' starts.
  void DrawChunk(const Hop& hop, const int32_t* nodes, int64_t chunk) {
    Stream stream(graph_, hop, relabel_, w_, w_.bound[chunk]);
    const int64_t end = End(chunk), k = hop.fanout;
    int64_t edges = w_.bound[chunk];
    if (k < 0) {
      for (int64_t t = chunk * kRows; t < end; ++t) edges = Row(hop, t, edges, All(t, stream));
    } else {
      Draws draws(k);
      std::vector<int64_t> position;
      std::vector<Interval> drawn;
      for (int64_t first = chunk * kRows, last = first; first < end; first = last) {
        draws.num_rows = 0;
        for (; last < end && draws.num_rows < kLanes; ++last) {
          if (!Random(k, w_.degree[last])) continue;
          draws.node[draws.num_rows] = static_cast<uint32_t>(nodes[last]);
          draws.degree[draws.num_rows++] = static_cast<uint32_t>(w_.degree[last]);
          if (weighted_) {
            __builtin_prefetch(&graph_.weight_prefix[w_.row_start[last] + w_.degree[last] - 1]);
          }
        }
        if (draws.num_rows > 0) {
          draws.MakeRoom();
          if (weighted_) position.resize(k);
          DrawBatch(hop.key, draws);
        }
        int row = 0;
        for (int64_t t = first; t < last; ++t) {
          int64_t count;
          if (!Random(k, w_.degree[t])) {
            count = All(t, stream);
          } else if (weighted_) {
            const int64_t start = w_.row_start[t];
            const int64_t* prefix = graph_.weight_prefix + start;
            count = replace_ ? WeightedRepeated(draws, row, prefix, position.data())
                             : WeightedDistinct(draws, row, prefix, drawn, position.data());
            for (int64_t i = 0; i < count; ++i) stream.Add(start + position[i]);
            ++row;
          } else {
            count = k;
            const int32_t* at = &draws.position[row++];
            for (int64_t i = 0; i < k; ++i) stream.Add(w_.row_start[t] + at[i * kLanes]);
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

  void DrawBatch(Key key, Draws& draws) const {
    if (weighted_) {
      jgs::Draw<Mode::kBits>(key, draws);
    } else if (replace_) {
      jgs::Draw<Mode::kRepeated>(key, draws);
    } else {
      jgs::Draw<Mode::kDistinct>(key, draws);
    }
  }

  // Whether a row needs random bits; otherwise all its neighbours are taken.
  bool Random(int64_t k, int64_t degree) const { return replace_ ? degree > 0 : degree > k; }

  // Takes every neighbour of target t, by weight those that weigh something.
  int64_t All(int64_t t, Stream& stream) {
    const int64_t start = w_.row_start[t], degree = w_.degree[t];
    int64_t count = 0, before = 0;
    for (int64_t i = 0; i < degree; ++i) {
      if (weighted_) {
        const int64_t through = graph_.weight_prefix[start + i];
        const bool nothing = through == before;
        before = through;
        if (nothing) continue;
      }
      stream.Add(start + i);
      ++count;
    }
    return count;
  }

  // Chunks that drew less than their bound have left gaps: moves their edges together.
  void CloseGaps(const Hop& hop) {
    for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
      const int64_t from = w_.bound[chunk], to = w_.begin[chunk], count = w_.begin[chunk + 1];
      w_.begin[chunk + 1] += to;
      if (from == to) continue;
      std::copy_n(hop.indices + from, count, hop.indices + to);
      if (relabel_) w_.relabeler.Move(from, to, count);
      if (hop.edge_id != nullptr) std::copy_n(hop.edge_id + from, count, hop.edge_id + to);
      if (hop.edge_weight != nullptr) {
        std::copy_n(hop.edge_weight + from, count, hop.edge_weight + to);
      }
      for (int64_t t = chunk * kRows; t < End(chunk); ++t) {
        hop.indptr[t] -= static_cast<int32_t>(from - to);
      }
    }
  }

  const GraphView& graph_;
  const bool replace_, weighted_;
  const Executor& executor_;
  Workspace& w_;
  bool relabel_ = true;
  int64_t num_targets_ = 0, num_chunks_ = 0;
  std::atomic<bool> bad_{false}, full_{false};
};

// Fills what the sample left free; `no_source` is the padding of `indices`.
void Pad(Hop& hop, int64_t no_source) {
  std::fill(hop.indptr + hop.num_targets + 1, hop.indptr + hop.target_capacity + 1,
            hop.num_edges);
  std::fill(hop.indices + hop.num_edges, hop.indices + hop.edge_capacity,
            static_cast<int32_t>(no_source));
  if (hop.edge_id != nullptr) {
    std::fill(hop.edge_id + hop.num_edges, hop.edge_id + hop.edge_capacity, int64_t{-1});
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
  if (relabelled > 0) work->relabeler.Reset(seeds, num_targets, capacity, executor);
  std::copy_n(seeds, num_targets, nodes);
  Sampler sampler(graph, replace, weighted, executor, *work);
  bool fits = true;
  for (size_t h = 0; h < hops.size() && fits; ++h) {
    const bool relabel = h < relabelled;
    fits = sampler.Run(hops[h], relabel, nodes, num_targets);
    if (relabel) num_targets = hops[h].num_sources;
  }
  Pool().Give(std::move(work));
  if (sampler.bad()) {
    return "the graph's arrays must be valid: indptr not decreasing and within the edges, "
           "indices in [0, " + std::to_string(graph.num_nodes) + "). Its files are damaged: "
           "write the graph again";
  }
  *overflow = !fits;
  if (!fits) {
    num_targets = 0;
    for (Hop& hop : hops) {
      hop.num_targets = hop.num_sources = hop.num_edges = 0;
      hop.indptr[0] = 0;
    }
  }
  for (size_t h = 0; h < hops.size(); ++h) {
    Pad(hops[h], h < relabelled ? hops[h].source_capacity : graph.num_nodes);
  }
  std::fill(nodes + num_targets, nodes + capacity, static_cast<int32_t>(graph.num_nodes));
  return "";
}

}  // namespace jgs
