#include "skipgram.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "isa.h"
#include "scratch.h"

namespace jgs {
namespace {

// The product of this number of factors, each at most 2, in 8 lanes fits in a double.
constexpr int64_t kFactors = 64;
constexpr int64_t kWhole = 8;     // rows and lists of scores are padded to a multiple of this

// A row in a sum of rows, and its factor.
struct Term {
  const float* row;
  float scale;
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

struct Arithmetic {
  decltype(&baseline::Score) score;
  decltype(&baseline::AddTerms) add;
  decltype(&baseline::Slopes) slopes;
};

Arithmetic Best() {
#if defined(__x86_64__)
  if (BestIsa() >= Isa::kAvx2) return {avx2::Score, avx2::AddTerms, avx2::Slopes};
#endif
  return {baseline::Score, baseline::AddTerms, baseline::Slopes};
}

int64_t Padded(int64_t n) { return (n + kWhole - 1) / kWhole * kWhole; }

// The memory in which one walk is computed. A thread keeps it from walk to walk.
struct Workspace {
  int64_t width, reach, num_far;
  // Rows of `width` floats: [T + 8], [T + 8] and [C, num_far].
  float *centers, *contexts, *negatives;
  float *far;                 // [T, num_far]: the slopes of each center with its negatives
  float *near, *counted, *ones, *real;  // [.., .., num_far, T + 8]
  Term *terms;                // [2 * reach + num_far]
  Term *of_contexts;          // [T, 2 * reach]: the centers that each context is near
  int32_t *num_centers;       // [T]: the number of these centers

