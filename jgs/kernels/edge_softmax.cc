#include "edge_softmax.h"

#include <cstring>
#include <limits>
#include <vector>

#include "aggregate_rows.h"

namespace jgs {
namespace {

constexpr int64_t kRowsAtOnce = 128;  // the logits of these rows' edges stay in the cache

// exp(x) for x <= 0 with a relative error of about 1e-7, 0 below 1e-38, and NaN for NaN. It has
// no branch, so that loops over it use vectors. The coefficients are those of Cephes' expf.
JGS_INLINE inline float ExpOfNegative(float x) {
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504f + kToInteger;
  const float n = shifted - kToInteger;  // exp(x) = 2^n exp(r)
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * r * r + r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + 0x3f800000u;  // 2^n
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < -87.0f ? 0.0f : y * power;
}

JGS_INLINE inline void ExpAll(float* values, int64_t size) {
  for (int64_t i = 0; i < size; ++i) values[i] = ExpOfNegative(values[i]);
}

// `kHeads` 0: the number of heads is `num_features`.
template <int64_t kHeads>
struct SoftmaxRows {
  EdgeRows edges;
  int64_t num_features;
  int64_t num_targets;
  OfEdgesAndOwn<const float> logits;
  OfEdgesAndOwn<float> weights;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t heads = kHeads > 0 ? kHeads : num_features;
    std::vector<float> of_head(heads);
    const int64_t real_end = std::min(end, num_targets);
    for (int64_t first = begin; first < real_end; first += kRowsAtOnce) {
      const int64_t stop = std::min(first + kRowsAtOnce, real_end);
      for (int64_t r = first; r < stop; ++r) LessMaximum(r, heads, of_head.data());
      const int64_t edge = edges.indptr[first];
      ExpAll(weights.edges + edge * heads, (edges.indptr[stop] - edge) * heads);
      if (weights.own != nullptr) ExpAll(weights.own + first * heads, (stop - first) * heads);
      for (int64_t r = first; r < stop; ++r) OverSum(r, heads, of_head.data());
    }
    if (weights.own != nullptr && end > num_targets) {
      const int64_t first = std::max(begin, num_targets);
      std::fill(weights.own + first * heads, weights.own + end * heads, 0.0f);
    }
  }

  // weights = logits minus the largest of their head.
  JGS_INLINE void LessMaximum(int64_t r, int64_t heads, float* __restrict top) const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const int64_t begin = edges.indptr[r] * heads, end = edges.indptr[r + 1] * heads;
    const bool has_own = logits.own != nullptr;
    for (int64_t h = 0; h < heads; ++h) top[h] = has_own ? logits.own[r * heads + h] : kLowest;
    for (int64_t e = begin; e < end; e += heads) {
      for (int64_t h = 0; h < heads; ++h) top[h] = std::max(top[h], logits.edges[e + h]);
    }
    for (int64_t h = 0; h < heads; ++h) top[h] = top[h] == kLowest ? 0.0f : top[h];
    for (int64_t e = begin; e < end; e += heads) {
      for (int64_t h = 0; h < heads; ++h) weights.edges[e + h] = logits.edges[e + h] - top[h];
    }
    for (int64_t h = 0; has_own && h < heads; ++h) {
      weights.own[r * heads + h] = logits.own[r * heads + h] - top[h];
    }
  }

  // weights divided by the sum of their head; if all are 0 they stay 0.
  JGS_INLINE void OverSum(int64_t r, int64_t heads, float* __restrict sum) const {
    const int64_t begin = edges.indptr[r] * heads, end = edges.indptr[r + 1] * heads;
    const bool has_own = weights.own != nullptr;
    for (int64_t h = 0; h < heads; ++h) sum[h] = has_own ? weights.own[r * heads + h] : 0.0f;
    for (int64_t e = begin; e < end; e += heads) {
      for (int64_t h = 0; h < heads; ++h) sum[h] += weights.edges[e + h];
    }
    for (int64_t h = 0; h < heads; ++h) sum[h] = sum[h] == 0.0f ? 0.0f : 1.0f / sum[h];
    for (int64_t e = begin; e < end; e += heads) {
      for (int64_t h = 0; h < heads; ++h) weights.edges[e + h] *= sum[h];
    }
    for (int64_t h = 0; has_own && h < heads; ++h) weights.own[r * heads + h] *= sum[h];
  }
};

