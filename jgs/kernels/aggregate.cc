#include "aggregate.h"

#include <vector>

#include "aggregate_rows.h"
#include "feature_parts.h"
#include "scratch.h"

namespace jgs {
namespace {

// Finds the row of an edge's index, in one matrix or in a list of rows.
struct InMatrix {
  const float* x;
  int64_t stride;

  JGS_INLINE const float* operator()(int32_t index) const { return x + index * stride; }
};

struct InList {
  const float* const* rows;

  JGS_INLINE const float* operator()(int32_t index) const { return rows[index]; }
};

enum class Scale { kNone, kOfEdge, kOfIndex, kOfHead };  // the kind of the edges' coefficients

// SumEdges for one kind of coefficient. Rows of the result are `out_stride` floats apart.
template <Scale kScale, bool kStream, typename Rows>
struct SumRows {
  EdgeRows edges;
  Rows x;
  int64_t num_features;
  bool mean;
  float* out;
  int64_t out_stride;
  int64_t head_width = num_features / edges.num_heads;

  // Adds `kCount` edges from `e` on, in order; `kFirst` overwrites the sum. Adding several
  // edges at once saves loads and stores of the sum, and changes no rounding.
  template <int kCount, bool kFirst>
  JGS_INLINE void Add(int64_t e, int64_t num_edges, float* __restrict sum) const {
    const float* __restrict row[kCount];
    float scale[kCount];
    for (int i = 0; i < kCount; ++i) {
      row[i] = x(edges.index[e + i]);
      if (kScale == Scale::kOfEdge) scale[i] = edges.coefficient[e + i];
      if (kScale == Scale::kOfIndex) scale[i] = edges.coefficient[edges.index[e + i]];
      const int64_t ahead = e + i + kPrefetchEdges;
      if (ahead < num_edges) PrefetchRow(x(edges.index[ahead]), num_features);
    }
    const auto add_columns = [&](int64_t begin, int64_t end) JGS_INLINE {
      for (int64_t f = begin; f < end; ++f) {
        float s = kFirst ? 0.0f : sum[f];
        for (int i = 0; i < kCount; ++i) {
          const float v = kScale == Scale::kNone ? row[i][f] : scale[i] * row[i][f];
          s = kFirst && i == 0 ? v : s + v;
        }
        sum[f] = s;
      }
    };
    if (kScale != Scale::kOfHead) return add_columns(0, num_features);
    const float* coefficient = edges.coefficient + e * edges.num_heads;
    for (int64_t f = 0; f < num_features; f += head_width, ++coefficient) {
      for (int i = 0; i < kCount; ++i) scale[i] = coefficient[i * edges.num_heads];
      add_columns(f, f + head_width);
    }
  }

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    std::vector<float> buffer(kStream ? num_features : 0);
    for (int64_t r = begin; r < end; ++r) {
      float* sum = kStream ? buffer.data() : out + r * out_stride;
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
      if (kStream) Stream(sum, num_features, out + r * out_stride);
    }
    if (kStream) EndStream();
  }
};

// out[r] = the maximum over the edges of r of coefficient * x[index]; argmax[r] = the first
// edge that attains it, if kArgmax.
template <bool kWeighted, bool kArgmax, typename Rows>
struct MaxRows {
  EdgeRows edges;
  Rows x;
  int64_t num_features;
  float* out;
  int32_t* argmax;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    for (int64_t r = begin; r < end; ++r) {
      float* __restrict best = out + r * num_features;
      int32_t* __restrict where = kArgmax ? argmax + r * num_features : nullptr;
      const int64_t first = edges.indptr[r], stop = edges.indptr[r + 1];
      if (first == stop) {
        std::fill(best, best + num_features, 0.0f);
        if (kArgmax) std::fill(where, where + num_features, -1);
      }
      for (int64_t e = first; e < stop; ++e) {
        const float* __restrict row = x(edges.index[e]);
        const float scale = kWeighted ? edges.coefficient[e] : 1.0f;
        const int32_t edge = static_cast<int32_t>(e);
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) PrefetchRow(x(edges.index[ahead]), num_features);
        if (e == first) {
          for (int64_t f = 0; f < num_features; ++f) {
            best[f] = kWeighted ? scale * row[f] : row[f];
            if (kArgmax) where[f] = edge;
          }
          continue;
        }
        for (int64_t f = 0; f < num_features; ++f) {
          const float v = kWeighted ? scale * row[f] : row[f];
          const float b = best[f];
          const bool take = !(v <= b) & (b == b);  // the first NaN wins and stays
          best[f] = take ? v : b;
          if (kArgmax) where[f] = take ? edge : where[f];
        }
      }
    }
  }
};

