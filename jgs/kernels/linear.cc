// Compiled with -ffp-contract=fast: a product and its addition become one instruction if the
// CPU has it. Only here and in the other files so compiled may bits differ between CPUs.
#include "linear.h"

#include <algorithm>

#include "isa.h"
#include "product.h"
#include "scratch.h"
#include "stream.h"

namespace jgs {
namespace {

constexpr int64_t kRows = 192;      // rows at a time, which stay in the L2 cache
constexpr int64_t kDepth = 512;     // rows of the weights at a time, which stay there too
// The weights' gradients are summed in parts, each of at least this number of chunks of rows.
constexpr int64_t kChunksPerPart = 6, kMostParts = 16;
constexpr int64_t kStreamed = 1 << 21;  // floats of a result too large for the caches

// The finaliser lowbias32, as in jgs/ops/linear.py.
JGS_INLINE inline uint32_t Mix(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// Applies `activation`, which must not be empty, to num_rows rows, beginning with row `first`.
struct Activate {
  const Activation& activation;
  int64_t first, num_rows, width;
  float* out;

  JGS_INLINE void operator()() const {
    constexpr uint32_t kGolden = 0x9E3779B9u;
    for (int64_t r = 0; r < num_rows; ++r) {
      float* __restrict row = out + r * width;
      if (activation.low == nullptr) {
        for (int64_t u = 0; u < width; ++u) row[u] = row[u] <= 0.0f ? 0.0f : row[u];
        continue;
      }
      const uint32_t low = activation.low[first + r], high = activation.high[first + r];
      const uint32_t threshold = activation.threshold;
      const float scale = activation.scale;
      for (int64_t u = 0; u < width; ++u) {
        const uint32_t bits = Mix(Mix(static_cast<uint32_t>(u) * kGolden + low) ^ high);
        const float scaled = row[u] * scale;
        row[u] = (row[u] <= 0.0f) | (bits < threshold) ? 0.0f : scaled;
      }
    }
  }
};

// masked = the part of the gradient that passes the activation whose result is `out`.
struct MaskGrad {
  const float* __restrict grad;
  const float* __restrict out;
  float scale;
  int64_t size;
  float* __restrict masked;

  JGS_INLINE void operator()() const {
    for (int64_t i = 0; i < size; ++i) {
      const float scaled = grad[i] * scale;
      masked[i] = out[i] == 0.0f ? 0.0f : scaled;
    }
  }
};

}  // namespace

void Linear(const Executor& executor, const std::vector<Term>& terms, const float* bias,
            const float* add, const Activation& activation, int64_t num_rows, int64_t capacity,
            int64_t width, float* out) {
  const bool streams = capacity * width >= kStreamed && CanStream(out, width);
  ParallelFor(executor, (capacity + kRows - 1) / kRows, [&](int64_t chunk) {
    const int64_t begin = chunk * kRows, end = std::min(begin + kRows, capacity);
    const int64_t real = std::max(begin, std::min(end, num_rows)), rows = real - begin;
    thread_local Scratch<float> scratch;
    float* sum = out + begin * width;
    if (streams) {
      scratch.Reserve(kRows * width);
      sum = scratch.data();
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* row = sum + r * width;
      if (add != nullptr) {
        const float* added = add + (begin + r) * width;
        for (int64_t u = 0; u < width; ++u) row[u] = added[u] + (bias ? bias[u] : 0.0f);
      } else if (bias != nullptr) {
        std::copy_n(bias, width, row);
      }
    }
    bool more = bias != nullptr || add != nullptr;
    for (const Term& term : terms) {
      const float* x = term.x + begin * term.in;
      if (width % kPadding == 0 && IsSparse(x, rows * term.in)) {
        MultiplySparse({x, term.in, 1}, term.w, rows, term.in, width, more, sum, width);
        more = true;
        continue;
      }
      for (int64_t k = 0; k < term.in; k += kDepth, more = true) {
        Multiply({x + k, term.in, 1}, term.w + k * width, rows, std::min(kDepth, term.in - k),
                 width, more, sum);
      }
    }
    if (activation.relu) RunOn(BestIsa(), Activate{activation, begin, rows, width, sum});
    if (streams) {
      Stream(sum, rows * width, out + begin * width);
      EndStream();
    }
    std::fill(out + real * width, out + end * width, 0.0f);
  });
}

void LinearGrad(const Executor& executor, const std::vector<GradTerm>& terms, const float* grad,
                const float* out, float scale, int64_t num_rows, int64_t width,
                float* grad_bias) {
  // Every part is a number of whole chunks. With an activation most of the masked gradient is
  // 0. The sums are then [width, in], and an input row is added only for units with a gradient.
  const bool sparse = out != nullptr;
  const int64_t chunks = (num_rows + kRows - 1) / kRows;
  const int64_t parts = std::clamp<int64_t>(chunks / kChunksPerPart, 1, kMostParts);
  std::vector<int64_t> start{width};  // where each term's sums start, after the bias's
  for (const GradTerm& term : terms) {
    start.push_back(start.back() + width * (sparse ? PaddedWidth(term.in) : term.in));
  }
  const int64_t size = start.back();
  thread_local Scratch<float> caller_sums;
  Scratch<float>& sums = caller_sums;  // the caller's memory, in every thread
  sums.Reserve(parts * size);
  ParallelFor(executor, parts, [&](int64_t part) {
    float* sum = &sums[part * size];
    thread_local Scratch<float> masked;
    if (sparse) masked.Reserve(kRows * width);
    const int64_t first = chunks * part / parts, last = chunks * (part + 1) / parts;
    std::fill_n(sum, first == last ? size : width, 0.0f);
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kRows, rows = std::min(kRows, num_rows - begin);
      const float* passed = grad + begin * width;
      if (sparse) {
        const float* result = out + begin * width;
        RunOn(BestIsa(), MaskGrad{passed, result, scale, rows * width, masked.data()});
        passed = masked.data();
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t u = 0; u < width; ++u) sum[u] += passed[r * width + u];
      }
      for (size_t i = 0; i < terms.size(); ++i) {
        const int64_t in = terms[i].in;
        const float* x = terms[i].x + begin * in;
        if (sparse) {
          MultiplySparse({passed, 1, width}, x, width, rows, in, chunk > first, sum + start[i],
                         PaddedWidth(in));
        } else {
          Multiply({x, 1, in}, passed, in, rows, width, chunk > first, sum + start[i]);
        }
      }
    }
  });
  constexpr int64_t kPiece = 1 << 12;
  ParallelFor(executor, (size + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece, end = std::min(begin + kPiece, size);
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t j = begin; j < end; ++j) sums[j] += sums[part * size + j];
    }
  });
  std::copy_n(sums.data(), width, grad_bias);
  ParallelFor(executor, terms.size(), [&](int64_t i) {
    const GradTerm& term = terms[i];
    const float* sum = &sums[start[i]];
    if (!sparse) std::copy_n(sum, term.in * width, term.grad_w);
    for (int64_t k = 0; sparse && k < term.in; ++k) {
      for (int64_t u = 0; u < width; ++u) {
        term.grad_w[k * width + u] = sum[u * PaddedWidth(term.in) + k];
      }
    }
  });
}

}  // namespace jgs
