#include "edge_scores.h"

#include "aggregate_rows.h"
#include "aggregate_transpose.h"

namespace jgs {
namespace {

// LeakyReLU(v) = even * |v| + odd * v, and its derivative, without a branch, so that loops over
// them use vectors.
struct Leaky {
  float even, odd;

  explicit Leaky(float negative_slope)
      : even(0.5f * (1.0f - negative_slope)), odd(0.5f * (1.0f + negative_slope)) {}

  JGS_INLINE float Of(float v) const { return even * __builtin_fabsf(v) + odd * v; }
  JGS_INLINE float Slope(float v) const {
    return even * __builtin_copysignf(1.0f, v + 0.0f) + odd;  // for -0 the same as for 0
  }
};

struct ScoreRows {
  EdgeRows edges;
  int64_t num_features;
  AdditiveAttention attention;
  const float* x;
  const float* y;
  float* scores;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges(), heads = attention.num_heads;
    const int64_t width = num_features / heads;
    const Leaky leaky(attention.negative_slope);
    const float* __restrict a = attention.attention;
    for (int64_t r = begin; r < end; ++r) {
      const float* __restrict own = y + r * num_features;
      for (int64_t e = edges.indptr[r]; e < edges.indptr[r + 1]; ++e) {
        const float* __restrict row = x + edges.index[e] * num_features;
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) PrefetchRow(x + edges.index[ahead] * num_features, num_features);
        const auto term = [=](int64_t f) JGS_INLINE {
          return a[f] * leaky.Of(row[f] + own[f]);
        };
        for (int64_t h = 0; h < heads; ++h) {
          scores[e * heads + h] = SumInLanes(h * width, (h + 1) * width, term);
        }
      }
    }
  }
};

// grad_own[r] = attention * the sum over the edges of r of coefficient * LeakyReLU'(other +
// own). If kShare, share[r] = the sum of coefficient * LeakyReLU(other + own). Rows are targets
// and `other` are rows of sources, or the reverse.
template <bool kShare>
struct ScoreGradRows {
  EdgeRows edges;
  int64_t num_features;
  AdditiveAttention attention;
  const float* other;
  const float* own;
  float* grad_own;
  float* share;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges(), heads = attention.num_heads;
    const int64_t width = num_features / heads;
    const Leaky leaky(attention.negative_slope);
    for (int64_t r = begin; r < end; ++r) {
      const float* __restrict mine = own + r * num_features;
      float* __restrict grad = grad_own + r * num_features;
      float* __restrict part = kShare ? share + r * num_features : nullptr;
      std::fill(grad, grad + num_features, 0.0f);
      if (kShare) std::fill(part, part + num_features, 0.0f);
      for (int64_t e = edges.indptr[r]; e < edges.indptr[r + 1]; ++e) {
        const float* __restrict row = other + edges.index[e] * num_features;
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) {
          PrefetchRow(other + edges.index[ahead] * num_features, num_features);
        }
        for (int64_t h = 0; h < heads; ++h) {
          const float coefficient = edges.coefficient[e * heads + h];
          for (int64_t f = h * width; f < (h + 1) * width; ++f) {
            const float v = row[f] + mine[f];
            const float g = coefficient * leaky.Slope(v);
            grad[f] += g;
            if (kShare) part[f] += g * v;
          }
        }
      }
      for (int64_t f = 0; f < num_features; ++f) grad[f] *= attention.attention[f];
    }
  }
};

}  // namespace

void EdgeScores(const Executor& executor, const BlockView& block,
                const AdditiveAttention& attention, const float* x, const float* y,
                float* scores) {
  const int64_t heads = attention.num_heads;
  RunRows(executor,
          ScoreRows{ByTarget(block), attention.num_features, attention, x, y, scores});
  std::fill(scores + block.num_edges * heads, scores + block.edge_capacity * heads, 0.0f);
}

void EdgeScoresGrad(const Executor& executor, const BlockView& block,
                    const AdditiveAttention& attention, const float* x, const float* y,
                    float* grad_x, float* grad_y, float* grad_attention) {
  const int64_t width = attention.num_features;
  RunRows(executor, ScoreGradRows<true>{ByTarget(block), width, attention, x, y, grad_y,
                                        grad_attention});
  const Transpose transpose(executor, block, /*mean=*/false);
  RunRows(executor, ScoreGradRows<false>{transpose.Rows(), width, attention, y, x, grad_x,
                                         nullptr});
}

}  // namespace jgs