template <Scale kScale, typename Rows>
void SumScaled(const Executor& executor, const EdgeRows& edges, const Rows& x,
               int64_t num_features, bool mean, float* out) {
  const int64_t width = num_features;
  if (StreamsRows(out, edges.num_rows, width)) {
    RunRows(executor, SumRows<kScale, true, Rows>{edges, x, width, mean, out, width});
  } else {
    RunRows(executor, SumRows<kScale, false, Rows>{edges, x, width, mean, out, width});
  }
}

// The same for a matrix, in so many parts of the features, one after the other. Each part is
// copied first: where rows are a power of two long, their parts share few sets of the cache. All
// sums are taken in the same order as in one part.
template <Scale kScale>
void SumInParts(const Executor& executor, const EdgeRows& edges, const InMatrix& x,
                int64_t num_features, int64_t num_parts, bool mean, float* out) {
  thread_local Scratch<float> scratch;
  const int64_t most = PartBegin(1, num_parts, num_features) + kLineFloats;
  scratch.Reserve(edges.num_read * most);
  float* part = scratch.data();
  const bool stream = StreamsRows(out, edges.num_rows, num_features);
  for (int64_t i = 0; i < num_parts; ++i) {
    const int64_t begin = PartBegin(i, num_parts, num_features);
    const int64_t width = PartBegin(i + 1, num_parts, num_features) - begin;
    const int64_t num_chunks = executor.num_threads * kChunksPerThread;
    ParallelFor(executor, num_chunks, [&](int64_t chunk) {
      const int64_t end = edges.num_read * (chunk + 1) / num_chunks;
      for (int64_t r = edges.num_read * chunk / num_chunks; r < end; ++r) {
        std::copy_n(x(static_cast<int32_t>(r)) + begin, width, part + r * width);
      }
    });
    const InMatrix own{part, width};
    float* to = out + begin;
    if (stream && CanStream(to, width)) {
      RunRows(executor, SumRows<kScale, true, InMatrix>{edges, own, width, mean, to,
                                                        num_features});
    } else {
      RunRows(executor, SumRows<kScale, false, InMatrix>{edges, own, width, mean, to,
                                                         num_features});
    }
  }
}

template <Scale kScale>
void SumMatrix(const Executor& executor, const EdgeRows& edges, const InMatrix& x,
               int64_t num_features, bool mean, float* out) {
  const int64_t parts =
      edges.num_read == 0 ? 1 : FeatureParts(edges.num_read, edges.num_edges(), num_features);
  if (parts == 1) return SumScaled<kScale>(executor, edges, x, num_features, mean, out);
  SumInParts<kScale>(executor, edges, x, num_features, parts, mean, out);
}

template <bool kWeighted, typename Rows>
void MaxEdges(const Executor& executor, const EdgeRows& edges, const Rows& x,
              int64_t num_features, float* out, int32_t* argmax) {
  if (argmax != nullptr) {
    RunRows(executor, MaxRows<kWeighted, true, Rows>{edges, x, num_features, out, argmax});
  } else {
    RunRows(executor, MaxRows<kWeighted, false, Rows>{edges, x, num_features, out, argmax});
  }
}

