// Compiled with -ffp-contract=fast: a product and its addition become one instruction if the
// CPU has it. Only here and in the other files so compiled may bits differ between CPUs.
#include "product.h"

#include <algorithm>
#include <vector>

#include "isa.h"
#include "scratch.h"

namespace jgs {
namespace {

namespace baseline {
#define JGS_TARGET
#define JGS_LANES 4
#include "product_tile.inc"
}  // namespace baseline
#if defined(__x86_64__)
namespace avx2 {
#define JGS_TARGET __attribute__((target("avx2,fma")))
#define JGS_LANES 8
#include "product_tile.inc"
}  // namespace avx2
namespace avx512 {
#define JGS_TARGET __attribute__((target("avx512f")))
#define JGS_LANES 16
#include "product_tile.inc"
}  // namespace avx512
#endif

constexpr int64_t kTileRows = 6;
constexpr int64_t kBits = 64;  // of the depth at a time, where zeros are skipped
constexpr int64_t kSparseVectors = 8;

using Tile = void (*)(const float* a, int64_t row_step, int64_t step, const float* b,
                      int64_t b_width, int64_t depth, bool add, float* c, int64_t c_width);
using SparseTile = void (*)(const uint64_t* mask, const float* a, int64_t row_step, int64_t step,
                            const float* b, int64_t rows, bool add, float* c, int64_t c_width);

// The tiles of one instruction set, by number of vectors of columns, for 6 rows, for 2 and for
// 1.
struct Tiles {
  int64_t lanes, vectors;  // floats in a vector, and vectors in the widest tile
  Tile six[4], two[4], one[4];
  SparseTile sparse[kSparseVectors];
};

#define JGS_ROW_TILES(isa, rows) \
  {isa::Tile<rows, 1>, isa::Tile<rows, 2>, isa::Tile<rows, 3>, isa::Tile<rows, 4>}
#define JGS_TILES(isa, vectors)                                                      \
  {isa::kLanes, vectors, JGS_ROW_TILES(isa, 6), JGS_ROW_TILES(isa, 2), JGS_ROW_TILES(isa, 1), \
   {isa::SparseTile<1>, isa::SparseTile<2>, isa::SparseTile<3>, isa::SparseTile<4>,  \
    isa::SparseTile<5>, isa::SparseTile<6>, isa::SparseTile<7>, isa::SparseTile<8>}}

const Tiles& BestTiles() {
#if defined(__x86_64__)
  static const Tiles avx512_tiles = JGS_TILES(avx512, 4);
  static const Tiles avx2_tiles = JGS_TILES(avx2, 2);
  if (BestIsa() == Isa::kAvx512) return avx512_tiles;
  if (BestIsa() == Isa::kAvx2) return avx2_tiles;
#endif
  static const Tiles baseline_tiles = JGS_TILES(baseline, 2);
  return baseline_tiles;
}

// Sets bit k of mask[r] if a[r, k] is not 0, for depth <= kBits.
struct FindNonzeros {
  Left a;
  int64_t rows, depth;
  uint64_t* __restrict mask;

  JGS_INLINE void operator()() const {
    std::fill_n(mask, rows, uint64_t{0});
    if (a.row_step == 1) {
      for (int64_t k = 0; k < depth; ++k) {
        const float* __restrict column = a.data + k * a.step;
        const uint64_t bit = uint64_t{1} << k;
        for (int64_t r = 0; r < rows; ++r) mask[r] |= column[r] != 0.0f ? bit : 0;
      }
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = a.data + r * a.row_step;
      uint64_t bits = 0;
      for (int64_t k = 0; k < depth; ++k) {
        bits |= static_cast<uint64_t>(row[k * a.step] != 0.0f) << k;
      }
      mask[r] = bits;
    }
  }
};

struct CountNonzeros {
  const float* values;
  int64_t size;
  int32_t* count;

  JGS_INLINE void operator()() const {
    int32_t nonzero = 0;
    for (int64_t i = 0; i < size; ++i) nonzero += values[i] != 0.0f;
    *count = nonzero;
  }
};

}  // namespace

void Multiply(Left a, const float* b, int64_t rows, int64_t depth, int64_t width, bool add,
              float* c) {
  const Tiles& tiles = BestTiles();
  const int64_t columns = tiles.lanes * tiles.vectors;
  // The last columns, if they do not fill a tile, in zero-padded copies.
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

void MultiplySparse(Left a, const float* b, int64_t rows, int64_t depth, int64_t width,
                    bool add, float* c, int64_t c_width) {
  const Tiles& tiles = BestTiles();
  const int64_t vectors = (width + tiles.lanes - 1) / tiles.lanes;
  const int64_t slices = (vectors + kSparseVectors - 1) / kSparseVectors;
  thread_local Scratch<uint64_t> mask;
  thread_local Scratch<float> packed;  // a slice of b, which stays in the first-level cache
  mask.Reserve(rows);
  packed.Reserve(kBits * kSparseVectors * tiles.lanes);
  for (int64_t k = 0; k < depth; k += kBits, add = true) {
    const int64_t deep = std::min(kBits, depth - k);
    const Left some{a.data + k * a.step, a.row_step, a.step};
    RunOn(BestIsa(), FindNonzeros{some, rows, deep, mask.data()});
    for (int64_t slice = 0; slice < slices; ++slice) {
      const int64_t first = vectors * slice / slices, last = vectors * (slice + 1) / slices;
      const int64_t j = first * tiles.lanes, columns = (last - first) * tiles.lanes;
      const int64_t real = std::min(columns, width - j);
      for (int64_t i = 0; i < deep; ++i) {
        float* row = &packed[i * columns];
        std::copy_n(b + (k + i) * width + j, real, row);
        std::fill(row + real, row + columns, 0.0f);
      }
      tiles.sparse[last - first - 1](mask.data(), some.data, a.row_step, a.step, packed.data(),
                                     rows, add, c + j, c_width);
    }
  }
}

bool IsSparse(const float* values, int64_t size) {
  int32_t nonzero = 0;
  RunOn(BestIsa(), CountNonzeros{values, size, &nonzero});
  return nonzero < size / 5 * 3;
}

}  // namespace jgs
