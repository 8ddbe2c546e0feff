#include "aggregate.h"

#include <memory>
#include <vector>

// The row loops are compiled twice on x86: for any CPU, and for AVX2, chosen at run time.
// Both give the same bits: each feature is summed by itself, without fused multiply-adds.
// (Not `target_clones`: its resolver runs before the sanitizers are ready.)
#if defined(__GNUC__)
#define JGS_INLINE inline __attribute__((always_inline))
#define JGS_PREFETCH(address) __builtin_prefetch(address)
#else
#define JGS_INLINE inline
#define JGS_PREFETCH(address)
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#define JGS_HAS_AVX2 1
#endif

namespace jgs {
namespace {

constexpr int64_t kPrefetchEdges = 8;   // how far ahead of its use a row is asked for
constexpr int64_t kPrefetchFloats = 512;  // of a longer row the hardware fetches the rest
constexpr int64_t kLineFloats = 16;
constexpr int64_t kSmall = 1 << 16;  // floats of work that are not worth a second thread
constexpr int64_t kChunksPerThread = 8;

JGS_INLINE void PrefetchRow(const float* row, int64_t num_features) {
  const int64_t end = std::min(num_features, kPrefetchFloats);
  for (int64_t f = 0; f < end; f += kLineFloats) JGS_PREFETCH(row + f);
}

// Rows of edges: row r has the edges indptr[r]:indptr[r+1]. Edge i reads row index[i] of a
// dense matrix times coefficient[i] (1 where null).
struct EdgeRows {
  const int32_t* indptr;
  const int32_t* index;
  const float* coefficient;
  int64_t num_rows;

  int64_t num_edges() const { return indptr[num_rows]; }
};

// Row kernels: Run(begin, end) does rows [begin, end).

// out[r] = sum over r's edges of coefficient * x[index], divided by their number if `mean`.
template <bool kWeighted>
struct SumRows {
  EdgeRows edges;
  const float* x;
  int64_t num_features;
  bool mean;
  float* out;

  // Adds `kCount` edges from `e` on, in order; `kFirst` overwrites what is there. Several
  // edges at once save loads and stores of the sum and change no rounding.
  template <int kCount, bool kFirst>
  JGS_INLINE void Add(int64_t e, int64_t num_edges, float* __restrict sum) const {
    const float* __restrict row[kCount];
    float scale[kCount];
    for (int i = 0; i < kCount; ++i) {
      row[i] = x + edges.index[e + i] * num_features;
      scale[i] = kWeighted ? edges.coefficient[e + i] : 1.0f;
      const int64_t ahead = e + i + kPrefetchEdges;
      if (ahead < num_edges) PrefetchRow(x + edges.index[ahead] * num_features, num_features);
    }
    for (int64_t f = 0; f < num_features; ++f) {
      float s = kFirst ? 0.0f : sum[f];
      for (int i = 0; i < kCount; ++i) {
        const float v = kWeighted ? scale[i] * row[i][f] : row[i][f];
        s = kFirst && i == 0 ? v : s + v;
      }
      sum[f] = s;
    }
  }

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    for (int64_t r = begin; r < end; ++r) {
      float* sum = out + r * num_features;
      int64_t e = edges.indptr[r];
      const int64_t stop = edges.indptr[r + 1];
      const int64_t degree = stop - e;
      if (degree >= 4) {
        Add<4, true>(e, num_edges, sum);
        for (e += 4; e + 4 <= stop; e += 4) Add<4, false>(e, num_edges, sum);
      } else if (degree >= 2) {
        Add<2, true>(e, num_edges, sum);
        e += 2;
      } else if (degree == 1) {
        Add<1, true>(e, num_edges, sum);
        e += 1;
      } else {
        std::fill(sum, sum + num_features, 0.0f);
      }
      for (; e < stop; ++e) Add<1, false>(e, num_edges, sum);
      if (mean && degree > 1) {
        const float count = static_cast<float>(degree);
        for (int64_t f = 0; f < num_features; ++f) sum[f] /= count;
      }
    }
  }
};

// out[r] = maximum over r's edges of coefficient * x[index]; argmax[r] the first such edge.
template <bool kWeighted>
struct MaxRows {
  EdgeRows edges;
  const float* x;
  int64_t num_features;
  float* out;
  int32_t* argmax;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    for (int64_t r = begin; r < end; ++r) {
      float* __restrict best = out + r * num_features;
      int32_t* __restrict where = argmax + r * num_features;
      const int64_t first = edges.indptr[r], stop = edges.indptr[r + 1];
      if (first == stop) {
        std::fill(best, best + num_features, 0.0f);
        std::fill(where, where + num_features, -1);
      }
      for (int64_t e = first; e < stop; ++e) {
        const float* __restrict row = x + edges.index[e] * num_features;
        const float scale = kWeighted ? edges.coefficient[e] : 1.0f;
        const int32_t edge = static_cast<int32_t>(e);
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) PrefetchRow(x + edges.index[ahead] * num_features, num_features);
        if (e == first) {
          for (int64_t f = 0; f < num_features; ++f) {
            best[f] = kWeighted ? scale * row[f] : row[f];
            where[f] = edge;
          }
          continue;
        }
        for (int64_t f = 0; f < num_features; ++f) {
          const float v = kWeighted ? scale * row[f] : row[f];
          const float b = best[f];
          const bool take = !(v <= b) & (b == b);  // the first NaN wins and stays
          best[f] = take ? v : b;
          where[f] = take ? edge : where[f];
        }
      }
    }
  }
};

