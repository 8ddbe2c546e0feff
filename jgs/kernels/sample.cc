#include "sample.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>

#include "draw.h"
#include "relabel.h"

namespace jgs {
namespace {

constexpr int64_t kRows = 512;         // targets a thread takes at a time
constexpr int64_t kAhead = 16;         // rows ahead whose offsets are prefetched
constexpr int64_t kDrawBatch = 2048;   // draws whose bits are made together
constexpr int64_t kReadBatch = 128;    // edges whose reads are in flight together

// Memory that a call needs and the next call can use again.
struct Workspace {
  std::vector<int64_t> row_start;   // [targets] first edge of each target's row
  std::vector<int64_t> row_bound;   // [targets + 1] where its sample starts, at most
  std::vector<int32_t> degree;      // [targets]
  std::vector<int32_t> row_count;   // [targets] how many were drawn (by weight only)
  std::vector<int64_t> chunk_sum;
  std::vector<int32_t> neighbors;   // [edges] global ids
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

// Reads graph.indices at the positions given to it, a batch behind their prefetches.
class Reader {
 public:
  Reader(const GraphView& graph, const Hop& hop, int32_t* neighbors)
      : graph_(graph), hop_(hop), neighbors_(neighbors) {}

  void Add(int64_t edge, int64_t slot) {
    __builtin_prefetch(&graph_.indices[edge]);
    if (hop_.edge_weight != nullptr) __builtin_prefetch(&graph_.edge_weight[edge]);
    if (count_ == kReadBatch) {
      Read(next_);  // the oldest
    } else {
      ++count_;
    }
    edge_[next_] = edge;
    slot_[next_] = slot;
    next_ = (next_ + 1) % kReadBatch;
  }

  // Reads what is still waiting; true if every neighbour was a node.
  bool Finish() {
    const int64_t first = next_ - count_ + kReadBatch;
    for (int64_t i = 0; i < count_; ++i) Read((first + i) % kReadBatch);
    count_ = 0;
    return good_;
  }

 private:
  void Read(int64_t i) {
    const int64_t edge = edge_[i], slot = slot_[i];
    const int32_t node = graph_.indices[edge];
    good_ &= node >= 0 && node < graph_.num_nodes;
    neighbors_[slot] = node;
    if (hop_.edge_id != nullptr) hop_.edge_id[slot] = edge;
    if (hop_.edge_weight != nullptr) hop_.edge_weight[slot] = graph_.edge_weight[edge];
  }

  const GraphView& graph_;
  const Hop& hop_;
  int32_t* neighbors_;
  int64_t edge_[kReadBatch], slot_[kReadBatch];
  int64_t next_ = 0, count_ = 0;
  bool good_ = true;
};

class Sampler {
 public:
  Sampler(const GraphView& graph, bool replace, bool weighted, const Executor& executor,
          Workspace& work)
      : graph_(graph), replace_(replace), weighted_(weighted), executor_(executor), w_(work) {}

