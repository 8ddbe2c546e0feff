// Sums and maxima over edges, of rows however they are stored. Only aggregate.cc and
// gather_aggregate.cc include this.
#ifndef JGS_KERNELS_AGGREGATE_SUMS_H_
#define JGS_KERNELS_AGGREGATE_SUMS_H_

#include <algorithm>
#include <vector>

#include "aggregate_rows.h"
#include "stored.h"

namespace jgs {
namespace {

// Finds the row of an edge's index, in one matrix or in a list of rows.
template <typename Stored>
struct InMatrix {
  using Element = typename Stored::Element;
  using Kind = Stored;
  Stored stored;
  const Element* x;
  int64_t stride;

  JGS_INLINE const Element* operator()(int32_t index) const { return x + index * stride; }
};

// A row that is missing is null, and counts as zeros; of floats it is a row of zeros.
template <typename Stored>
struct InList {
  using Element = typename Stored::Element;
  using Kind = Stored;
  Stored stored;
  const Element* const* rows;

  JGS_INLINE const Element* operator()(int32_t index) const { return rows[index]; }
};

// The row as floats, in `room` unless it lies there as floats.
template <typename Rows>
JGS_INLINE inline const float* AsFloats(const Rows& x, const typename Rows::Element* row,
                                        int64_t width, float* room) {
  if constexpr (Rows::Kind::kConverts) {
    if (row == nullptr) {
      std::fill(room, room + width, 0.0f);
    } else {
      x.stored.Convert(row, width, room);
    }
    return room;
  } else {
    return row;
  }
}

enum class Scale { kNone, kOfEdge, kOfIndex, kOfHead };  // the kind of the edges' coefficients

// SumEdges for one kind of coefficient. Rows of the result are `out_stride` floats apart.
template <Scale kScale, bool kStream, typename Rows>
struct SumRows {
  EdgeRows edges;
  Rows x;
  int64_t num_features;
  bool mean;
  float* out;
  int64_t out_stride;
  int64_t head_width = num_features / edges.num_heads;

  // Adds `kCount` edges from `e` on, in order; `kFirst` overwrites the sum. Adding several
  // edges at once saves loads and stores of the sum, and changes no rounding.
  template <int kCount, bool kFirst>
  JGS_INLINE void Add(int64_t e, int64_t num_edges, float* __restrict sum) const {
    const float* __restrict row[kCount];
    float scale[kCount];
    for (int i = 0; i < kCount; ++i) {
      row[i] = x(edges.index[e + i]);
      if (kScale == Scale::kOfEdge) scale[i] = edges.coefficient[e + i];
      if (kScale == Scale::kOfIndex) scale[i] = edges.coefficient[edges.index[e + i]];
      const int64_t ahead = e + i + kPrefetchEdges;
      if (ahead < num_edges) PrefetchRow(x(edges.index[ahead]), num_features);
    }
    const auto add_columns = [&](int64_t begin, int64_t end) JGS_INLINE {
      for (int64_t f = begin; f < end; ++f) {
        float s = kFirst ? 0.0f : sum[f];
        for (int i = 0; i < kCount; ++i) {
          const float v = kScale == Scale::kNone ? row[i][f] : scale[i] * row[i][f];
          s = kFirst && i == 0 ? v : s + v;
        }
        sum[f] = s;
      }
    };
    if (kScale != Scale::kOfHead) return add_columns(0, num_features);
    const float* coefficient = edges.coefficient + e * edges.num_heads;
    for (int64_t f = 0; f < num_features; f += head_width, ++coefficient) {
      for (int i = 0; i < kCount; ++i) scale[i] = coefficient[i * edges.num_heads];
      add_columns(f, f + head_width);
    }
  }

