// The importances of LABOR-i: a rate for each row (a target, or a run of it), a rarity for each candidate.
// Included by labor.cc.
#ifndef JGS_KERNELS_LABOR_IMPORTANCE_H_
#define JGS_KERNELS_LABOR_IMPORTANCE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "labor_rows.h"
#include "labor_scan.h"

namespace jgs {

constexpr int64_t kUnit = 1 << 12;      // 1.0 in the fixed-point sums of inverse importances
constexpr float kPerUnit = 1.0f / kUnit;
constexpr float kNodeUnit = 0x1p30f;    // 1.0 in the expected number of nodes
constexpr int64_t kTolerance = 10000;   // LABOR-* converges below 1 part in this
constexpr float kMostRare = 0x1p20f;    // the largest inverse of an importance
constexpr float kNever = std::numeric_limits<float>::infinity();

// Positive floats that threads share. As integers they have the same order.
using Bits = uint32_t __attribute__((may_alias));

inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline void LowerTo(float& shared, float value) {
  auto* word = reinterpret_cast<Bits*>(&shared);
  const uint32_t mine = ToBits(value);
  uint32_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (mine < found && !__atomic_compare_exchange_n(word, &found, mine, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

inline float Swap(float& shared, float value) {
  return FromBits(__atomic_exchange_n(reinterpret_cast<Bits*>(&shared), ToBits(value),
                                      __ATOMIC_RELAXED));
}

inline void Store(float& shared, float value) {
  __atomic_store_n(reinterpret_cast<Bits*>(&shared), ToBits(value), __ATOMIC_RELAXED);
}

// The numbers of some rows: those from `begin` to `end`, or what `list` has there.
struct RowRange {
  int64_t begin, end;
  const int64_t* list = nullptr;

  int64_t At(int64_t i) const { return list == nullptr ? i : list[i]; }

  template <typename Look>
  void For(const Look& look) const {
    for (int64_t i = begin; i < end; ++i) look(At(i));
  }
};

// 1 / c of rows that depend on each other, and 1 / pi of their candidates.
template <typename Rows>  // a HopRows
class Importances {
 public:
  // The rows are in `chunks`, each of which is looked at by one thread. Their rates are written
  // to `rate`, by their numbers.
  Importances(const GraphView& graph, const Rows& rows, const Hop& hop,
              std::vector<RowRange> chunks, Team& team, float* rate, Rarities& rarities)
      : graph_(graph), rows_(rows), hop_(hop), chunks_(std::move(chunks)), team_(team),
        rate_(rate), rarity_(rarities.rarity), least_(rarities.least) {}

  // Sets each row's rate and each candidate's rarity in `rounds` rounds (-1: until they
  // converge). False if a neighbour is not a node.
  bool Find(int64_t rounds) {
    if (static_cast<int64_t>(rarity_.size()) < graph_.num_nodes) {
      rarity_.resize(graph_.num_nodes, 1.0f);
      least_.resize(graph_.num_nodes, kNever);
    }
    std::atomic<bool> good{true};
    ForRows([&](int64_t r) {
      const int32_t* node = graph_.indices + rows_.Start(r);  // of excluded edges too
      const int32_t length = rows_.Degree(r) + rows_.HolesOf(r).num;
      const bool all = std::all_of(node, node + length, [&](int32_t u) {
        return u >= 0 && u < graph_.num_nodes;
      });
      if (!all) good.store(false, std::memory_order_relaxed);
      const float per_k = 1.0f / static_cast<float>(rows_.Fanout(hop_, r));
      const float rate = std::max(static_cast<float>(rows_.Degree(r)) * per_k, 1.0f);
      rate_[r] = rows_.Whole(hop_, r) ? 1 : rate;
    });
    if (!good.load()) return false;
    int64_t before = std::numeric_limits<int64_t>::max();
    for (int64_t round = 0; rounds < 0 || round < rounds; ++round) {
      ForCandidates([&](int64_t r, int32_t node) { LowerTo(least_[node], rate_[r]); });
      std::atomic<int64_t> expected{0};
      team_.For(NumChunks(), [&](int64_t chunk) {
        expected.fetch_add(Multiply(chunks_[chunk]), std::memory_order_relaxed);
      });
      ForRows([&](int64_t r) {
        if (!rows_.Whole(hop_, r)) rate_[r] = Solve(rows_.Fanout(hop_, r), r);
      });
      if (before - expected.load() <= before / kTolerance) break;
      before = expected.load();
    }
    return true;
  }

  // Resets the rarities for other rows.
  void Forget() {
    ForCandidates([&](int64_t, int32_t node) { Store(rarity_[node], 1); });
  }

 private:
  int64_t NumChunks() const { return static_cast<int64_t>(chunks_.size()); }

  template <typename Look>
  void ForRows(const Look& look) const {
    team_.For(NumChunks(), [&](int64_t chunk) { chunks_[chunk].For(look); });
  }

  // Calls look(node, count) for the parts of a row between excluded edges.
  template <typename Look>
  void ForParts(int64_t r, const Look& look) const {
    const int64_t start = rows_.Start(r);
    const int32_t* node = graph_.indices + start;
    const Holes holes = rows_.HolesOf(r);
    int64_t begin = 0;
    for (int32_t hole = 0; hole < holes.num; ++hole) {
      const int64_t end = holes.edge[hole] - start;
      look(node + begin, static_cast<int32_t>(end - begin));
      begin = end + 1;
    }
    look(node + begin, static_cast<int32_t>(rows_.Degree(r) + holes.num - begin));
  }

  // Calls look(row, node) for every neighbour of every row.
  template <typename Look>
  void ForCandidates(const Look& look) const {
    ForRows([&](int64_t r) {
      ForParts(r, [&](const int32_t* node, int32_t count) {
        for (int32_t i = 0; i < count; ++i) look(r, node[i]);
      });
    });
  }

  // Multiplies the rarity of a chunk's candidates by the least rate of their rows. Each
  // candidate is multiplied once, by whichever chunk comes first. Returns the expected number
  // of them that are drawn.
  int64_t Multiply(const RowRange& chunk) {
    int64_t expected = 0;
    chunk.For([&](int64_t r) {
      ForParts(r, [&](const int32_t* node, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
          const float least = Swap(least_[node[i]], kNever);
          if (least == kNever) continue;
          float& rarity = rarity_[node[i]];
          rarity = std::min(rarity * least, kMostRare);
          expected += static_cast<int64_t>((1 / rarity) * kNodeUnit);
        }
      });
    });
    return expected;
  }

  // The rate that keeps the variance, see `_solve` in labor_plain.py.
  float Solve(int64_t k, int64_t r) const {
    const int64_t degree = rows_.Degree(r);
    float rate = kNever;
    for (int64_t sure = -1;;) {
      int64_t now = 0, rest = 0;
      ForParts(r, [&](const int32_t* node, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
          const float rarity = rarity_[node[i]];
          const bool one = Inverse(rate, rarity) <= 1;
          now += one;
          rest += one ? 0 : static_cast<int64_t>(rarity * kUnit);
        }
      });
      if (now <= sure || rest == 0) return rate;
      const float left = static_cast<float>(degree * degree - k * now);
      const float parts = static_cast<float>(rest) * kPerUnit * static_cast<float>(k);
      rate = std::max(left / parts, 1.0f);
      sure = now;
    }
  }

  const GraphView& graph_;
  const Rows& rows_;
  const Hop& hop_;
  const std::vector<RowRange> chunks_;
  Team& team_;
  float* const rate_;
  std::vector<float>&rarity_, &least_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_IMPORTANCE_H_
