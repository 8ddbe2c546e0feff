// Sums over the edges of a block and their derivatives in steps (steps.h), for GPUs: what
// aggregate.h computes. Sums are in edge order, in pieces of kPiece edges in longer rows.
// No sum is atomic: the derivative sorts the edges by source. So all repeat to the bit.
#ifndef JGS_KERNELS_DEVICE_AGGREGATE_H_
#define JGS_KERNELS_DEVICE_AGGREGATE_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "aggregate.h"
#include "lanes.h"
#include "steps.h"

namespace jgs {

constexpr int64_t kPiece = 256;  // edges that one thread sums

// A block in the device's memory. What breaks the rules of `jgs.Block` is not read: edges and
// rows that are none, and indices of no row.
struct DeviceBlock {
  const int32_t *indptr, *indices;
  const float* weight;  // or null
  const int32_t *num_targets, *num_edges;
  int64_t target_capacity, edge_capacity, num_rows, num_heads;

  // Whether the sample of the block has overflowed (`LOST` in jgs/ops/checks.py).
  JGS_BOTH bool Lost() const { return *num_edges == std::numeric_limits<int32_t>::min(); }

  JGS_BOTH int64_t NumEdges() const { return Clamp<int64_t>(*num_edges, 0, edge_capacity); }

  JGS_BOTH int64_t Begin(int64_t t) const {
    return t < *num_targets ? Clamp<int64_t>(indptr[t], 0, NumEdges()) : NumEdges();
  }

  JGS_BOTH int64_t End(int64_t t) const {
    const int64_t begin = Begin(t);
    return t < *num_targets ? Clamp<int64_t>(indptr[t + 1], begin, NumEdges()) : begin;
  }

  // The number of edges that a mean over a row divides by.
  JGS_BOTH float Degree(int64_t t) const {
    const int64_t degree = static_cast<int64_t>(indptr[t + 1]) - indptr[t];
    return static_cast<float>(degree > 1 ? degree : 1);
  }

  JGS_BOTH bool IsRow(int32_t index) const { return index >= 0 && index < num_rows; }

  // The row that edge e is in, or -1.
  JGS_BOTH int64_t RowOf(int64_t e) const {
    if (e >= NumEdges() || !IsRow(indices[e])) return -1;
    const int64_t t = FirstAbove(indptr + 1, target_capacity, e);
    return t < target_capacity && t < *num_targets && e >= Begin(t) ? t : -1;
  }

  JGS_BOTH float Weighted(int64_t e, int64_t f, int64_t width, float value) const {
    return weight == nullptr ? value : weight[e * num_heads + f / (width / num_heads)] * value;
  }
};

// The terms of the sum of a target: the rows of x that its edges read.
struct ForwardTerms {
  DeviceBlock block;
  const float* x;
  int64_t width;
  bool mean;

  JGS_BOTH int64_t Begin(int64_t r) const { return block.Begin(r); }
  JGS_BOTH int64_t End(int64_t r) const { return block.End(r); }
  JGS_BOTH float Term(int64_t e, int64_t f) const {
    const int32_t index = block.indices[e];
    if (!block.IsRow(index)) return 0.0f;
    return block.Weighted(e, f, width, x[index * width + f]);
  }
  JGS_BOTH float Result(int64_t r, float sum) const {
    if (block.Lost()) return std::numeric_limits<float>::quiet_NaN();
    return mean ? sum / block.Degree(r) : sum;
  }
};

// The terms of the gradient of a row of x: those of the targets whose edges read it. Row r has
// the positions from begins[r] on, and position j is the edge edge[j].
struct BackwardTerms {
  DeviceBlock block;
  const float* grad_out;
  const int32_t* argmax;  // or null
  int64_t width;
  bool mean;
  const int32_t *begins, *edge, *target;  // the last by edge

