#include "gather.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "aggregate_rows.h"
#include "find_rows.h"

namespace jgs {
namespace {

// Shares `num_rows` rows of `width` floats among threads: body(begin, end) for each chunk.
template <typename Body>
void ShareRows(const Executor& executor, int64_t num_rows, int64_t width, const Body& body) {
  const bool small = executor.num_threads == 1 || num_rows * width < kSmall;
  const int64_t num_chunks = small ? 1 : executor.num_threads * kChunksPerThread;
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    body(num_rows * chunk / num_chunks, num_rows * (chunk + 1) / num_chunks);
  });
}

// Writes the rows of one kind of numbers as floats. Missing rows become zeros.
template <typename Stored>
struct CopyRows {
  const StoredRows& rows;
  Stored stored;
  const int32_t* ids;
  int64_t num_ids;
  float* out;

  JGS_INLINE void Run(int64_t begin, int64_t end) const {
    using E = typename Stored::Element;
    const int64_t width = rows.num_features;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t ahead = i + kPrefetchEdges;
      const E* row = ahead < num_ids ? FindRow<E>(rows, ids[ahead]) : nullptr;
      if (row != nullptr) PrefetchRow(row, width);
      row = FindRow<E>(rows, ids[i]);
      float* to = out + i * width;
      if (row == nullptr) {
        std::fill(to, to + width, 0.0f);
      } else if constexpr (Stored::kConverts) {
        stored.Convert(row, width, to);
      } else {
        std::memcpy(to, row, static_cast<size_t>(width) * sizeof(float));
      }
    }
  }
};

// The range of positions of the entries of one sparse row.
struct Entries {
  int64_t begin = 0, end = 0;
};

// Whether the row keeps the rules of SparseFeatures. If so, `entries` are its entries.
bool ReadRow(const SparseRows& features, int64_t row, Entries& entries) {
  entries = {features.indptr[row], features.indptr[row + 1]};
  bool good = entries.begin >= 0 && entries.begin <= entries.end &&
              entries.end <= features.num_entries;
  for (int64_t e = entries.begin; good && e < entries.end; ++e) {
    good = features.indices[e] >= 0 && features.indices[e] < features.num_features;
  }
  return good;
}

// A broken row that some thread met. Any would do; the smallest is kept.
class BrokenRow {
 public:
  void Meet(int64_t row) {
    int64_t least = row_.load(std::memory_order_relaxed);
    while (row < least && !row_.compare_exchange_weak(least, row, std::memory_order_relaxed)) {
    }
  }

  std::string Message(const SparseRows& features) const {
    const int64_t row = row_.load(std::memory_order_relaxed);
    if (row == kNone) return "";
    return "rows of SparseFeatures must lie in [0, " + std::to_string(features.num_entries) +
           "] and their columns in [0, " + std::to_string(features.num_features) +
           "); got row " + std::to_string(row) +
           ", which does not. Build it with SparseFeatures.from_scipy.";
  }

 private:
  static constexpr int64_t kNone = INT64_MAX;
  std::atomic<int64_t> row_{kNone};
};

// One target's reduction of weight * row over its edges. `dense` is a row of zeros, and is
// zeros again afterwards. False if a row of `features` is broken; it is then in `broken`.
bool AggregateRow(const SparseRows& features, const BlockView& block, Reduce reduce, int64_t t,
                  float* dense, float* out, BrokenRow& broken) {
  const int64_t width = features.num_features;
  const int64_t first = block.indptr[t], stop = block.indptr[t + 1];
  std::fill(out, out + width, 0.0f);
  for (int64_t e = first; e < stop; ++e) {
    Entries entries;
    if (!ReadRow(features, block.indices[e], entries)) {
      broken.Meet(block.indices[e]);
      return false;
    }
    const float weight = block.weight != nullptr ? block.weight[e] : 1.0f;
    const int32_t* column = features.indices;
    // Values that are not stored are 0. Adding them changes nothing if the weight is finite.
    if (reduce != Reduce::kMax && weight * 0.0f == 0.0f) {
      for (int64_t i = entries.begin; i < entries.end; ++i) {
        out[column[i]] += weight * features.values[i];
      }
      continue;
    }
    for (int64_t i = entries.begin; i < entries.end; ++i) {
      dense[column[i]] += features.values[i];
    }
    for (int64_t f = 0; f < width; ++f) {
      const float v = weight * dense[f];
      if (reduce != Reduce::kMax) {
        out[f] += v;
      } else if (e == first || (!(v <= out[f]) && out[f] == out[f])) {
        out[f] = v;  // the first NaN wins and stays
      }
    }
    for (int64_t i = entries.begin; i < entries.end; ++i) dense[column[i]] = 0.0f;
  }
  if (reduce == Reduce::kMean && stop - first > 1) {
    for (int64_t f = 0; f < width; ++f) out[f] /= static_cast<float>(stop - first);
  }
  return true;
}

}  // namespace

void Gather(const Executor& executor, const StoredRows& rows, const int32_t* ids,
            int64_t num_ids, float* out) {
  OfElement(rows, [&](const auto& stored) {
    using Stored = std::decay_t<decltype(stored)>;
    const CopyRows<Stored> copy{rows, stored, ids, num_ids, out};
    ShareRows(executor, num_ids, rows.num_features,
              [&](int64_t begin, int64_t end) { RunHere(copy, begin, end); });
  });
}

std::string GatherSparse(const Executor& executor, const SparseRows& features,
                         const int32_t* ids, int64_t num_ids, float* out) {
  const int64_t width = features.num_features;
  BrokenRow broken;
  ShareRows(executor, num_ids, width, [&](int64_t begin, int64_t end) {
    std::fill(out + begin * width, out + end * width, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      if (ids[i] < 0 || ids[i] >= features.num_rows) continue;
      Entries entries;
      if (!ReadRow(features, ids[i], entries)) return broken.Meet(ids[i]);
      for (int64_t e = entries.begin; e < entries.end; ++e) {
        out[i * width + features.indices[e]] += features.values[e];
      }
    }
  });
  return broken.Message(features);
}

std::string GatherAggregateSparse(const Executor& executor, const SparseRows& features,
                                  const BlockView& block, Reduce reduce, float* out) {
  const int64_t width = features.num_features;
  BrokenRow broken;
  ShareRows(executor, block.target_capacity, width, [&](int64_t begin, int64_t end) {
    std::vector<float> dense(width, 0.0f);
    bool good = true;
    for (int64_t t = begin; good && t < end; ++t) {
      good = AggregateRow(features, block, reduce, t, dense.data(), out + t * width, broken);
    }
  });
  return broken.Message(features);
}

}  // namespace jgs