// grad_logits = weights * (grad - the sum of weights * grad over the target's edges and
// self-loop).
template <int64_t kHeads>
struct SoftmaxGradRows {
  EdgeRows edges;
  int64_t num_features;
  int64_t num_targets;
  OfEdgesAndOwn<const float> weights;
  OfEdgesAndOwn<const float> grad;
  OfEdgesAndOwn<float> grad_logits;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t heads = kHeads > 0 ? kHeads : num_features;
    const bool has_own = weights.own != nullptr;
    std::vector<float> of_head(heads);
    float* __restrict sum = of_head.data();
    for (int64_t r = begin; r < end; ++r) {
      const int64_t own = r * heads;
      if (r >= num_targets) {
        if (has_own) std::fill_n(grad_logits.own + own, heads, 0.0f);
        continue;
      }
      const int64_t first = edges.indptr[r] * heads, stop = edges.indptr[r + 1] * heads;
      for (int64_t h = 0; h < heads; ++h) {
        sum[h] = has_own ? weights.own[own + h] * grad.own[own + h] : 0.0f;
      }
      for (int64_t e = first; e < stop; e += heads) {
        for (int64_t h = 0; h < heads; ++h) sum[h] += weights.edges[e + h] * grad.edges[e + h];
      }
      for (int64_t e = first; e < stop; e += heads) {
        for (int64_t h = 0; h < heads; ++h) {
          grad_logits.edges[e + h] = weights.edges[e + h] * (grad.edges[e + h] - sum[h]);
        }
      }
      for (int64_t h = 0; has_own && h < heads; ++h) {
        grad_logits.own[own + h] = weights.own[own + h] * (grad.own[own + h] - sum[h]);
      }
    }
  }
};

// Runs a row kernel compiled for this number of heads, and writes zeros for padded edges.
template <template <int64_t> class Rows, typename... Arguments>
void RunHeads(const Executor& executor, const BlockView& block, int64_t num_heads,
              OfEdgesAndOwn<float> out, const Arguments&... arguments) {
  const EdgeRows edges = ByTarget(block);
  const auto run = [&](const auto& rows) { RunRows(executor, rows); };
  const int64_t targets = block.num_targets;
  switch (num_heads) {
    case 1:
      run(Rows<1>{edges, num_heads, targets, arguments..., out});
      break;
    case 4:
      run(Rows<4>{edges, num_heads, targets, arguments..., out});
      break;
    case 8:
      run(Rows<8>{edges, num_heads, targets, arguments..., out});
      break;
    default:
      run(Rows<0>{edges, num_heads, targets, arguments..., out});
  }
  std::fill(out.edges + block.num_edges * num_heads,
            out.edges + block.edge_capacity * num_heads, 0.0f);
}

}  // namespace

void EdgeSoftmax(const Executor& executor, const BlockView& block, int64_t num_heads,
                 OfEdgesAndOwn<const float> logits, OfEdgesAndOwn<float> weights) {
  RunHeads<SoftmaxRows>(executor, block, num_heads, weights, logits);
}

void EdgeSoftmaxGrad(const Executor& executor, const BlockView& block, int64_t num_heads,
                     OfEdgesAndOwn<const float> weights, OfEdgesAndOwn<const float> grad,
                     OfEdgesAndOwn<float> grad_logits) {
  RunHeads<SoftmaxGradRows>(executor, block, num_heads, grad_logits, weights, grad);
}

}  // namespace jgs