// `Aggregate` of rows in one matrix or in a list.
template <typename Rows>
void AggregateRows(const Executor& executor, const EdgeRows& edges, Reduce reduce,
                   const Rows& x, int64_t num_features, float* out, int32_t* argmax) {
  const bool mean = reduce == Reduce::kMean;
  if (reduce == Reduce::kMax && edges.coefficient != nullptr) {
    MaxEdges<true>(executor, edges, x, num_features, out, argmax);
  } else if (reduce == Reduce::kMax) {
    MaxEdges<false>(executor, edges, x, num_features, out, argmax);
  } else if (edges.coefficient != nullptr) {
    SumScaled<Scale::kOfEdge>(executor, edges, x, num_features, mean, out);
  } else {
    SumScaled<Scale::kNone>(executor, edges, x, num_features, mean, out);
  }
}

// The largest of the indices [begin, end) read as unsigned; a negative index is large.
struct LargestIndex {
  const int32_t* indices;
  uint32_t* largest;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    uint32_t most = 0;
    for (int64_t e = begin; e < end; ++e) {
      most = std::max(most, static_cast<uint32_t>(indices[e]));
    }
    *largest = most;
  }
};

std::string Outside(const std::string& name, int64_t low, const std::string& high_text,
                    int64_t high, int64_t value, const std::string& remedy) {
  return name + " must be in [" + std::to_string(low) + ", " + high_text + " = " +
         std::to_string(high) + "]; got " + std::to_string(value) + ". " + remedy;
}

}  // namespace

std::string CheckRows(const BlockView& block) {
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
  return "";
}

std::string CheckBlock(const BlockView& block, const std::string& matrix) {
  if (auto error = CheckRows(block); !error.empty()) return error;
  const int64_t edges = block.num_edges;
  const uint32_t limit =
      static_cast<uint32_t>(std::min<int64_t>(block.num_rows, int64_t{1} << 31));
  uint32_t largest = 0;
  RunHere(LargestIndex{block.indices, &largest}, 0, edges);
  for (int64_t e = 0; largest >= limit && e < edges; ++e) {
    if (static_cast<uint32_t>(block.indices[e]) >= limit) {
      return Outside("block.indices", 0, "rows of " + matrix + " - 1", block.num_rows - 1,
                     block.indices[e],
                     "It is edge " + std::to_string(e) + ": give " + matrix +
                         " a row for every source.");
    }
  }
  return "";
}

void SumEdges(const Executor& executor, const EdgeRows& edges, const float* matrix,
              int64_t num_features, bool mean, float* out) {
  const InMatrix x{matrix, num_features};
  if (edges.coefficient == nullptr) {
    SumMatrix<Scale::kNone>(executor, edges, x, num_features, mean, out);
  } else if (edges.num_heads > 1) {
    SumScaled<Scale::kOfHead>(executor, edges, x, num_features, mean, out);
  } else if (edges.by_index) {
    SumMatrix<Scale::kOfIndex>(executor, edges, x, num_features, mean, out);
  } else {
    SumMatrix<Scale::kOfEdge>(executor, edges, x, num_features, mean, out);
  }
}

void Aggregate(const Executor& executor, const BlockView& block, Reduce reduce, const float* x,
               int64_t num_features, float* out, int32_t* argmax) {
  const EdgeRows edges = ByTarget(block);
  if (reduce != Reduce::kMax) {  // with several heads too
    SumEdges(executor, edges, x, num_features, reduce == Reduce::kMean, out);
  } else {
    AggregateRows(executor, edges, reduce, InMatrix{x, num_features}, num_features, out, argmax);
  }
}

void AggregateListed(const Executor& executor, const BlockView& block, Reduce reduce,
                     const float* const* rows, int64_t num_features, float* out) {
  AggregateRows(executor, ByTarget(block), reduce, InList{rows}, num_features, out, nullptr);
}

}  // namespace jgs
