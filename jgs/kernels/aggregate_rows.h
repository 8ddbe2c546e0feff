// Loops over rows of edges, shared among threads. Only the files that aggregate include this.
#ifndef JGS_KERNELS_AGGREGATE_ROWS_H_
#define JGS_KERNELS_AGGREGATE_ROWS_H_

#include "aggregate.h"
#include "isa.h"
#include "lanes.h"
#include "stream.h"

namespace jgs {

constexpr int64_t kSmall = 1 << 16;  // floats of work that are not worth a second thread
constexpr int64_t kChunksPerThread = 8;

constexpr int64_t kPrefetchEdges = 16;  // how many edges before its use a row is prefetched
constexpr int64_t kPrefetchBytes = 2048;  // the hardware prefetches the rest of a longer row
constexpr int64_t kLineBytes = 64;
constexpr int64_t kLineFloats = kLineBytes / sizeof(float);

template <typename Element>
JGS_INLINE inline void PrefetchRow(const Element* row, int64_t num_features) {
  constexpr int64_t kSize = sizeof(Element);
  const int64_t end = std::min(num_features, kPrefetchBytes / kSize);
  // Into the second-level cache.
  for (int64_t f = 0; f < end; f += kLineBytes / kSize) __builtin_prefetch(row + f, 0, 2);
  if (end > 0) __builtin_prefetch(row + end - 1, 0, 2);  // a row may end in one line more
}

// How many edges before its use a row of so many bytes is prefetched: short ones are soon summed.
inline int64_t PrefetchDistance(int64_t bytes) {
  return std::clamp<int64_t>(8192 / std::max<int64_t>(bytes, 1), kPrefetchEdges, 64);
}

// Results of this size in bytes leave the caches before they are read.
constexpr int64_t kStreamBytes = int64_t{32} << 20;

// Whether rows of `width` floats that are written to `out` in order should be streamed.
inline bool StreamsRows(const float* out, int64_t num_rows, int64_t width) {
  const int64_t bytes = num_rows * width * static_cast<int64_t>(sizeof(float));
  return bytes >= kStreamBytes && CanStream(out, width);
}

// Rows of edges: row r has the edges indptr[r]:indptr[r+1]. Edge i reads row index[i] of a
// dense matrix, times coefficient[i], or coefficient[index[i]] if `by_index`, or 1 if
// coefficient is null. With several heads part h of that row is multiplied by
// coefficient[i * num_heads + h].
struct EdgeRows {
  const int32_t* indptr;
  const int32_t* index;
  const float* coefficient;
  int64_t num_rows;
  bool by_index = false;
  int64_t num_heads = 1;
  int64_t num_read = 0;  // the rows of the dense matrix; 0: not known

  int64_t num_edges() const { return indptr[num_rows]; }
};

inline EdgeRows ByTarget(const BlockView& block) {
  return {block.indptr, block.indices,   block.weight, block.target_capacity,
          false,        block.num_heads, block.num_rows};
}

// kernel.Run(begin, end), compiled for this CPU. Vectors wider than AVX2's gain nothing,
// because memory is the limit. All give the same bits: each feature is summed separately,
// without fused multiply-adds.
template <typename Kernel>
void RunHere(const Kernel& kernel, int64_t begin, int64_t end) {
  RunOn(std::min(BestIsa(), Isa::kAvx2), [&]() JGS_INLINE { kernel.Run(begin, end); });
}

// Runs a row kernel, whose Run(begin, end) handles the rows [begin, end), over all its rows, in
// chunks with about the same number of edges plus rows.
template <typename Kernel>
void RunRows(const Executor& executor, const Kernel& kernel) {
  const EdgeRows& edges = kernel.edges;
  const int64_t rows = edges.num_rows;
  const int64_t work = edges.num_edges() + rows;
  const bool small = executor.num_threads == 1 || work * kernel.num_features < kSmall;
  const int64_t num_chunks = small ? 1 : executor.num_threads * kChunksPerThread;
  // The first row before which the edges and rows reach the chunk's share of the work.
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
    RunHere(kernel, begin, chunk + 1 == num_chunks ? rows : first_row(chunk + 1));
  });
}

// out[r] = sum over the edges of r of coefficient * x[index], divided by their number if
// `mean`.
void SumEdges(const Executor& executor, const EdgeRows& edges, const float* x,
              int64_t num_features, bool mean, float* out);

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_ROWS_H_