  JGS_BOTH int64_t Begin(int64_t r) const { return begins[r]; }
  JGS_BOTH int64_t End(int64_t r) const { return begins[r + 1]; }
  JGS_BOTH float Term(int64_t j, int64_t f) const {
    const int64_t e = edge[j], at = target[e] * width + f;
    if (argmax != nullptr && argmax[at] != e) return 0.0f;
    const float grad = block.Weighted(e, f, width, grad_out[at]);
    return mean ? grad / block.Degree(target[e]) : grad;
  }
  JGS_BOTH float Result(int64_t, float sum) const { return sum; }
};

// The sum of the terms [begin, end), in order.
template <typename Terms>
JGS_BOTH inline float SumTerms(const Terms& terms, int64_t begin, int64_t end, int64_t f) {
  if (begin == end) return 0.0f;
  float sum = terms.Term(begin, f);
  for (int64_t e = begin + 1; e < end; ++e) sum += terms.Term(e, f);
  return sum;
}

// i: a row. Leaves its number of pieces in `pieces`: 0 if one thread sums it.
template <typename Terms>
struct PieceStep {
  Terms terms;
  int64_t* pieces;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t num = terms.End(i) - terms.Begin(i);
    pieces[i] = num > kPiece ? (num + kPiece - 1) / kPiece : 0;
  }
};

// i: a feature of a piece. `ends` counts the pieces up to each row.
template <typename Terms>
struct PartialStep {
  Terms terms;
  const int64_t* ends;
  int64_t num_rows;
  float* partial;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t piece = i / terms.width, f = i % terms.width;
    if (piece >= ends[num_rows - 1]) return;
    const int64_t r = FirstAbove(ends, num_rows, piece);
    const int64_t begin = terms.Begin(r) + (piece - (r == 0 ? 0 : ends[r - 1])) * kPiece;
    const int64_t most = terms.End(r), end = begin + kPiece;
    partial[i] = SumTerms(terms, begin, end < most ? end : most, f);
  }
};

// i: a feature of a row.
template <typename Terms>
struct SumStep {
  Terms terms;
  const int64_t* ends;
  const float* partial;
  int64_t num_partial;  // rows of a block that breaks the rules may have more pieces
  float* out;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t r = i / terms.width, f = i % terms.width;
    const int64_t first = r == 0 ? 0 : ends[r - 1];
    float sum;
    if (first == ends[r]) {
      sum = SumTerms(terms, terms.Begin(r), terms.End(r), f);
    } else {
      const int64_t end = ends[r] < num_partial ? ends[r] : num_partial;
      sum = first < end ? partial[first * terms.width + f] : 0.0f;
      for (int64_t p = first + 1; p < end; ++p) sum += partial[p * terms.width + f];
    }
    out[i] = terms.Result(r, sum);
  }
};

// out[r] = the sum of the terms of each row, [num_rows, width], of num_terms terms in all.
template <typename Launcher, typename Terms>
void SumOnDevice(Launcher& launcher, const Terms& terms, int64_t num_rows, int64_t num_terms,
                 float* out) {
  if (num_rows == 0) return;
  // A row of more than kPiece terms has fewer pieces than terms / (kPiece / 2).
  const int64_t most = num_terms > kPiece ? num_terms / (kPiece / 2) : 0;
  auto* ends = launcher.template Take<int64_t>(num_rows);
  auto* partial = launcher.template Take<float>(most * terms.width);
  launcher.For(num_rows, PieceStep<Terms>{terms, ends});
  launcher.Scan(ends, num_rows);
  launcher.For(most * terms.width, PartialStep<Terms>{terms, ends, num_rows, partial});
  launcher.For(num_rows * terms.width, SumStep<Terms>{terms, ends, partial, most, out});
}

// i: a feature of a target. The first NaN is the maximum, as in aggregate.cc.
struct MaxStep {
  DeviceBlock block;
  const float* x;
  int64_t width;
  float* out;
  int32_t* argmax;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t r = i / width, f = i % width, end = block.End(r);
    float best = 0.0f;
    int32_t where = -1;
    for (int64_t e = block.Begin(r); e < end; ++e) {
      const int32_t index = block.indices[e];
      if (!block.IsRow(index)) continue;
      const float value = block.Weighted(e, f, width, x[index * width + f]);
      if (where >= 0 && (value <= best || best != best)) continue;
      best = value;
      where = static_cast<int32_t>(e);
    }
    out[i] = block.Lost() ? std::numeric_limits<float>::quiet_NaN() : best;
    argmax[i] = where;
  }
};

