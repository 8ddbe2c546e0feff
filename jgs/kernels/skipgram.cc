#include "skipgram.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "isa.h"

namespace jgs {
namespace {

constexpr int64_t kFactors = 512;  // each at most 2: a double holds their product

// What one walk is computed in: rows padded with zeros to a multiple of 16 floats, and places and
// negatives to a few more.
struct Workspace {
  int64_t places, width, num_far, reach, near_stride;
  float *centers, *contexts, *far, *by_centers, *by_contexts, *by_far, *near, *far_scores;

  // In `memory`, which a thread keeps from walk to walk.
  Workspace(const WalkPairs& p, int64_t widest, std::vector<float>& memory)
      : places(p.num_places),
        width((p.width + 15) / 16 * 16),
        num_far((p.num_negatives + 3) / 4 * 4),
        reach(std::min(widest, p.num_places)),
        // Scores (i, j) are kept for |i - j| <= reach + 7: at i * stride + j rows do not overlap.
        near_stride(2 * reach + 15) {
    const int64_t rows = (places + 8) * width, far_rows = num_far * width;
    const int64_t band = (places + 8) * (near_stride + 1) + near_stride;
    memory.assign(4 * rows + 2 * far_rows + band + (places + 8) * num_far, 0.0f);
    float* next = memory.data();
    for (float** part : {&centers, &contexts, &by_centers, &by_contexts}) {
      *part = next;
      next += rows;
    }
    for (float** part : {&far, &by_far}) {
      *part = next;
      next += far_rows;
    }
    near = next;
    far_scores = near + band;
  }

