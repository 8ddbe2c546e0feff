#include "edge_inner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "flush.h"
#include "isa.h"

namespace jgs {
namespace {

constexpr int64_t kLanes = 8, kGroup = 32;  // the partial sums, and the products that share them
constexpr int64_t kEdges = 1 << 13;         // that a thread takes at a time
constexpr int64_t kAhead = 8;               // edges before its use that a row is prefetched
constexpr int kBits = 30;

// Adds the products of [first, end), at most kGroup of them.
JGS_INLINE inline double Group(const float* left, const double* right, int64_t first, int64_t end) {
  double lanes[kLanes] = {};
  int64_t f = first;
  for (; f + kLanes <= end; f += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] += left[f + i] * right[f + i];
  }
  for (int64_t i = 0; f < end; ++i, ++f) lanes[i] += left[f] * right[f];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

JGS_INLINE inline void InnerOf(const EdgeFactors& of, int64_t begin, int64_t end, double* own,
                               float* products) {
  const int64_t size = of.heads * of.width;
  int32_t last = -1;
  for (int64_t e = begin; e < end; ++e) {
    if (e + kAhead < end) {
      const float* next = of.left + of.row[e + kAhead] * size;
      for (int64_t f = 0; f < size; f += 16) __builtin_prefetch(next + f, 0, 2);
    }
    if (of.column[e] != last) {
      last = of.column[e];
      std::copy_n(of.right + last * size, size, own);
    }
    const float* left = of.left + of.row[e] * size;
    for (int64_t h = 0; h < of.heads; ++h) {
      double total = 0;
      const int64_t stop = (h + 1) * of.width;
      for (int64_t f = h * of.width; f < stop; f += kGroup) {
        total += Group(left, own, f, std::min(f + kGroup, stop));
      }
      products[e * of.heads + h] = static_cast<float>(total);
    }
  }
}

constexpr int64_t kRows = 4, kColumns = 32;  // that are summed in registers
constexpr int64_t kChunk = 64;               // rows that a thread takes at a time

struct ProjectRows {
  const Projection& of;
  const double* weight;  // [num_features, width]
  float* product;

  // `kHeight` of the `rows`, which are those `at` of the product, and `kWidth` columns from
  // `column` on.
  template <int64_t kHeight, int64_t kWidth>
  JGS_INLINE void Tile(const float* const* rows, const int64_t* at, int64_t column) const {
    double sums[kHeight][kWidth] = {};
    for (int64_t f = 0; f < of.num_features; ++f) {
      const double* __restrict w = weight + f * of.width + column;
      for (int64_t r = 0; r < kHeight; ++r) {
        const double x = rows[r][f];
        for (int64_t c = 0; c < kWidth; ++c) sums[r][c] += x * w[c];
      }
    }
    for (int64_t r = 0; r < kHeight; ++r) {
      for (int64_t c = 0; c < kWidth; ++c) {
        product[at[r] * of.width + column + c] = static_cast<float>(sums[r][c]);
      }
    }
  }

  template <int64_t kHeight>
  JGS_INLINE void Strip(const float* const* rows, const int64_t* at) const {
    int64_t column = 0;
    for (; column + kColumns <= of.width; column += kColumns) {
      Tile<kHeight, kColumns>(rows, at, column);
    }
    for (; column + 8 <= of.width; column += 8) Tile<kHeight, 8>(rows, at, column);
    for (; column < of.width; ++column) Tile<kHeight, 1>(rows, at, column);
  }

  // At most kChunk rows. Those of no nodes cost no product.
  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const float* rows[kChunk];
    int64_t at[kChunk], num = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = of.nodes[i];
      if (node < 0 || node >= of.num_nodes) {
        std::fill_n(product + i * of.width, of.width, 0.0f);
        continue;
      }
      rows[num] = of.features + node * of.num_features;
      for (int64_t f = 0; f < of.num_features; f += 16) __builtin_prefetch(rows[num] + f, 0, 2);
      at[num++] = i;
    }
    int64_t i = 0;
    for (; i + kRows <= num; i += kRows) Strip<kRows>(rows + i, at + i);
    for (; i < num; ++i) Strip<1>(rows + i, at + i);
  }
};

bool Usable(float weight) { return weight > 0 && weight < INFINITY; }

// The least e with value < 2^e; -126 for 0.
int Exponent(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<int>(bits >> 23) - 126;
}

}  // namespace

void EdgeInner(const EdgeFactors& factors, int64_t num_edges, float* products,
               const Executor& executor) {
  ParallelFor(executor, (num_edges + kEdges - 1) / kEdges, [&](int64_t chunk) {
    const FlushSubnormals flush;
    std::vector<double> own(factors.heads * factors.width);
    const int64_t begin = chunk * kEdges, end = std::min(begin + kEdges, num_edges);
    RunOn(BestIsa(), [&]() JGS_INLINE { InnerOf(factors, begin, end, own.data(), products); });
  });
}

void Project(const Projection& of, float* product, const Executor& executor) {
  const FlushSubnormals flush;
  const std::vector<double> weight(of.weight, of.weight + of.num_features * of.width);
  int64_t rows = of.num_rows;
  while (rows > 0 && (of.nodes[rows - 1] < 0 || of.nodes[rows - 1] >= of.num_nodes)) --rows;
  const ProjectRows kernel{of, weight.data(), product};
  ParallelFor(executor, (rows + kChunk - 1) / kChunk, [&](int64_t chunk) {
    const FlushSubnormals flush;
    const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, rows);
    RunOn(BestIsa(), [&]() JGS_INLINE { kernel.Run(begin, end); });
  });
  if (of.width == 1) std::fill(product + rows, product + of.num_rows, 0.0f);
}

bool RunningWeights(const float* weight, const int32_t* indptr, int64_t num_columns,
                    int64_t* running, const Executor& executor) {
  std::atomic<bool> bad{false};
  const int64_t num_edges = indptr[num_columns];
  // The first column that begins at or after the chunk's first edge.
  const auto first = [&](int64_t chunk) {
    const int64_t edge = std::min(chunk * kEdges, num_edges);
    return std::lower_bound(indptr, indptr + num_columns, edge) - indptr;
  };
  const int64_t num_chunks = (num_edges + kEdges - 1) / kEdges;
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const FlushSubnormals flush;
    const int64_t end = chunk + 1 == num_chunks ? num_columns : first(chunk + 1);
    bool wrong = false;
    for (int64_t c = first(chunk); c < end; ++c) {
      float largest = 0;
      for (int64_t e = indptr[c]; e < indptr[c + 1]; ++e) {
        const bool usable = Usable(weight[e]);
        largest = std::max(largest, usable ? weight[e] : 0.0f);
        wrong |= !usable && weight[e] != 0;
      }
      const double scale = std::ldexp(1.0, kBits - Exponent(largest));
      int64_t total = 0;
      for (int64_t e = indptr[c]; e < indptr[c + 1]; ++e) {
        if (Usable(weight[e])) {
          total += std::max<int64_t>(std::llrint(weight[e] * scale), 1);
        }
        running[e] = total;
      }
    }
    if (wrong) bad.store(true, std::memory_order_relaxed);
  });
  return bad;
}

}  // namespace jgs