// grad_x[s] = sum over s's out-edges of coefficient * grad_out[index] where that edge was the
// maximum. `edge[i]` is the i-th out-edge's position in the block.
template <bool kWeighted>
struct MaxGradRows {
  EdgeRows edges;
  const int32_t* edge;
  const float* grad_out;
  const int32_t* argmax;
  int64_t num_features;
  float* grad_x;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    for (int64_t s = begin; s < end; ++s) {
      float* __restrict sum = grad_x + s * num_features;
      std::fill(sum, sum + num_features, 0.0f);
      for (int64_t i = edges.indptr[s]; i < edges.indptr[s + 1]; ++i) {
        const int64_t at = edges.index[i] * num_features;
        const float* __restrict grad = grad_out + at;
        const int32_t* __restrict where = argmax + at;
        const float scale = kWeighted ? edges.coefficient[i] : 1.0f;
        const int32_t wanted = edge[i];
        for (int64_t f = 0; f < num_features; ++f) {
          const float v = kWeighted ? scale * grad[f] : grad[f];
          sum[f] += where[f] == wanted ? v : 0.0f;
        }
      }
    }
  }
};

// grad_weight[e] = grad_out[r] . x[index], over the features whose maximum e was if kMax.
template <bool kMax>
struct WeightGradRows {
  EdgeRows edges;
  const float* grad_out;
  const int32_t* argmax;
  const float* x;
  int64_t num_features;
  bool mean;
  float* grad_weight;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    constexpr int64_t kLanes = 8;  // fixed partial sums, whatever the width of the vectors
    for (int64_t r = begin; r < end; ++r) {
      const float* __restrict grad = grad_out + r * num_features;
      const int32_t* __restrict where = kMax ? argmax + r * num_features : nullptr;
      const int64_t first = edges.indptr[r], stop = edges.indptr[r + 1];
      for (int64_t e = first; e < stop; ++e) {
        const float* __restrict row = x + edges.index[e] * num_features;
        const auto product = [=](int64_t f) {
          return !kMax || where[f] == e ? grad[f] * row[f] : 0.0f;
        };
        float lanes[kLanes] = {};
        int64_t f = 0;
        for (; f + kLanes <= num_features; f += kLanes) {
          for (int64_t i = 0; i < kLanes; ++i) lanes[i] += product(f + i);
        }
        for (int64_t i = 0; f < num_features; ++i, ++f) lanes[i] += product(f);
        float sum = 0.0f;
        for (int64_t i = 0; i < kLanes; ++i) sum += lanes[i];
        grad_weight[e] = mean ? sum / static_cast<float>(stop - first) : sum;
      }
    }
  }
};

template <typename Kernel>
void RunBaseline(const Kernel& kernel, int64_t begin, int64_t end) {
  kernel.Run(begin, end);
}

#ifdef JGS_HAS_AVX2
template <typename Kernel>
__attribute__((target("avx2"))) void RunAvx2(const Kernel& kernel, int64_t begin, int64_t end) {
  kernel.Run(begin, end);
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

// Runs the kernel over all its rows, in chunks of about equal numbers of edges plus rows.
template <typename Kernel>
void RunRows(const Executor& executor, const Kernel& kernel) {
  const EdgeRows& edges = kernel.edges;
  const int64_t rows = edges.num_rows;
  const int64_t work = edges.num_edges() + rows;
  const bool small = executor.num_threads == 1 || work * kernel.num_features < kSmall;
  const int64_t num_chunks = small ? 1 : executor.num_threads * kChunksPerThread;
  // The first row whose edges and rows before it reach the chunk's share of the work.
  const auto first_row = [&](int64_t chunk) {
    const int64_t share = work * chunk / num_chunks;
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (edges.indptr[middle] + middle < share) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const int64_t begin = first_row(chunk);
    const int64_t end = chunk + 1 == num_chunks ? rows : first_row(chunk + 1);
#ifdef JGS_HAS_AVX2
    if (HasAvx2()) return RunAvx2(kernel, begin, end);
#endif
    RunBaseline(kernel, begin, end);
  });
}

