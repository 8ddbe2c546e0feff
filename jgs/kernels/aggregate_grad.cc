// The derivatives of aggregate.cc.
#include <memory>
#include <vector>

#include "aggregate.h"
#include "aggregate_rows.h"

namespace jgs {
namespace {

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

}  // namespace

void AggregateGrad(const Executor& executor, const BlockView& block, Reduce reduce,
                   const float* grad_out, const int32_t* argmax, int64_t num_features,
                   float* grad_x) {
  const bool max = reduce == Reduce::kMax;
  const Transpose transpose = BySource(block, reduce == Reduce::kMean, max);
  const EdgeRows edges = transpose.View();
  const int32_t* edge = transpose.edge.get();
  if (!max) {
    SumEdges(executor, edges, grad_out, num_features, /*mean=*/false, grad_x);
  } else if (edges.coefficient != nullptr) {
    RunRows(executor, MaxGradRows<true>{edges, edge, grad_out, argmax, num_features, grad_x});
  } else {
    RunRows(executor, MaxGradRows<false>{edges, edge, grad_out, argmax, num_features, grad_x});
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

}  // namespace jgs
