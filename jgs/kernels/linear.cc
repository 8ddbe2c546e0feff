// Compiled with -ffp-contract=fast: a product and its addition are one instruction where the
// CPU has it, which is also the one place in the kernels where bits may differ between CPUs.
#include "linear.h"

#include <algorithm>

#include "isa.h"
#include "scratch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace jgs {
namespace {

#define JGS_TILE BaselineTile
#define JGS_TARGET
#define JGS_LANES 4
#include "linear_tile.inc"
#if defined(__x86_64__)
#define JGS_TILE Avx2Tile
#define JGS_TARGET __attribute__((target("avx2,fma")))
#define JGS_LANES 8
#include "linear_tile.inc"
#define JGS_TILE Avx512Tile
#define JGS_TARGET __attribute__((target("avx512f")))
#define JGS_LANES 16
#include "linear_tile.inc"
#endif

constexpr int64_t kRows = 192;      // rows at a time: they stay in the L2 cache
constexpr int64_t kDepth = 512;     // of the weights' rows, likewise
// The weights' gradients are summed in parts, each of at least so many chunks of rows.
constexpr int64_t kChunksPerPart = 6, kMostParts = 16;
constexpr int64_t kTileRows = 6;
constexpr int64_t kStreamed = 1 << 21;  // floats of a result too large for the caches

using Tile = void (*)(const float* a, int64_t row_step, int64_t step, const float* b,
                      int64_t b_width, int64_t depth, bool add, float* c, int64_t c_width);

// The tiles of one instruction set: for a number of vectors of columns, 6 rows, 2 and 1.
struct Tiles {
  int64_t lanes, vectors;  // floats a vector, and vectors of the widest tile
  Tile six[4], two[4], one[4];
};

#define JGS_ROW_TILES(tile, rows) {tile<rows, 1>, tile<rows, 2>, tile<rows, 3>, tile<rows, 4>}
#define JGS_TILES(tile, lanes, vectors) \
  {lanes, vectors, JGS_ROW_TILES(tile, 6), JGS_ROW_TILES(tile, 2), JGS_ROW_TILES(tile, 1)}

const Tiles& BestTiles() {
#if defined(__x86_64__)
  static const Tiles avx512 = JGS_TILES(Avx512Tile, 16, 4);
  static const Tiles avx2 = JGS_TILES(Avx2Tile, 8, 2);
  if (BestIsa() == Isa::kAvx512) return avx512;
  if (BestIsa() == Isa::kAvx2) return avx2;
#endif
  static const Tiles baseline = JGS_TILES(BaselineTile, 4, 2);
  return baseline;
}

// A matrix that is read by rows or, transposed, by columns.
struct Left {
  const float* data;
  int64_t row_step, step;
};

// c (+)= a b: a [rows, depth], b [depth, width], c [rows, width].
void Multiply(Left a, const float* b, int64_t rows, int64_t depth, int64_t width, bool add,
              float* c) {
  const Tiles& tiles = BestTiles();
  const int64_t columns = tiles.lanes * tiles.vectors;
  // The last columns, where they are no whole tile, in zero-padded copies.
  std::vector<float> b_tail;
  float c_tail[kTileRows * 64];
  for (int64_t j = 0; j < width; j += columns) {
    const int64_t real = std::min(columns, width - j);
    const int64_t vectors = (real + tiles.lanes - 1) / tiles.lanes;
    const bool whole = real == columns;
    if (!whole) {
      b_tail.assign(depth * columns, 0.0f);
      for (int64_t k = 0; k < depth; ++k) {
        std::copy_n(b + k * width + j, real, &b_tail[k * columns]);
      }
    }
    const auto run = [&](const Tile* tile, int64_t r, int64_t count) {
      const float* left = a.data + r * a.row_step;
      float* out = c + r * width + j;
      if (whole) {
        tile[vectors - 1](left, a.row_step, a.step, b + j, width, depth, add, out, width);
        return;
      }
      for (int64_t i = 0; add && i < count; ++i) {
        std::copy_n(out + i * width, real, c_tail + i * columns);
      }
      tile[vectors - 1](left, a.row_step, a.step, b_tail.data(), columns, depth, add, c_tail,
                        columns);
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(c_tail + i * columns, real, out + i * width);
      }
    };
    int64_t r = 0;
    for (; r + 6 <= rows; r += 6) run(tiles.six, r, 6);
    for (; r + 2 <= rows; r += 2) run(tiles.two, r, 2);
    if (r < rows) run(tiles.one, r, 1);
  }
}