EdgeRows ByTarget(const BlockView& block) {
  return {block.indptr, block.indices, block.weight, block.target_capacity};
}

// The same edges by source, each row in edge order. Uninitialised until filled.
struct Transpose {
  std::vector<int32_t> indptr;
  std::unique_ptr<int32_t[]> target;
  std::unique_ptr<float[]> coefficient;  // weight, over the target's degree if mean; or null
  std::unique_ptr<int32_t[]> edge;       // position in the block; or null

  EdgeRows View() const {
    return {indptr.data(), target.get(), coefficient.get(),
            static_cast<int64_t>(indptr.size()) - 1};
  }
};

// A counting sort by source: no atomics, and the same order at any number of threads.
Transpose BySource(const BlockView& block, bool mean, bool with_edge) {
  const int64_t num_edges = block.num_edges;
  Transpose out;
  out.indptr.assign(block.num_rows + 1, 0);
  out.target.reset(new int32_t[num_edges]);
  if (mean || block.weight != nullptr) out.coefficient.reset(new float[num_edges]);
  if (with_edge) out.edge.reset(new int32_t[num_edges]);
  int32_t* end = out.indptr.data();
  for (int64_t e = 0; e < num_edges; ++e) ++end[block.indices[e] + 1];
  for (int64_t s = 0; s < block.num_rows; ++s) end[s + 1] += end[s];
  // end[s + 1] is where row s ends. Filled backwards it moves down to where row s starts.
  for (int64_t t = block.target_capacity - 1; t >= 0; --t) {
    const float degree = static_cast<float>(block.indptr[t + 1] - block.indptr[t]);
    for (int64_t e = block.indptr[t + 1] - 1; e >= block.indptr[t]; --e) {
      const int32_t at = --end[block.indices[e] + 1];
      out.target[at] = static_cast<int32_t>(t);
      if (out.coefficient) {
        const float weight = block.weight != nullptr ? block.weight[e] : 1.0f;
        out.coefficient[at] = mean ? weight / degree : weight;
      }
      if (out.edge) out.edge[at] = static_cast<int32_t>(e);
    }
  }
  for (int64_t s = 0; s < block.num_rows; ++s) end[s] = end[s + 1];
  end[block.num_rows] = static_cast<int32_t>(num_edges);
  return out;
}

std::string Outside(const std::string& name, int64_t low, const std::string& high_text,
                    int64_t high, int64_t value, const std::string& remedy) {
  return name + " must be in [" + std::to_string(low) + ", " + high_text + " = " +
         std::to_string(high) + "]; got " + std::to_string(value) + ". " + remedy;
}

}  // namespace

std::string CheckBlock(const BlockView& block) {
  const int64_t targets = block.target_capacity, edges = block.num_edges;
  if (block.num_targets < 0 || block.num_targets > targets) {
    return Outside("block.num_targets", 0, "len(block.indptr) - 1", targets, block.num_targets,
                   "Count the rows that are real.");
  }
  if (edges < 0 || edges > block.edge_capacity) {
    return Outside("block.num_edges", 0, "len(block.indices)", block.edge_capacity, edges,
                   "Count the edges that are real.");
  }
  bool increasing = block.indptr[0] == 0;
  for (int64_t t = 0; t < targets; ++t) increasing &= block.indptr[t] <= block.indptr[t + 1];
  if (!increasing || block.indptr[targets] != edges) {
    return "block.indptr must start at 0, never decrease, and end at block.num_edges = " +
           std::to_string(edges) + "; got a start of " + std::to_string(block.indptr[0]) +
           ", an end of " + std::to_string(block.indptr[targets]) +
           (increasing ? "" : ", and a decrease or another start") +
           ". Build it with a cumulative sum of degrees.";
  }
  if (block.indptr[block.num_targets] != edges) {
    return "rows of a block from block.num_targets = " + std::to_string(block.num_targets) +
           " on must be empty; got " +
           std::to_string(edges - block.indptr[block.num_targets]) +
           " edges there. Set num_targets to the number of rows.";
  }
  bool inside = true;
  const uint32_t limit =
      static_cast<uint32_t>(std::min<int64_t>(block.num_rows, int64_t{1} << 31));
  for (int64_t e = 0; e < edges; ++e) {
    inside &= static_cast<uint32_t>(block.indices[e]) < limit;
  }
  for (int64_t e = 0; !inside && e < edges; ++e) {
    if (static_cast<uint32_t>(block.indices[e]) >= limit) {
      return Outside("block.indices", 0, "rows of x - 1", block.num_rows - 1, block.indices[e],
                     "It is edge " + std::to_string(e) + ": give x a row for every source.");
    }
  }
  return "";
}

