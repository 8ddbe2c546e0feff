// Loops over rows of edges, shared among threads: what aggregate.cc, aggregate_grad.cc and
// gather.cc have in common. Included by them only.
#ifndef JGS_KERNELS_AGGREGATE_ROWS_H_
#define JGS_KERNELS_AGGREGATE_ROWS_H_

#include "aggregate.h"

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

constexpr int64_t kSmall = 1 << 16;  // floats of work that are not worth a second thread
constexpr int64_t kChunksPerThread = 8;

constexpr int64_t kPrefetchFloats = 512;  // of a longer row the hardware fetches the rest
constexpr int64_t kLineFloats = 16;

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

inline EdgeRows ByTarget(const BlockView& block) {
  return {block.indptr, block.indices, block.weight, block.target_capacity};
}

template <typename Kernel>
void RunBaseline(const Kernel& kernel, int64_t begin, int64_t end) {
  kernel.Run(begin, end);
}

#ifdef JGS_HAS_AVX2
template <typename Kernel>
__attribute__((target("avx2"))) void RunAvx2(const Kernel& kernel, int64_t begin, int64_t end) {
  kernel.Run(begin, end);
}

inline bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

// Runs a row kernel, whose Run(begin, end) does rows [begin, end), over all its rows, in chunks
// of about equal numbers of edges plus rows.
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

// out[r] = sum over r's edges of coefficient * x[index], divided by their number if `mean`.
void SumEdges(const Executor& executor, const EdgeRows& edges, const float* x,
              int64_t num_features, bool mean, float* out);

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_ROWS_H_
