// Sampling in two steps by way of COO, as XLA's FFI calls it. Built by two_steps.py.
//
// WriteTargets ends the first step: it completes the list of drawn edges (COO). MakeBlock is the
// second. As DGL's `to_block` does, it finds the distinct nodes with a concurrent hash table and
// gives both ends of every edge local ids. Then it sorts the edges by target. Threads are XLA's,
// as in jgs's kernels. Each has an equal share of the targets and of the edges.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ffi.h"

namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Buffer<ffi::S32, 1>;
using Scalar = ffi::BufferR0<ffi::S32>;

constexpr int64_t kAhead = 16;  // how many ids ahead cells are prefetched

// One node's cell in the table: the node, and where it comes first among the targets and the
// edges. When local ids are given out, `first` becomes the local id's complement.
struct Cell {
  int32_t node, first;
};
constexpr Cell kFree = {-1, std::numeric_limits<int32_t>::max()};

class Table {
 public:
  // Makes room for so many nodes.
  void Resize(int64_t nodes) {
    uint64_t size = 64;
    while (size <= static_cast<uint64_t>(nodes)) size *= 2;
    if (cells_.size() < size) cells_.resize(size);
    mask_ = size - 1;
  }

  int64_t size() const { return mask_ + 1; }

  void Clear(int64_t begin, int64_t end) {
    std::fill(cells_.begin() + begin, cells_.begin() + end, kFree);
  }

  void Prefetch(int32_t node) const { __builtin_prefetch(&cells_[Hash(node)]); }

  // Notes that `node` comes at `slot`, and returns its cell. Adds to `added` if it is new.
  uint32_t Insert(int32_t node, int32_t slot, int64_t& added) {
    for (uint64_t at = Hash(node);; at = (at + 1) & mask_) {
      std::atomic_ref<int32_t> key(cells_[at].node);
      int32_t found = key.load(std::memory_order_relaxed);
      if (found == kFree.node && key.compare_exchange_strong(found, node)) {
        ++added;
        found = node;
      }
      if (found != node) continue;
      std::atomic_ref<int32_t> first(cells_[at].first);
      int32_t before = first.load(std::memory_order_relaxed);
      while (slot < before && !first.compare_exchange_weak(before, slot)) {
      }
      return static_cast<uint32_t>(at);
    }
  }

  // Where the node of a cell comes first; a negative number once it has a local id.
  int32_t First(uint32_t cell) {
    return std::atomic_ref<int32_t>(cells_[cell].first).load(std::memory_order_relaxed);
  }

  void SetLocal(uint32_t cell, int32_t local) {
    std::atomic_ref<int32_t>(cells_[cell].first).store(~local, std::memory_order_relaxed);
  }

  int32_t Local(uint32_t cell) const { return ~cells_[cell].first; }

  // The cell of a node that is in the table.
  uint32_t CellOf(int32_t node) const {
    uint64_t at = Hash(node);
    while (cells_[at].node != node) at = (at + 1) & mask_;
    return static_cast<uint32_t>(at);
  }

 private:
  uint64_t Hash(int32_t node) const {
    return (static_cast<uint32_t>(node) * 0x9E3779B97F4A7C15u >> 32) & mask_;
  }

  uint64_t mask_ = 0;
  std::vector<Cell> cells_;
};

// Memory that calls share, one at a time.
struct Workspace {
  std::mutex mutex;
  Table table;
  std::vector<uint32_t> cells;           // of each edge's source
  std::vector<int32_t> row, column;      // the edges in local ids
  std::vector<std::vector<int64_t>> at;  // by share: where its next edge of each target goes
};
Workspace workspace;

struct Coo {
  const int32_t *row, *column;  // the target and the source of each edge, global ids
  int64_t num_edges;
};

// The arrays of a block, see jgs.Block.
struct Out {
  int32_t *sources, *indptr, *indices;
  int64_t source_capacity, edge_capacity;
};

class Blocks {
 public:
  Blocks(Workspace& work, jgs::Team& team) : w_(work), team_(team), shares_(team.num_threads()) {}