  // Samples one hop of the first `num_targets` nodes; false on overflow or bad input.
  bool Run(Hop& hop, int32_t* nodes, int64_t num_targets) {
    num_targets_ = num_targets;
    num_chunks_ = (num_targets + kRows - 1) / kRows;
    if (!Bounds(hop, nodes)) return false;
    const int64_t bound = w_.row_bound[num_targets];
    if (bound > hop.edge_capacity) return false;
    if (static_cast<int64_t>(w_.neighbors.size()) < bound) w_.neighbors.resize(bound);
    if (weighted_ && static_cast<int64_t>(w_.row_count.size()) < num_targets) {
      w_.row_count.resize(num_targets);
    }
    ParallelFor(executor_, num_chunks_, [&](int64_t chunk) { Draw(hop, nodes, chunk); });
    if (bad_.load()) return false;
    const int64_t num_edges = weighted_ ? Compact(hop) : bound;
    if (!weighted_) {
      for (int64_t t = 0; t <= num_targets; ++t) {
        hop.indptr[t] = static_cast<int32_t>(w_.row_bound[t]);
      }
    }
    const int64_t num_sources =
        w_.relabeler.AddNeighbors(w_.neighbors.data(), num_edges, num_targets,
                                  hop.source_capacity, nodes, hop.indices, executor_);
    if (num_sources < 0) return false;
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

  // Where each row of the graph starts, and where its sample may: row_start, row_bound.
  bool Bounds(const Hop& hop, const int32_t* nodes) {
    if (static_cast<int64_t>(w_.row_start.size()) < num_targets_ + 1) {
      w_.row_start.resize(num_targets_ + 1);
      w_.row_bound.resize(num_targets_ + 1);
    }
    w_.chunk_sum.assign(num_chunks_ + 1, 0);
    w_.degree.resize(num_targets_);
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
              start + degree > graph_.num_edges) {
            bad_.store(true);
            start = degree = 0;
          }
        }
        w_.row_start[t] = start;
        w_.degree[t] = static_cast<int32_t>(degree);
        w_.row_bound[t] = sum;
        sum += Bound(hop.fanout, degree);
      }
      w_.chunk_sum[chunk + 1] = sum;
    });
    for (int64_t c = 0; c < num_chunks_; ++c) w_.chunk_sum[c + 1] += w_.chunk_sum[c];
    ParallelFor(executor_, num_chunks_, [&](int64_t chunk) {
      for (int64_t t = chunk * kRows; t < End(chunk); ++t) {
        w_.row_bound[t] += w_.chunk_sum[chunk];
      }
    });
    w_.row_bound[num_targets_] = w_.chunk_sum[num_chunks_];
    return !bad_.load();
  }

  // Draws for a chunk of targets and reads the neighbours drawn.
  void Draw(const Hop& hop, const int32_t* nodes, int64_t chunk) {
    Reader reader(graph_, hop, w_.neighbors.data());
    const int64_t end = End(chunk), k = hop.fanout;
    if (k < 0) {
      for (int64_t t = chunk * kRows; t < end; ++t) All(t, reader);
    } else {
      Drawer drawer(k);
      const int64_t rows_at_once = std::max<int64_t>(1, kDrawBatch / k);
      std::vector<uint32_t> node(rows_at_once * k), draw(rows_at_once * k);
      std::vector<uint64_t> bits(rows_at_once * k);
      std::vector<int64_t> position(k);
      for (int64_t first = chunk * kRows; first < end; first += rows_at_once) {
        const int64_t last = std::min(first + rows_at_once, end);
        int64_t n = 0;
        for (int64_t t = first; t < last; ++t) {
          if (!Drawn(k, w_.degree[t])) continue;
          if (weighted_) {
            __builtin_prefetch(&graph_.weight_prefix[w_.row_start[t] + w_.degree[t] - 1]);
          }
          for (int64_t i = 0; i < k; ++i, ++n) {
            node[n] = static_cast<uint32_t>(nodes[t]);
            draw[n] = static_cast<uint32_t>(i);
          }
        }
        ThreefryBatch(hop.key, node.data(), draw.data(), n, bits.data());
        n = 0;
        for (int64_t t = first; t < last; ++t) {
          if (!Drawn(k, w_.degree[t])) {
            All(t, reader);
            continue;
          }
          const int64_t count = Choose(drawer, &bits[n], t, k, position.data());
          n += k;
          if (weighted_) w_.row_count[t] = static_cast<int32_t>(count);
          for (int64_t i = 0; i < count; ++i) {
            reader.Add(w_.row_start[t] + position[i], w_.row_bound[t] + i);
          }
        }
      }
    }
    if (!reader.Finish()) bad_.store(true);
  }

  // Whether a row needs random bits; otherwise all its neighbours are taken.
  bool Drawn(int64_t k, int64_t degree) const { return replace_ ? degree > 0 : degree > k; }

  int64_t Choose(Drawer& drawer, const uint64_t* bits, int64_t t, int64_t k,
                 int64_t* position) const {
    const int64_t degree = w_.degree[t];
    if (weighted_) {
      const int64_t* prefix = graph_.weight_prefix + w_.row_start[t];
      return replace_ ? drawer.WeightedRepeated(bits, prefix, degree, position)
                      : drawer.WeightedDistinct(bits, prefix, degree, position);
    }
    replace_ ? drawer.Repeated(bits, degree, position) : drawer.Distinct(bits, degree, position);
    return k;
  }

  // Takes every neighbour of target t, by weight those that weigh something.
  void All(int64_t t, Reader& reader) {
    const int64_t start = w_.row_start[t], degree = w_.degree[t];
    int64_t slot = w_.row_bound[t], before = 0;
    for (int64_t i = 0; i < degree; ++i) {
      if (weighted_) {
        const int64_t through = graph_.weight_prefix[start + i];
        const bool nothing = through == before;
        before = through;
        if (nothing) continue;
      }
      reader.Add(start + i, slot++);
    }
    if (weighted_) w_.row_count[t] = static_cast<int32_t>(slot - w_.row_bound[t]);
  }

  // Closes the gaps that rows with fewer draws than their bound left; returns the edges kept.
  int64_t Compact(const Hop& hop) {
    int64_t to = 0;
    for (int64_t t = 0; t < num_targets_; ++t) {
      hop.indptr[t] = static_cast<int32_t>(to);
      const int64_t from = w_.row_bound[t], count = w_.row_count[t];
      if (from != to) {
        std::copy_n(&w_.neighbors[from], count, &w_.neighbors[to]);
        if (hop.edge_id != nullptr) std::copy_n(hop.edge_id + from, count, hop.edge_id + to);
        if (hop.edge_weight != nullptr) {
          std::copy_n(hop.edge_weight + from, count, hop.edge_weight + to);
        }
      }
      to += count;
    }
    hop.indptr[num_targets_] = static_cast<int32_t>(to);
    return to;
  }

  const GraphView& graph_;
  const bool replace_, weighted_;
  const Executor& executor_;
  Workspace& w_;
  int64_t num_targets_ = 0, num_chunks_ = 0;
  std::atomic<bool> bad_{false};
};