// Copies past the caches what will not be read again soon.
void Stream(const float* from, int64_t size, float* to) {
#if defined(__x86_64__)
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    int64_t i = 0;
    for (; i + 4 <= size; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    std::copy(from + i, from + size, to + i);
    _mm_sfence();
    return;
  }
#endif
  std::copy_n(from, size, to);
}

// The finaliser lowbias32, as in jgs/ops/dropout.py.
JGS_INLINE inline uint32_t Mix(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// Applies `activation`, which is not nothing, to num_rows rows, of which `first` is the first.
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

// masked = what of the gradient passes the activation whose result is `out`.
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
  const bool streams = capacity * width >= kStreamed;
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
      for (int64_t k = 0; k < term.in; k += kDepth, more = true) {
        Multiply({term.x + begin * term.in + k, term.in, 1}, term.w + k * width, rows,
                 std::min(kDepth, term.in - k), width, more, sum);
      }
    }
    if (activation.relu) RunOn(BestIsa(), Activate{activation, begin, rows, width, sum});
    if (streams) Stream(sum, rows * width, out + begin * width);
    std::fill(out + real * width, out + end * width, 0.0f);
  });
}

void LinearGrad(const Executor& executor, const std::vector<GradTerm>& terms, const float* grad,
                const float* out, float scale, int64_t num_rows, int64_t width,
                float* grad_bias) {
  // Every part is a number of whole chunks; the first writes the results, the others are added.
  const int64_t chunks = (num_rows + kRows - 1) / kRows;
  const int64_t parts = std::clamp<int64_t>(chunks / kChunksPerPart, 1, kMostParts);
  std::vector<float*> result{grad_bias};
  std::vector<int64_t> start{0, width};  // where each result starts in a part's sums
  for (const GradTerm& term : terms) {
    result.push_back(term.grad_w);
    start.push_back(start.back() + term.in * width);
  }
  thread_local Scratch<float> caller_partial;
  Scratch<float>& partial = caller_partial;  // the caller's in every thread
  partial.Reserve((parts - 1) * start.back());
  ParallelFor(executor, parts, [&](int64_t part) {
    const auto sum = [&](size_t i) {
      return part == 0 ? result[i] : &partial[(part - 1) * start.back() + start[i]];
    };
    thread_local Scratch<float> masked;
    if (out != nullptr) masked.Reserve(kRows * width);
    const int64_t first = chunks * part / parts, last = chunks * (part + 1) / parts;
    std::fill_n(sum(0), width, 0.0f);
    if (first == last) {
      for (size_t i = 0; i < terms.size(); ++i) std::fill_n(sum(i + 1), terms[i].in * width, 0.0f);
    }
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kRows, rows = std::min(kRows, num_rows - begin);
      const float* passed = grad + begin * width;
      if (out != nullptr) {
        const float* result = out + begin * width;
        RunOn(BestIsa(), MaskGrad{passed, result, scale, rows * width, masked.data()});
        passed = masked.data();
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t u = 0; u < width; ++u) sum(0)[u] += passed[r * width + u];
      }
      for (size_t i = 0; i < terms.size(); ++i) {
        const int64_t in = terms[i].in;
        Multiply({terms[i].x + begin * in, 1, in}, passed, in, rows, width, chunk > first,
                 sum(i + 1));
      }
    }
  });
  if (parts == 1) return;
  constexpr int64_t kPiece = 1 << 12;
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t size = start[i + 1] - start[i];
    ParallelFor(executor, (size + kPiece - 1) / kPiece, [&](int64_t piece) {
      const int64_t begin = piece * kPiece, end = std::min(begin + kPiece, size);
      for (int64_t part = 1; part < parts; ++part) {
        const float* sum = &partial[(part - 1) * start.back() + start[i]];
        for (int64_t j = begin; j < end; ++j) result[i][j] += sum[j];
      }
    });
  }
}

}  // namespace jgs