  // Makes a block of the edges into `targets` [num_rows]. Those from `num_targets` on, and those
  // that are `padding`, are none. Returns the number of sources; one more than their capacity
  // where they do not fit, and then the block is empty; -1 where a target is there twice.
  int64_t Make(const int32_t* targets, int64_t num_rows, int64_t num_targets, const Coo& coo,
               int32_t padding, const Out& out) {
    const int64_t most = std::min(out.source_capacity, num_targets + coo.num_edges);
    // A share that finds more than `most` nodes stops, so the table cannot fill up.
    w_.table.Resize(std::max(2 * most, shares_ * (most + 1)));
    if (w_.cells.size() < static_cast<size_t>(coo.num_edges)) {
      w_.cells.resize(coo.num_edges);
      w_.row.resize(coo.num_edges);
      w_.column.resize(coo.num_edges);
    }
    if (w_.at.size() < static_cast<size_t>(shares_)) w_.at.resize(shares_);
    std::copy(targets, targets + num_targets, out.sources);
    if (!AddTargets(targets, num_targets, padding)) return -1;
    const int64_t num_sources = AddSources(coo, num_targets, most, out);
    const bool fits = num_sources <= out.source_capacity;
    const int64_t num_edges = fits ? coo.num_edges : 0;
    if (fits) {
      GiveLocalIds(targets, num_targets, padding, coo);
      SortByTarget(num_rows, num_edges, out);
    } else {
      std::fill(out.indptr, out.indptr + num_rows + 1, 0);
    }
    Each(out.edge_capacity - num_edges, [&](int64_t, int64_t begin, int64_t end) {
      std::fill(out.indices + num_edges + begin, out.indices + num_edges + end,
                static_cast<int32_t>(out.source_capacity));
    });
    std::fill(out.sources + (fits ? num_sources : 0), out.sources + out.source_capacity, padding);
    return num_sources;
  }

  // Calls body(share, begin, end) for every share of [0, count).
  template <typename Body>
  void Each(int64_t count, const Body& body) {
    team_.For(shares_, [&](int64_t share) {
      body(share, count * share / shares_, count * (share + 1) / shares_);
    });
  }

 private:
  bool AddTargets(const int32_t* targets, int64_t num_targets, int32_t padding) {
    Each(w_.table.size(),
         [&](int64_t, int64_t begin, int64_t end) { w_.table.Clear(begin, end); });
    std::atomic<bool> distinct = true;
    Each(num_targets, [&](int64_t, int64_t begin, int64_t end) {
      int64_t added = 0, real = 0;
      for (int64_t t = begin; t < end; ++t) {
        if (targets[t] == padding) continue;
        w_.table.Insert(targets[t], static_cast<int32_t>(t), added);
        ++real;
      }
      if (added < real) distinct = false;
    });
    return distinct;
  }

  // Adds the edges' other nodes to the targets in `out.sources`, in order of first appearance.
  // Returns the number of sources, or one more than their capacity.
  int64_t AddSources(const Coo& coo, int64_t num_targets, int64_t most, const Out& out) {
    std::atomic<bool> fits = true;
    Each(coo.num_edges, [&](int64_t, int64_t begin, int64_t end) {
      int64_t added = 0;
      for (int64_t e = begin; e < end && added <= most - num_targets; ++e) {
        if (e + kAhead < end) w_.table.Prefetch(coo.column[e + kAhead]);
        w_.cells[e] = w_.table.Insert(coo.column[e], static_cast<int32_t>(num_targets + e), added);
      }
      if (added > most - num_targets) fits = false;
    });
    if (!fits) return out.source_capacity + 1;
    std::vector<int64_t> next(shares_ + 1, num_targets);
    Each(coo.num_edges, [&](int64_t share, int64_t begin, int64_t end) {
      int64_t added = 0;
      for (int64_t e = begin; e < end; ++e) {
        added += w_.table.First(w_.cells[e]) == num_targets + e;
      }
      next[share + 1] = added;
    });
    for (int64_t share = 0; share < shares_; ++share) next[share + 1] += next[share];
    if (next[shares_] > out.source_capacity) return out.source_capacity + 1;
    Each(coo.num_edges, [&](int64_t share, int64_t begin, int64_t end) {
      int64_t local = next[share];
      for (int64_t e = begin; e < end; ++e) {
        if (w_.table.First(w_.cells[e]) != num_targets + e) continue;
        out.sources[local] = coo.column[e];
        w_.table.SetLocal(w_.cells[e], static_cast<int32_t>(local++));
      }
    });
    return next[shares_];
  }