void Pad(Hop& hop) {
  std::fill(hop.indptr + hop.num_targets + 1, hop.indptr + hop.target_capacity + 1,
            hop.num_edges);
  std::fill(hop.indices + hop.num_edges, hop.indices + hop.edge_capacity,
            static_cast<int32_t>(hop.source_capacity));
  if (hop.edge_id != nullptr) {
    std::fill(hop.edge_id + hop.num_edges, hop.edge_id + hop.edge_capacity, int64_t{-1});
  }
  if (hop.edge_weight != nullptr) {
    std::fill(hop.edge_weight + hop.num_edges, hop.edge_weight + hop.edge_capacity, 0.0f);
  }
}

}  // namespace

std::string SampleNeighbors(const GraphView& graph, const int32_t* seeds, int64_t num_seeds,
                            bool replace, bool weighted, std::vector<Hop>& hops,
                            int32_t* nodes, bool* overflow, const Executor& executor) {
  int64_t num_targets = 0;
  for (int64_t i = 0; i < num_seeds; ++i) {
    if (seeds[i] < 0 || seeds[i] > graph.num_nodes) {
      return "seeds must be node ids in [0, " + std::to_string(graph.num_nodes) + "), or " +
             std::to_string(graph.num_nodes) + " for padding; got " + std::to_string(seeds[i]) +
             " at position " + std::to_string(i) + ". Check where the seeds come from";
    }
    if (seeds[i] < graph.num_nodes) num_targets = i + 1;
  }
  auto work = Pool().Take();
  work->relabeler.SetTargets(seeds, num_targets);
  std::copy_n(seeds, num_targets, nodes);
  Sampler sampler(graph, replace, weighted, executor, *work);
  bool fits = true;
  for (Hop& hop : hops) {
    fits = sampler.Run(hop, nodes, num_targets);
    if (!fits) break;
    num_targets = hop.num_sources;
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
  for (Hop& hop : hops) Pad(hop);
  const int64_t capacity = hops.empty() ? num_seeds : hops.back().source_capacity;
  std::fill(nodes + num_targets, nodes + capacity, static_cast<int32_t>(graph.num_nodes));
  return "";
}

}  // namespace jgs