// As `Aggregate`; argmax is null unless the reduction is kMax.
template <typename Launcher>
void AggregateOnDevice(Launcher& launcher, const DeviceBlock& block, Reduce reduce,
                       const float* x, int64_t width, float* out, int32_t* argmax) {
  if (reduce == Reduce::kMax) {
    launcher.For(block.target_capacity * width, MaxStep{block, x, width, out, argmax});
    return;
  }
  const ForwardTerms terms{block, x, width, reduce == Reduce::kMean};
  SumOnDevice(launcher, terms, block.target_capacity, block.edge_capacity, out);
}

// i: an edge. What sorts it, num_rows if no row reads it, and its target.
struct SourceStep {
  DeviceBlock block;
  int32_t *source, *target;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t t = block.RowOf(i);
    source[i] = t < 0 ? static_cast<int32_t>(block.num_rows) : block.indices[i];
    target[i] = static_cast<int32_t>(t < 0 ? 0 : t);
  }
};

// i: a row of x, or their number.
struct BeginStep {
  const int32_t* source;  // [num_edges] ascending
  int64_t num_edges;
  int32_t* begins;

  JGS_BOTH void operator()(int64_t i) const {
    begins[i] = static_cast<int32_t>(FirstAbove(source, num_edges, i - 1));
  }
};

// As `AggregateGrad`.
template <typename Launcher>
void AggregateGradOnDevice(Launcher& launcher, const DeviceBlock& block, Reduce reduce,
                           const float* grad_out, const int32_t* argmax, int64_t width,
                           float* grad_x) {
  auto* source = launcher.template Take<int32_t>(block.edge_capacity);
  auto* target = launcher.template Take<int32_t>(block.edge_capacity);
  launcher.For(block.edge_capacity, SourceStep{block, source, target});
  const int32_t* edge =
      launcher.Sort(source, block.edge_capacity, static_cast<int32_t>(block.num_rows));
  auto* begins = launcher.template Take<int32_t>(block.num_rows + 1);
  launcher.For(block.num_rows + 1, BeginStep{source, block.edge_capacity, begins});
  const BackwardTerms terms{block, grad_out, reduce == Reduce::kMax ? argmax : nullptr, width,
                            reduce == Reduce::kMean, begins, edge, target};
  SumOnDevice(launcher, terms, block.num_rows, block.edge_capacity, grad_x);
}

// i: a head of an edge.
struct WeightStep {
  DeviceBlock block;
  const float* grad_out;
  const int32_t* argmax;  // or null
  const float* x;
  int64_t width;
  bool mean;
  float* grad_weight;

  struct Product {
    const float *grad, *row;
    const int32_t* where;  // or null
    int64_t edge;

    JGS_BOTH float operator()(int64_t f) const {
      return where == nullptr || where[f] == edge ? grad[f] * row[f] : 0.0f;
    }
  };

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t e = i / block.num_heads, h = i % block.num_heads, t = block.RowOf(e);
    grad_weight[i] = 0.0f;
    if (t < 0) return;
    const int64_t part = width / block.num_heads;
    const Product product{grad_out + t * width, x + block.indices[e] * width,
                          argmax == nullptr ? nullptr : argmax + t * width, e};
    const float sum = SumInLanes(h * part, (h + 1) * part, product);
    grad_weight[i] = mean ? sum / block.Degree(t) : sum;
  }
};

// As `AggregateGradWeight`.
template <typename Launcher>
void AggregateGradWeightOnDevice(Launcher& launcher, const DeviceBlock& block, Reduce reduce,
                                 const float* grad_out, const int32_t* argmax, const float* x,
                                 int64_t width, float* grad_weight) {
  const WeightStep step{block, grad_out, reduce == Reduce::kMax ? argmax : nullptr, x, width,
                        reduce == Reduce::kMean, grad_weight};
  launcher.For(block.edge_capacity * block.num_heads, step);
}

}  // namespace jgs

#endif  // JGS_KERNELS_DEVICE_AGGREGATE_H_
