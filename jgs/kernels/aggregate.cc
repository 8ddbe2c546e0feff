#include "aggregate.h"

#include <vector>

#include "aggregate_sums.h"
#include "feature_parts.h"
#include "scratch.h"

namespace jgs {
namespace {

using Dense = InMatrix<Floating>;

// SumScaled for a matrix, in so many parts of the features, one after the other. Each part is
// copied first: where rows are a power of two long, their parts share few sets of the cache. All
// sums are taken in the same order as in one part.
template <Scale kScale>
void SumInParts(const Executor& executor, const EdgeRows& edges, const Dense& x,
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
    const Dense own{{}, part, width};
    float* to = out + begin;
    if (stream && CanStream(to, width)) {
      RunRows(executor, SumRows<kScale, true, Dense>{edges, own, width, mean, to,
                                                        num_features});
    } else {
      RunRows(executor, SumRows<kScale, false, Dense>{edges, own, width, mean, to,
                                                         num_features});
    }
  }
}

template <Scale kScale>
void SumMatrix(const Executor& executor, const EdgeRows& edges, const Dense& x,
               int64_t num_features, bool mean, float* out) {
  const int64_t parts =
      edges.num_read == 0 ? 1 : FeatureParts(edges.num_read, edges.num_edges(), num_features);
  if (parts == 1) return SumScaled<kScale>(executor, edges, x, num_features, mean, out);
  SumInParts<kScale>(executor, edges, x, num_features, parts, mean, out);
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
  const Dense x{{}, matrix, num_features};
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
    AggregateRows(executor, edges, reduce, Dense{{}, x, num_features}, num_features, out, argmax);
  }
}

}  // namespace jgs