void Aggregate(const Executor& executor, const BlockView& block, Reduce reduce, const float* x,
               int64_t num_features, float* out, int32_t* argmax) {
  const EdgeRows edges = ByTarget(block);
  const bool mean = reduce == Reduce::kMean;
  if (reduce == Reduce::kMax) {
    if (block.weight != nullptr) {
      RunRows(executor, MaxRows<true>{edges, x, num_features, out, argmax});
    } else {
      RunRows(executor, MaxRows<false>{edges, x, num_features, out, argmax});
    }
  } else if (block.weight != nullptr) {
    RunRows(executor, SumRows<true>{edges, x, num_features, mean, out});
  } else {
    RunRows(executor, SumRows<false>{edges, x, num_features, mean, out});
  }
}

void AggregateGrad(const Executor& executor, const BlockView& block, Reduce reduce,
                   const float* grad_out, const int32_t* argmax, int64_t num_features,
                   float* grad_x) {
  const bool max = reduce == Reduce::kMax;
  const Transpose transpose = BySource(block, reduce == Reduce::kMean, max);
  const EdgeRows edges = transpose.View();
  const int32_t* edge = transpose.edge.get();
  if (max) {
    if (edges.coefficient != nullptr) {
      RunRows(executor,
              MaxGradRows<true>{edges, edge, grad_out, argmax, num_features, grad_x});
    } else {
      RunRows(executor,
              MaxGradRows<false>{edges, edge, grad_out, argmax, num_features, grad_x});
    }
  } else if (edges.coefficient != nullptr) {
    RunRows(executor, SumRows<true>{edges, grad_out, num_features, false, grad_x});
  } else {
    RunRows(executor, SumRows<false>{edges, grad_out, num_features, false, grad_x});
  }
}

void AggregateGradWeight(const Executor& executor, const BlockView& block, Reduce reduce,
                         const float* grad_out, const int32_t* argmax, const float* x,
                         int64_t num_features, float* grad_weight) {
  const EdgeRows edges = ByTarget(block);
  std::fill(grad_weight + block.num_edges, grad_weight + block.edge_capacity, 0.0f);
  if (reduce == Reduce::kMax) {
    RunRows(executor, WeightGradRows<true>{edges, grad_out, argmax, x, num_features, false,
                                           grad_weight});
  } else {
    RunRows(executor, WeightGradRows<false>{edges, grad_out, nullptr, x, num_features,
                                            reduce == Reduce::kMean, grad_weight});
  }
}

std::string GatherSparse(const Executor& executor, const SparseRows& features,
                         const int32_t* ids, int64_t num_ids, float* out) {
  const int64_t width = features.num_features;
  const bool small = executor.num_threads == 1 || num_ids * width < kSmall;
  const int64_t num_chunks = small ? 1 : executor.num_threads * kChunksPerThread;
  std::vector<int64_t> bad_row(num_chunks, -1);
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const int64_t begin = num_ids * chunk / num_chunks;
    const int64_t end = num_ids * (chunk + 1) / num_chunks;
    std::fill(out + begin * width, out + end * width, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = ids[i];
      if (row < 0 || row >= features.num_rows) continue;
      const int64_t first = features.indptr[row], stop = features.indptr[row + 1];
      if (first < 0 || first > stop || stop > features.num_entries) {
        bad_row[chunk] = row;
        return;
      }
      for (int64_t e = first; e < stop; ++e) {
        const int64_t column = features.indices[e];
        if (column < 0 || column >= width) {
          bad_row[chunk] = row;
          return;
        }
        out[i * width + column] += features.values[e];
      }
    }
  });
  for (const int64_t row : bad_row) {
    if (row >= 0) {
      return "rows of SparseFeatures must lie in [0, " + std::to_string(features.num_entries) +
             "] and their columns in [0, " + std::to_string(width) + "); got row " +
             std::to_string(row) + ", which does not. Build it with SparseFeatures.from_scipy.";
    }
  }
  return "";
}

}  // namespace jgs
