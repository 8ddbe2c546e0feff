#include <type_traits>
#include <vector>

#include "aggregate_sums.h"
#include "find_rows.h"

namespace jgs {

void GatherAggregate(const Executor& executor, const StoredRows& rows, const int32_t* place,
                     const BlockView& block, Reduce reduce, float* out) {
  const int64_t width = rows.num_features;
  OfElement(rows, [&](const auto& stored) {
    using Stored = std::decay_t<decltype(stored)>;
    using E = typename Stored::Element;
    if (place == nullptr) {
      const auto* matrix = static_cast<const E*>(rows.tables[0].rows);
      if constexpr (std::is_same_v<E, float>) {  // it may be summed in parts of the features
        return Aggregate(executor, block, reduce, matrix, width, out, nullptr);
      } else {
        const InMatrix<Stored> x{stored, matrix, width};
        return AggregateRows(executor, ByTarget(block), reduce, x, width, out, nullptr);
      }
    }
    const std::vector<E> zeros(Stored::kConverts ? 0 : width);
    std::vector<const E*> found(block.num_rows);
    for (int64_t i = 0; i < block.num_rows; ++i) {
      found[i] = FindRow<E>(rows, place[i]);
      if (!Stored::kConverts && found[i] == nullptr) found[i] = zeros.data();
    }
    const InList<Stored> x{stored, found.data()};
    AggregateRows(executor, ByTarget(block), reduce, x, width, out, nullptr);
  });
}

}  // namespace jgs