  // Of the center at place i: its score with the context at place j, and with negative k.
  float* Near(int64_t i, int64_t j) const { return near + i * near_stride + j; }
  float* Far(int64_t i, int64_t k) const { return far_scores + i * num_far + k; }
};

#if defined(__x86_64__)
namespace avx2 {
#define JGS_TARGET __attribute__((target("avx2,fma")))
#include "skipgram_walk.inc"
}  // namespace avx2
#endif
namespace baseline {
#define JGS_TARGET
#include "skipgram_walk.inc"
}  // namespace baseline

void Products(const Workspace& w) {
#if defined(__x86_64__)
  if (BestIsa() >= Isa::kAvx2) return avx2::Products(w);
#endif
  baseline::Products(w);
}

void Gradients(const Workspace& w) {
#if defined(__x86_64__)
  if (BestIsa() >= Isa::kAvx2) return avx2::Gradients(w);
#endif
  baseline::Gradients(w);
}

// exp(x) for x <= 0, to about 2e-7 of it, without a call: loops over it use vectors.
JGS_INLINE inline float ExpOfNegative(float x) {
  const float t = std::max(x, -87.0f) * 1.44269504f;
  const float whole = static_cast<float>(static_cast<int32_t>(t - 0.5f));
  const float y = (t - whole) * 0.693147181f;  // in [-0.35, 0.35]
  const float p = 1.0f + y * (1.0f + y * (0.5f + y * (0.166666667f + y * (0.0416666667f + y *
                  (0.00833333333f + y * 0.00138888889f)))));
  union {
    int32_t bits;
    float value;
  } power = {(static_cast<int32_t>(whole) + 127) << 23};
  return p * power.value;
}

// Of `n` scores: makes each the slope of its loss, `scale * (sigmoid(score) - label)`, and returns
// the sum of the losses `scale * softplus(label ? -score : score)`.
JGS_INLINE inline double Slopes(float* scores, float* tails, int64_t n, bool label, float scale) {
  const float sign = label ? -1.0f : 1.0f;
  double linear = 0.0, logs = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    const float z = sign * scores[i], e = ExpOfNegative(-std::fabs(z));
    tails[i] = e;
    scores[i] = z;
  }
  for (int64_t begin = 0; begin < n; begin += kFactors) {
    double products[4] = {1.0, 1.0, 1.0, 1.0}, sums[4] = {};  // chains that do not wait
    const int64_t end = std::min(n, begin + kFactors);
    for (int64_t i = begin; i < end; ++i) {
      products[i % 4] *= 1.0 + tails[i];
      sums[i % 4] += std::max(scores[i], 0.0f);
    }
    logs += std::log((products[0] * products[1]) * (products[2] * products[3]));
    linear += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  for (int64_t i = 0; i < n; ++i) {
    const float share = 1.0f / (1.0f + tails[i]);
    scores[i] = sign * scale * (scores[i] >= 0.0f ? share : tails[i] * share);
  }
  return scale * (linear + logs);
}

void OneWalk(const WalkPairs& p, int64_t walk, float* grad_rows, float* grad_negatives,
             float* sums) {
  const int64_t stride = p.stride(), width = p.width, places = p.num_places;
  const int64_t num_negatives = p.num_negatives;
  const int32_t* nodes = p.nodes + walk * places;
  const int32_t* windows = p.windows + walk * places;
  const float* rows = p.rows + walk * places * stride;
  const float* negatives = p.negatives + walk * num_negatives * stride;
  thread_local std::vector<float> memory;
  const int64_t widest = std::max(0, *std::max_element(windows, windows + places));
  const Workspace w(p, widest, memory);
  for (int64_t i = 0; i < places; ++i) {
    std::copy_n(rows + i * stride, width, w.centers + i * w.width);
    std::copy_n(rows + i * stride + width, width, w.contexts + i * w.width);
  }
  for (int64_t k = 0; k < num_negatives; ++k) {
    std::copy_n(negatives + k * stride + width, width, w.far + k * w.width);
  }
  Products(w);
  const auto real = [&](int64_t i) { return nodes[i] >= 0 && nodes[i] < p.num_nodes; };
  std::vector<float> room(2 * std::max(places, num_negatives));
  float *scores = room.data(), *tails = scores + room.size() / 2;
  std::vector<float> counts(places), met(places);
  double loss = 0.0, pairs = 0.0, drawn = 0.0;
  const Isa isa = std::min(BestIsa(), Isa::kAvx2);
  for (int64_t i = 0; i < places; ++i) {
    const auto in_window = [&](int64_t j) {
      return j < places && j != i && std::llabs(i - j) <= windows[i] && real(i) && real(j);
    };
    // What was scored beside the window, in blocks, is no pair.
    const int64_t begin = std::max<int64_t>(0, i - w.reach - 4);
    const int64_t end = std::min(places + 4, i + w.reach + 5);
    int64_t count = 0;
    for (int64_t j = begin; j < end; ++j) {
      if (in_window(j)) scores[count++] = *w.Near(i, j);
    }
    RunOn(isa, [&]() JGS_INLINE { loss += Slopes(scores, tails, count, true, 1.0f); });
    count = 0;
    for (int64_t j = begin; j < end; ++j) {
      const bool pair = in_window(j);
      *w.Near(i, j) = pair ? scores[count] : 0.0f;
      count += pair;
      if (pair) met[j] += 1.0f;
    }
    const float each = static_cast<float>(count) * (p.weight / static_cast<float>(num_negatives));
    RunOn(isa, [&]() JGS_INLINE {
      loss += Slopes(w.Far(i, 0), tails, num_negatives, false, each);
    });
    counts[i] = static_cast<float>(count) * (1.0f + p.weight);
    pairs += static_cast<double>(count);
    drawn += each;
  }
  Gradients(w);
  for (int64_t i = 0; i < places; ++i) {
    float* grad = grad_rows + (walk * places + i) * stride;
    std::copy_n(w.by_centers + i * w.width, width, grad);
    std::copy_n(w.by_contexts + i * w.width, width, grad + width);
    grad[2 * width] = counts[i];
    grad[2 * width + 1] = met[i];
  }
  for (int64_t k = 0; k < num_negatives; ++k) {
    float* grad = grad_negatives + (walk * num_negatives + k) * stride;
    std::fill_n(grad, width, 0.0f);
    std::copy_n(w.by_far + k * w.width, width, grad + width);
    grad[2 * width] = 0.0f;
    grad[2 * width + 1] = static_cast<float>(drawn);
  }
  sums[2 * walk] = static_cast<float>(loss);
  sums[2 * walk + 1] = static_cast<float>(pairs);
}

}  // namespace

void Skipgram(const Executor& executor, const WalkPairs& pairs, float* grad_rows,
              float* grad_negatives, float* sums) {
  ParallelFor(executor, pairs.num_walks, [&](int64_t walk) {
    OneWalk(pairs, walk, grad_rows, grad_negatives, sums);
  });
}

}  // namespace jgs