  // Sets the local ids of both ends of every edge.
  void GiveLocalIds(const int32_t* targets, int64_t num_targets, int32_t padding,
                    const Coo& coo) {
    Each(num_targets, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (targets[t] == padding) continue;
        w_.table.SetLocal(w_.table.CellOf(targets[t]), static_cast<int32_t>(t));
      }
    });
    Each(coo.num_edges, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        if (e + kAhead < end) w_.table.Prefetch(coo.row[e + kAhead]);
        w_.row[e] = w_.table.Local(w_.table.CellOf(coo.row[e]));
        w_.column[e] = w_.table.Local(w_.cells[e]);
      }
    });
  }

  // A counting sort.
  void SortByTarget(int64_t num_rows, int64_t num_edges, const Out& out) {
    Each(num_edges, [&](int64_t share, int64_t begin, int64_t end) {
      std::vector<int64_t>& count = w_.at[share];
      count.assign(num_rows, 0);
      for (int64_t e = begin; e < end; ++e) ++count[w_.row[e]];
    });
    int64_t end = 0;
    for (int64_t t = 0; t < num_rows; ++t) {
      out.indptr[t] = static_cast<int32_t>(end);
      for (int64_t share = 0; share < shares_; ++share) {
        const int64_t count = w_.at[share][t];
        w_.at[share][t] = end;
        end += count;
      }
    }
    out.indptr[num_rows] = static_cast<int32_t>(end);
    Each(num_edges, [&](int64_t share, int64_t begin, int64_t last) {
      std::vector<int64_t>& at = w_.at[share];
      for (int64_t e = begin; e < last; ++e) out.indices[at[w_.row[e]]++] = w_.column[e];
    });
  }

  Workspace& w_;
  jgs::Team& team_;
  const int64_t shares_;
};

ffi::Error WriteTargets(ffi::ThreadPool pool, Ints targets, Ints indptr, ffi::Result<Ints> row,
                        int64_t num_threads) {
  return jgs::Guarded([&]() -> std::string {
    const jgs::Executor executor = jgs::PoolExecutor(pool, num_threads);
    jgs::Team team(executor);
    jgs::AdviseHugePages(row);
    const int32_t *nodes = targets.typed_data(), *ends = indptr.typed_data();
    const auto body = [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        std::fill(row->typed_data() + ends[t], row->typed_data() + ends[t + 1], nodes[t]);
      }
    };
    Blocks(workspace, team).Each(targets.element_count(), body);
    return "";
  });
}

ffi::Error MakeBlock(ffi::ThreadPool pool, Ints targets, Scalar num_targets, Ints row,
                     Ints column, Scalar num_edges, ffi::Result<Ints> sources,
                     ffi::Result<Scalar> num_sources, ffi::Result<Ints> indptr,
                     ffi::Result<Ints> indices, int64_t padding, int64_t num_threads) {
  return jgs::Guarded([&]() -> std::string {
    const jgs::Executor executor = jgs::PoolExecutor(pool, num_threads);
    jgs::Team team(executor);
    jgs::AdviseHugePages(sources);
    jgs::AdviseHugePages(indices);
    const std::lock_guard<std::mutex> lock(workspace.mutex);
    const int64_t num_rows = targets.element_count();
    const Coo coo{row.typed_data(), column.typed_data(), *num_edges.typed_data()};
    const Out out{sources->typed_data(), indptr->typed_data(), indices->typed_data(),
                  static_cast<int64_t>(sources->element_count()),
                  static_cast<int64_t>(indices->element_count())};
    const int64_t found = Blocks(workspace, team)
                              .Make(targets.typed_data(), num_rows,
                                    std::min<int64_t>(*num_targets.typed_data(), num_rows), coo,
                                    static_cast<int32_t>(padding), out);
    if (found < 0) return "the seeds of two steps must be distinct: edges name them by id";
    *num_sources->typed_data() = static_cast<int32_t>(found);
    return "";
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(TwoStepsWriteTargets, WriteTargets,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Ints>()  // targets
                                  .Arg<Ints>()  // indptr
                                  .Ret<Ints>()  // row
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(TwoStepsMakeBlock, MakeBlock,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Ints>()    // targets
                                  .Arg<Scalar>()  // num_targets
                                  .Arg<Ints>()    // row
                                  .Arg<Ints>()    // column
                                  .Arg<Scalar>()  // num_edges
                                  .Ret<Ints>()    // sources
                                  .Ret<Scalar>()  // num_sources
                                  .Ret<Ints>()    // indptr
                                  .Ret<Ints>()    // indices
                                  .Attr<int64_t>("padding")
                                  .Attr<int64_t>("num_threads"));
