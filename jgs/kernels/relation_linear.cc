// Compiled with -ffp-contract=fast, as linear.cc is.
#include "relation_linear.h"

#include <algorithm>
#include <vector>

#include "product.h"
#include "scratch.h"

namespace jgs {
namespace {

constexpr int64_t kRows = 192;  // rows at a time, which stay in the L2 cache
// The derivative is summed in parts: a relation's rows are cut where a part has this many.
constexpr int64_t kLeastPart = 1 << 10, kMostParts = 16;

// A stretch of rows of one relation.
struct Stretch {
  int64_t relation, first, last;
};

// The real rows, relation by relation, in stretches of at most `most` rows.
std::vector<Stretch> Stretches(const Tiles& tiles, int64_t most) {
  std::vector<Stretch> found;
  for (int64_t first = 0; first < tiles.num_rows; first += tiles.tile) {
    const int64_t relation = tiles.relation[first / tiles.tile];
    const int64_t last = std::min(first + tiles.tile, tiles.num_rows);
    if (!found.empty() && found.back().relation == relation &&
        last - found.back().first <= most) {
      found.back().last = last;
    } else {
      found.push_back({relation, first, last});
    }
  }
  return found;
}

}  // namespace

std::string CheckTiles(const Tiles& tiles) {
  int64_t before = 0;
  for (int64_t i = 0; i * tiles.tile < tiles.num_rows; ++i) {
    if (tiles.relation[i] < before || tiles.relation[i] >= tiles.num_relations) {
      return "the relations of the tiles must ascend in [0, " +
             std::to_string(tiles.num_relations) + "), not " +
             std::to_string(tiles.relation[i]) + " in tile " + std::to_string(i);
    }
    before = tiles.relation[i];
  }
  return "";
}

void RelationLinear(const Executor& executor, const Tiles& tiles, const float* x,
                    const float* w, float* y) {
  const int64_t blocks = tiles.num_blocks, in = tiles.in, out = tiles.out;
  const std::vector<Stretch> parts = Stretches(tiles, std::max(kRows, tiles.tile));
  ParallelFor(executor, parts.size(), [&](int64_t part) {
    const auto [relation, first, last] = parts[part];
    const int64_t rows = last - first;
    float* result = y + first * blocks * out;
    thread_local Scratch<float> scratch;
    if (blocks > 1) scratch.Reserve(rows * out);
    for (int64_t b = 0; b < blocks; ++b) {
      float* product = blocks > 1 ? scratch.data() : result;
      Multiply({x + (first * blocks + b) * in, blocks * in, 1},
               w + (relation * blocks + b) * in * out, rows, in, out, false, product);
      for (int64_t r = 0; blocks > 1 && r < rows; ++r) {
        std::copy_n(product + r * out, out, result + (r * blocks + b) * out);
      }
    }
  });
  const int64_t size = tiles.capacity * blocks * out;
  std::fill(y + tiles.num_rows * blocks * out, y + size, 0.0f);
}

void RelationLinearGrad(const Executor& executor, const Tiles& tiles, const float* x,
                        const float* grad, float* grad_w) {
  const int64_t blocks = tiles.num_blocks, in = tiles.in, out = tiles.out;
  const int64_t size = blocks * in * out;
  const int64_t most = std::max(kLeastPart, tiles.num_rows / kMostParts + 1);
  const std::vector<Stretch> parts = Stretches(tiles, most);
  // The first part of a relation is summed in its place, the others beside it.
  const auto is_first = [&](int64_t part) {
    return part == 0 || parts[part - 1].relation != parts[part].relation;
  };
  std::vector<int64_t> beside(parts.size() + 1, 0);
  for (size_t part = 0; part < parts.size(); ++part) {
    beside[part + 1] = beside[part] + (is_first(part) ? 0 : size);
  }
  thread_local Scratch<float> caller_sums;
  Scratch<float>& sums = caller_sums;  // the caller's memory, in every thread
  sums.Reserve(beside.back() + 1);
  std::vector<char> empty(tiles.num_relations, 1);
  for (const Stretch& part : parts) empty[part.relation] = 0;
  ParallelFor(executor, parts.size(), [&](int64_t part) {
    const auto [relation, begin, end] = parts[part];
    float* sum = is_first(part) ? grad_w + relation * size : sums.data() + beside[part];
    thread_local Scratch<float> columns;
    if (blocks > 1) columns.Reserve(kRows * out);
    for (int64_t first = begin; first < end; first += kRows) {
      const int64_t rows = std::min(kRows, end - first);
      for (int64_t b = 0; b < blocks; ++b) {
        const float* passed = grad + first * out;
        if (blocks > 1) {
          for (int64_t r = 0; r < rows; ++r) {
            std::copy_n(grad + ((first + r) * blocks + b) * out, out,
                        columns.data() + r * out);
          }
          passed = columns.data();
        }
        Multiply({x + (first * blocks + b) * in, 1, blocks * in}, passed, in, rows, out,
                 first > begin, sum + b * in * out);
      }
    }
  });
  ParallelFor(executor, tiles.num_relations, [&](int64_t relation) {
    if (empty[relation]) std::fill_n(grad_w + relation * size, size, 0.0f);
  });
  constexpr int64_t kPiece = 1 << 12;
  ParallelFor(executor, (size + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece, end = std::min(begin + kPiece, size);
    for (size_t part = 0; part < parts.size(); ++part) {
      if (is_first(part)) continue;
      float* sum = grad_w + parts[part].relation * size;
      const float* other = sums.data() + beside[part];
      for (int64_t j = begin; j < end; ++j) sum[j] += other[j];
    }
  });
}

}  // namespace jgs
