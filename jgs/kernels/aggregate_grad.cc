// The derivatives of aggregate.cc.
#include "aggregate.h"
#include "aggregate_rows.h"
#include "aggregate_transpose.h"

namespace jgs {
namespace {

constexpr int64_t kSliceFloats = 16;  // one cache line: slices of features do not share lines

// grad_x[s] += coefficient * grad_out[t] for the edge from s that attained the maximum of t,
// feature by feature, in the order of targets.
struct MaxGrad {
  const BlockView& block;
  const float* grad_out;
  const int32_t* argmax;
  int64_t num_features;
  float* grad_x;

  // Computes all rows, for the features [begin, end).
  void Run(int64_t begin, int64_t end) const {
    for (int64_t s = 0; s < block.num_rows; ++s) {
      std::fill(grad_x + s * num_features + begin, grad_x + s * num_features + end, 0.0f);
    }
    for (int64_t t = 0; t < block.num_targets; ++t) {
      const int64_t first = block.indptr[t] + kPrefetchEdges;
      const int64_t stop = std::min(block.indptr[t + 1] + kPrefetchEdges, block.num_edges);
      for (int64_t e = first; e < stop; ++e) {
        PrefetchRow(grad_x + block.indices[e] * num_features + begin, end - begin);
      }
      const float* grad = grad_out + t * num_features;
      const int32_t* where = argmax + t * num_features;
      for (int64_t f = begin; f < end; ++f) {
        const int64_t e = where[f];
        if (e < 0 || e >= block.num_edges) continue;  // an empty row
        const float v = block.weight != nullptr ? block.weight[e] * grad[f] : grad[f];
        grad_x[block.indices[e] * num_features + f] += v;
      }
    }
  }
};

// grad_weight[e] = grad_out[r] . x[index], head by head; if kMax, over the features whose
// maximum edge e attained.
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
    const int64_t num_edges = edges.num_edges(), heads = edges.num_heads;
    const int64_t width = num_features / heads;
    for (int64_t r = begin; r < end; ++r) {
      const float* __restrict grad = grad_out + r * num_features;
      const int32_t* __restrict where = kMax ? argmax + r * num_features : nullptr;
      const int64_t first = edges.indptr[r], stop = edges.indptr[r + 1];
      for (int64_t e = first; e < stop; ++e) {
        const float* __restrict row = x + edges.index[e] * num_features;
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) PrefetchRow(x + edges.index[ahead] * num_features, num_features);
        const auto product = [=](int64_t f) JGS_INLINE {
          return !kMax || where[f] == e ? grad[f] * row[f] : 0.0f;
        };
        for (int64_t h = 0; h < heads; ++h) {
          const float sum = SumInLanes(h * width, (h + 1) * width, product);
          grad_weight[e * heads + h] = mean ? sum / static_cast<float>(stop - first) : sum;
        }
      }
    }
  }
};

}  // namespace

void AggregateGrad(const Executor& executor, const BlockView& block, Reduce reduce,
                   const float* grad_out, const int32_t* argmax, int64_t num_features,
                   float* grad_x) {
  if (reduce != Reduce::kMax) {
    const Transpose transpose(executor, block, reduce == Reduce::kMean);
    SumEdges(executor, transpose.Rows(), grad_out, num_features, /*mean=*/false, grad_x);
    return;
  }
  // In the order of targets, which needs no transpose. Each thread has features of its own.
  const MaxGrad grad{block, grad_out, argmax, num_features, grad_x};
  const int64_t lines = (num_features + kSliceFloats - 1) / kSliceFloats;
  const bool small = block.num_edges * num_features < kSmall;
  const int64_t num_slices = small ? 1 : std::min(executor.num_threads, lines);
  ParallelFor(executor, num_slices, [&](int64_t slice) {
    const int64_t begin = lines * slice / num_slices * kSliceFloats;
    const int64_t end = lines * (slice + 1) / num_slices * kSliceFloats;
    grad.Run(begin, std::min(num_features, end));
  });
}

void AggregateGradWeight(const Executor& executor, const BlockView& block, Reduce reduce,
                         const float* grad_out, const int32_t* argmax, const float* x,
                         int64_t num_features, float* grad_weight) {
  const EdgeRows edges = ByTarget(block);
  std::fill(grad_weight + block.num_edges * block.num_heads,
            grad_weight + block.edge_capacity * block.num_heads, 0.0f);
  if (reduce == Reduce::kMax) {
    RunRows(executor, WeightGradRows<true>{edges, grad_out, argmax, x, num_features, false,
                                           grad_weight});
  } else {
    RunRows(executor, WeightGradRows<false>{edges, grad_out, nullptr, x, num_features,
                                            reduce == Reduce::kMean, grad_weight});
  }
}

}  // namespace jgs