  // The sum of a row's edges [e, stop), whose rows are not floats.
  template <typename Element>
  JGS_INLINE void AddStored(int64_t e, int64_t stop, int64_t num_edges,
                            std::vector<const Element*>& rows, float* sum) const {
    const int64_t distance = PrefetchDistance(num_features * int64_t{sizeof(Element)});
    rows.clear();
    for (int64_t i = e; i < stop; ++i) {
      rows.push_back(x(edges.index[i]));
      const int64_t ahead = i + distance;
      if (ahead < num_edges) PrefetchRow(x(edges.index[ahead]), num_features);
    }
    const float* scale = kScale == Scale::kOfEdge ? edges.coefficient + e : nullptr;
    x.stored.Sum(Listed<Element>{rows.data(), scale, stop - e}, num_features, sum);
  }

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    std::vector<float> buffer(kStream ? num_features : 0);
    std::vector<const typename Rows::Element*> rows;
    for (int64_t r = begin; r < end; ++r) {
      float* sum = kStream ? buffer.data() : out + r * out_stride;
      int64_t e = edges.indptr[r];
      const int64_t stop = edges.indptr[r + 1];
      const int64_t degree = stop - e;
      if constexpr (Rows::Kind::kConverts) {
        AddStored(e, stop, num_edges, rows, sum);
        e = stop;
      } else if (degree >= 4) {
        Add<4, true>(e, num_edges, sum);
        for (e += 4; e + 4 <= stop; e += 4) Add<4, false>(e, num_edges, sum);
      } else if (degree >= 2) {
        Add<2, true>(e, num_edges, sum);
        e += 2;
      } else if (degree == 1) {
        Add<1, true>(e, num_edges, sum);
        e += 1;
      } else {
        std::fill(sum, sum + num_features, 0.0f);
      }
      if constexpr (!Rows::Kind::kConverts) {
        for (; e < stop; ++e) Add<1, false>(e, num_edges, sum);
      }
      if (mean && degree > 1) {
        const float count = static_cast<float>(degree);
        for (int64_t f = 0; f < num_features; ++f) sum[f] /= count;
      }
      if (kStream) Stream(sum, num_features, out + r * out_stride);
    }
    if (kStream) EndStream();
  }
};

// out[r] = the maximum over the edges of r of coefficient * x[index]; argmax[r] = the first
// edge that attains it, if kArgmax.
template <bool kWeighted, bool kArgmax, typename Rows>
struct MaxRows {
  EdgeRows edges;
  Rows x;
  int64_t num_features;
  float* out;
  int32_t* argmax;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    const int64_t num_edges = edges.num_edges();
    std::vector<float> room(Rows::Kind::kConverts ? num_features : 0);
    for (int64_t r = begin; r < end; ++r) {
      float* __restrict best = out + r * num_features;
      int32_t* __restrict where = kArgmax ? argmax + r * num_features : nullptr;
      const int64_t first = edges.indptr[r], stop = edges.indptr[r + 1];
      if (first == stop) {
        std::fill(best, best + num_features, 0.0f);
        if (kArgmax) std::fill(where, where + num_features, -1);
      }
      for (int64_t e = first; e < stop; ++e) {
        const float* __restrict row =
            AsFloats(x, x(edges.index[e]), num_features, room.data());
        const float scale = kWeighted ? edges.coefficient[e] : 1.0f;
        const int32_t edge = static_cast<int32_t>(e);
        const int64_t ahead = e + kPrefetchEdges;
        if (ahead < num_edges) PrefetchRow(x(edges.index[ahead]), num_features);
        if (e == first) {
          for (int64_t f = 0; f < num_features; ++f) {
            best[f] = kWeighted ? scale * row[f] : row[f];
            if (kArgmax) where[f] = edge;
          }
          continue;
        }
        for (int64_t f = 0; f < num_features; ++f) {
          const float v = kWeighted ? scale * row[f] : row[f];
          const float b = best[f];
          const bool take = !(v <= b) & (b == b);  // the first NaN wins and stays
          best[f] = take ? v : b;
          if (kArgmax) where[f] = take ? edge : where[f];
        }
      }
    }
  }
};

template <Scale kScale, typename Rows>
void SumScaled(const Executor& executor, const EdgeRows& edges, const Rows& x,
               int64_t num_features, bool mean, float* out) {
  const int64_t width = num_features;
  if (StreamsRows(out, edges.num_rows, width)) {
    RunRows(executor, SumRows<kScale, true, Rows>{edges, x, width, mean, out, width});
  } else {
    RunRows(executor, SumRows<kScale, false, Rows>{edges, x, width, mean, out, width});
  }
}

template <bool kWeighted, typename Rows>
void MaxEdges(const Executor& executor, const EdgeRows& edges, const Rows& x,
              int64_t num_features, float* out, int32_t* argmax) {
  if (argmax != nullptr) {
    RunRows(executor, MaxRows<kWeighted, true, Rows>{edges, x, num_features, out, argmax});
  } else {
    RunRows(executor, MaxRows<kWeighted, false, Rows>{edges, x, num_features, out, argmax});
  }
}

// `Aggregate` with one head, of rows in one matrix or in a list.
template <typename Rows>
void AggregateRows(const Executor& executor, const EdgeRows& edges, Reduce reduce,
                   const Rows& x, int64_t num_features, float* out, int32_t* argmax) {
  const bool mean = reduce == Reduce::kMean;
  if (reduce == Reduce::kMax && edges.coefficient != nullptr) {
    MaxEdges<true>(executor, edges, x, num_features, out, argmax);
  } else if (reduce == Reduce::kMax) {
    MaxEdges<false>(executor, edges, x, num_features, out, argmax);
  } else if (edges.coefficient != nullptr) {
    SumScaled<Scale::kOfEdge>(executor, edges, x, num_features, mean, out);
  } else {
    SumScaled<Scale::kNone>(executor, edges, x, num_features, mean, out);
  }
}

}  // namespace
}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_SUMS_H_
