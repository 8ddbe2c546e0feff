#include <algorithm>
#include <type_traits>
#include <vector>

#include "aggregate_rows.h"
#include "find_rows.h"

namespace jgs {
namespace {

// out[r] = the reduction over the edges of r of coefficient * row, of rows that become floats
// while they are read. `Stored` has the loops over columns for each instruction set.
template <typename Stored>
struct ReduceStored {
  using E = typename Stored::Element;
  EdgeRows edges;
  const StoredRows& rows;
  const int32_t* place;  // of each source; null: its own number
  Stored stored;
  Reduce reduce;
  int64_t num_features;
  float* out;

  const E* Row(int64_t e) const {
    const int32_t source = edges.index[e];
    return FindRow<E>(rows, place == nullptr ? source : place[source]);
  }

  void Run(int64_t begin, int64_t end) const {
    const int64_t width = num_features, num_edges = edges.num_edges();
    const int64_t distance = PrefetchDistance(width * int64_t{sizeof(E)});
    const bool stream = StreamsRows(out, edges.num_rows, width);
    std::vector<float> buffer(width), room(width);
    std::vector<const E*> listed;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first = edges.indptr[r], degree = edges.indptr[r + 1] - first;
      listed.clear();
      for (int64_t e = first; e < first + degree; ++e) {
        listed.push_back(Row(e));
        const E* ahead = e + distance < num_edges ? Row(e + distance) : nullptr;
        if (ahead != nullptr) PrefetchRow(ahead, width);
      }
      const float* weight = edges.coefficient == nullptr ? nullptr : edges.coefficient + first;
      float* result = stream ? buffer.data() : out + r * width;
      const Listed<E> all{listed.data(), weight, degree};
      if (reduce == Reduce::kMax) {
        Max(all, room.data(), result);
      } else {
        stored.Sum(all, width, result);
      }
      if (reduce == Reduce::kMean && degree > 1) {
        for (int64_t f = 0; f < width; ++f) result[f] /= static_cast<float>(degree);
      }
      if (stream) Stream(result, width, out + r * width);
    }
    if (stream) EndStream();
  }

  void Max(const Listed<E>& all, float* room, float* best) const {
    std::fill_n(best, num_features, 0.0f);
    for (int64_t i = 0; i < all.count; ++i) {
      if (all.rows[i] == nullptr) {
        std::fill_n(room, num_features, 0.0f);
      } else {
        stored.Convert(all.rows[i], num_features, room);
      }
      const float weight = all.Weight(i);
      for (int64_t f = 0; f < num_features; ++f) {
        const float v = weight * room[f];
        const bool take = i == 0 || (!(v <= best[f]) && best[f] == best[f]);  // as of floats
        best[f] = take ? v : best[f];
      }
    }
  }
};

}  // namespace

void GatherAggregate(const Executor& executor, const StoredRows& rows, const int32_t* place,
                     const BlockView& block, Reduce reduce, float* out) {
  const int64_t width = rows.num_features;
  OfElement(rows, [&](const auto& stored) {
    using Stored = std::decay_t<decltype(stored)>;
    if constexpr (Stored::kConverts) {
      const EdgeRows edges = ByTarget(block);
      RunRows(executor,
              ReduceStored<Stored>{edges, rows, place, stored, reduce, width, out});
    } else if (place == nullptr) {
      const auto* matrix = static_cast<const float*>(rows.tables[0].rows);
      Aggregate(executor, block, reduce, matrix, width, out, nullptr);
    } else {
      const std::vector<float> zeros(width, 0.0f);
      std::vector<const float*> found(block.num_rows);
      for (int64_t i = 0; i < block.num_rows; ++i) {
        const float* row = FindRow<float>(rows, place[i]);
        found[i] = row != nullptr ? row : zeros.data();
      }
      AggregateListed(executor, block, reduce, found.data(), width, out);
    }
  });
}

}  // namespace jgs