  Workspace(const WalkPairs& p, int64_t widest)
      : width(Padded(p.width)),
        reach(std::min(widest, p.num_places)),
        num_far(Padded(p.num_negatives)) {
    thread_local Scratch<float> floats;
    thread_local Scratch<Term> lists;
    thread_local Scratch<int32_t> integers;
    const int64_t rows = (p.num_places + kWhole) * width, band = Padded(2 * reach + kWhole);
    const int64_t far_rows = p.num_runs * num_far * width;
    floats.Reserve(2 * rows + far_rows + p.num_places * num_far + 2 * band + num_far +
                   p.num_places + kWhole);
    float* next = floats.data();
    const auto take = [&next](int64_t size) { return std::exchange(next, next + size); };
    centers = take(rows);
    contexts = take(rows);
    negatives = take(far_rows);
    far = take(p.num_places * num_far);
    near = take(band);
    counted = take(band);
    ones = take(num_far);
    real = take(p.num_places + kWhole);
    lists.Reserve(2 * reach + num_far + p.num_places * 2 * reach + p.run_size());
    terms = lists.data();
    of_contexts = terms + 2 * reach + num_far + p.run_size();
    integers.Reserve(p.num_places);
    num_centers = integers.data();
  }
};

// Copies `count` rows, without their last float, to rows of `width` floats, padded with zeros.
void CopyRows(const float* rows, int64_t count, int64_t given, int64_t width, float* out) {
  for (int64_t i = 0; i < count; ++i, rows += given + 1, out += width) {
    std::copy_n(rows, given, out);
    std::fill(out + given, out + width, 0.0f);
  }
}

void OneWalk(const WalkPairs& p, int64_t walk, float* gradient, float* sums) {
  const Arithmetic with = Best();
  const int64_t places = p.num_places, stride = p.width + 1, size = p.run_size();
  const int32_t* nodes = p.nodes + walk * places;
  const int32_t* windows = p.windows + walk * places;
  const int64_t first_context = (p.num_walks + walk) * places;
  const int64_t first_negative =
      2 * p.num_walks * places + walk * p.num_runs * p.num_negatives;
  const Workspace w(p, std::max(0, *std::max_element(windows, windows + places)));
  const int64_t width = w.width, kept = places + kWhole;
  CopyRows(p.rows + walk * places * stride, places, p.width, width, w.centers);
  CopyRows(p.rows + first_context * stride, places, p.width, width, w.contexts);
  std::fill(w.contexts + places * width, w.contexts + kept * width, 0.0f);
  for (int64_t run = 0; run < p.num_runs; ++run) {
    float* own = w.negatives + run * w.num_far * width;
    CopyRows(p.rows + (first_negative + run * p.num_negatives) * stride, p.num_negatives, p.width,
             width, own);
    std::fill(own + p.num_negatives * width, own + w.num_far * width, 0.0f);
  }
  std::fill(w.ones, w.ones + p.num_negatives, 1.0f);
  std::fill(w.ones + p.num_negatives, w.ones + w.num_far, 0.0f);
  std::fill(w.num_centers, w.num_centers + places, 0);
  for (int64_t i = 0; i < kept; ++i) {
    w.real[i] = i < places && nodes[i] >= 0 && nodes[i] < p.num_nodes ? 1.0f : 0.0f;
  }
  const auto write = [&](const Term* terms, int64_t count, float pairs, int64_t row) {
    float* out = gradient + row * stride;
    with.add(terms, count, p.width, p.rate, out);
    out[p.width] = p.rate * pairs;
  };
  double loss = 0.0, num_pairs = 0.0;
  for (int64_t run = 0; run < p.num_runs; ++run) {
    const int64_t begin = run * size, end = std::min(places, begin + size);
    const float* negatives = w.negatives + run * w.num_far * width;
    float drawn = 0.0f;
    for (int64_t i = begin; i < end; ++i) {
      const float* center = w.centers + i * width;
      const int64_t window = std::max(windows[i], 0), low = std::max<int64_t>(0, i - window);
      const int64_t high = std::min(places, i + window + 1), n = Padded(high - low);
      float count = 0.0f;
      if (w.real[i] != 0.0f) {
        std::copy(w.real + low, w.real + high, w.counted);
        std::fill(w.counted + (high - low), w.counted + n, 0.0f);
        w.counted[i - low] = 0.0f;
        count = std::accumulate(w.counted, w.counted + n, 0.0f);
      }
      float* far = w.far + i * w.num_far;
      Term* term = w.terms;
      if (count > 0.0f) {
        std::fill(w.near + (high - low), w.near + n, 0.0f);
        with.score(center, w.contexts + low * width, high - low, width, w.near);
        loss += with.slopes(w.near, w.counted, n, true, 1.0f);
        for (int64_t j = low; j < high; ++j) {
          if (w.counted[j - low] == 0.0f) continue;
          const float slope = w.near[j - low];
          *term++ = {w.contexts + j * width, slope};
          w.of_contexts[j * 2 * w.reach + w.num_centers[j]++] = {center, slope};
        }
        const float each = count * (p.weight / static_cast<float>(p.num_negatives));
        with.score(center, negatives, w.num_far, width, far);
        loss += with.slopes(far, w.ones, w.num_far, false, each);
        for (int64_t k = 0; k < p.num_negatives; ++k) *term++ = {negatives + k * width, far[k]};
        drawn += each;
      } else {
        std::fill(far, far + w.num_far, 0.0f);
      }
      num_pairs += count;
      write(w.terms, term - w.terms, count * (1.0f + p.weight),
            walk * places + i);
    }
    for (int64_t k = 0; k < p.num_negatives; ++k) {
      for (int64_t i = begin; i < end; ++i) {
        w.terms[i - begin] = {w.centers + i * width, w.far[i * w.num_far + k]};
      }
      write(w.terms, std::max<int64_t>(0, end - begin), drawn,
            first_negative + run * p.num_negatives + k);
    }
  }
  for (int64_t j = 0; j < places; ++j) {
    write(w.of_contexts + j * 2 * w.reach, w.num_centers[j],
          static_cast<float>(w.num_centers[j]), first_context + j);
  }
  sums[2 * walk] = static_cast<float>(loss);
  sums[2 * walk + 1] = static_cast<float>(num_pairs);
}

}  // namespace

void Skipgram(const Executor& executor, const WalkPairs& pairs, float* gradient, float* sums) {
  ParallelFor(executor, pairs.num_walks,
              [&](int64_t walk) { OneWalk(pairs, walk, gradient, sums); });
}

}  // namespace jgs
