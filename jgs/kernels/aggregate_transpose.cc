#include "aggregate_transpose.h"

#include "scratch.h"

namespace jgs {
namespace {

constexpr int64_t kSmallEdges = 1 << 12;  // a sort that is not worth a second thread
// With more sources than this for each edge of a part, the part's counters cost more than they
// save.
constexpr int64_t kSourcesPerEdge = 4;

}  // namespace

Transpose::Transpose(const Executor& executor, const BlockView& block, bool mean) {
  thread_local Scratch<int32_t> integers;
  thread_local Scratch<float> floats;
  const int64_t num_edges = block.num_edges, num_sources = block.num_rows;
  // The edges are divided into parts. Every part counts its edges, and later places them.
  const int64_t useful = 1 + kSourcesPerEdge * num_edges / (num_sources + 1);
  const int64_t num_parts =
      num_edges < kSmallEdges ? 1 : std::min(executor.num_threads, useful);
  integers.Reserve(num_sources + 1 + num_edges + num_parts * num_sources);
  int32_t* indptr = integers.data();
  int32_t* target = indptr + num_sources + 1;
  int32_t* next = target + num_edges;  // [num_parts, num_sources]
  float* coefficient = nullptr;
  if (block.weight != nullptr) {
    floats.Reserve(num_edges * block.num_heads);
    coefficient = floats.data();
  } else if (mean) {  // one for each target: the rows that edges read are the targets
    floats.Reserve(block.target_capacity);
    coefficient = floats.data();
    for (int64_t t = 0; t < block.target_capacity; ++t) {
      const int32_t degree = block.indptr[t + 1] - block.indptr[t];
      coefficient[t] = 1.0f / static_cast<float>(std::max(degree, 1));
    }
  }
  rows_ = {indptr,      target, coefficient, num_sources, block.weight == nullptr,
           block.num_heads, block.target_capacity};

  const auto start = [=](int64_t part) { return num_edges * part / num_parts; };
  ParallelFor(executor, num_parts, [&](int64_t part) {
    int32_t* count = next + part * num_sources;
    std::fill(count, count + num_sources, 0);
    for (int64_t e = start(part); e < start(part + 1); ++e) ++count[block.indices[e]];
  });
  int32_t sum = 0;
  for (int64_t s = 0; s < num_sources; ++s) {
    indptr[s] = sum;
    for (int64_t part = 0; part < num_parts; ++part) {
      int32_t& place = next[part * num_sources + s];
      const int32_t count = place;
      place = sum;
      sum += count;
    }
  }
  indptr[num_sources] = sum;
  ParallelFor(executor, num_parts, [&](int64_t part) {
    Fill(block, mean, start(part), start(part + 1), next + part * num_sources, target,
         block.weight != nullptr ? coefficient : nullptr);
  });
}

// Places the edges [begin, end); the next edge out of source s goes to next[s].
void Transpose::Fill(const BlockView& block, bool mean, int64_t begin, int64_t end,
                     int32_t* next, int32_t* target, float* coefficient) {
  const int32_t* indptr = block.indptr;
  // The target of the first edge is the last one whose row starts at the edge or before.
  int64_t t = std::upper_bound(indptr, indptr + block.target_capacity + 1, begin) - indptr - 1;
  for (int64_t e = begin; e < end; ++t) {
    const float degree = static_cast<float>(indptr[t + 1] - indptr[t]);
    for (const int64_t stop = std::min<int64_t>(indptr[t + 1], end); e < stop; ++e) {
      const int32_t at = next[block.indices[e]]++;
      target[at] = static_cast<int32_t>(t);
      if (coefficient == nullptr) continue;
      const float* weight = block.weight + e * block.num_heads;
      float* to = coefficient + at * block.num_heads;
      for (int64_t h = 0; h < block.num_heads; ++h) to[h] = mean ? weight[h] / degree : weight[h];
    }
  }
}

}  // namespace jgs
