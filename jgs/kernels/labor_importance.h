// The importances of LABOR-i: a rate for each row (a target, or a run of it), a rarity for each candidate.
// Included by labor.cc.
#ifndef JGS_KERNELS_LABOR_IMPORTANCE_H_
#define JGS_KERNELS_LABOR_IMPORTANCE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

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

// 1 / c of every row and 1 / pi of every candidate, in the Workspace.
template <typename Rows>  // a HopRows
class Importances {
 public:
  Importances(const GraphView& graph, const Rows& rows, Team& team, Workspace& work)
      : graph_(graph), rows_(rows), team_(team), s_(work.labor) {}

  // Sets each row's rate and each candidate's rarity in `rounds` rounds (-1: until they
  // converge). False if a neighbour is not a node.
  bool Find(const Hop& hop, const Targets& targets, int64_t rounds) {
    s_.rate.Reserve(rows_.Num(targets));
    if (static_cast<int64_t>(s_.rarity.size()) < graph_.num_nodes) {
      s_.rarity.resize(graph_.num_nodes, 1.0f);
      s_.least.resize(graph_.num_nodes, kNever);
    }
    std::atomic<bool> good{true};
    team_.For(targets.num_chunks, [&](int64_t chunk) {  // of excluded edges too
      for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
        const int32_t* node = graph_.indices + rows_.Start(r);
        const int32_t length = rows_.Degree(r) + rows_.HolesOf(r).num;
        const bool all = std::all_of(node, node + length, [&](int32_t u) {
          return u >= 0 && u < graph_.num_nodes;
        });
        if (!all) good.store(false, std::memory_order_relaxed);
      }
    });
    if (!good.load()) return false;
    for (int64_t r = 0; r < rows_.Num(targets); ++r) {
      const float per_k = 1.0f / static_cast<float>(rows_.Fanout(hop, r));
      const float rate = std::max(static_cast<float>(rows_.Degree(r)) * per_k, 1.0f);
      s_.rate[r] = rows_.Whole(hop, r) ? 1 : rate;
    }
    int64_t before = std::numeric_limits<int64_t>::max();
    for (int64_t round = 0; rounds < 0 || round < rounds; ++round) {
      ForCandidates(targets, [&](int64_t r, int32_t node) {
        LowerTo(s_.least[node], s_.rate[r]);
      });
      std::atomic<int64_t> expected{0};
      team_.For(targets.num_chunks, [&](int64_t chunk) {
        expected.fetch_add(Multiply(targets, chunk), std::memory_order_relaxed);
      });
      team_.For(targets.num_chunks, [&](int64_t chunk) {
        for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
          if (!rows_.Whole(hop, r)) s_.rate[r] = Solve(rows_.Fanout(hop, r), r);
        }
      });
      if (before - expected.load() <= before / kTolerance) break;
      before = expected.load();
    }
    return true;
  }

  // Resets the rarities for another hop.
  void Forget(const Targets& targets) {
    ForCandidates(targets, [&](int64_t, int32_t node) { Store(s_.rarity[node], 1); });
  }

 private:
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
  void ForCandidates(const Targets& targets, const Look& look) {
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
        ForParts(r, [&](const int32_t* node, int32_t count) {
          for (int32_t i = 0; i < count; ++i) look(r, node[i]);
        });
      }
    });
  }

  // Multiplies the rarity of a chunk's candidates by the least rate of their rows. Each
  // candidate is multiplied once, by whichever chunk comes first. Returns the expected number
  // of them that are drawn.
  int64_t Multiply(const Targets& targets, int64_t chunk) {
    int64_t expected = 0;
    for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
      ForParts(r, [&](const int32_t* node, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
          const float least = Swap(s_.least[node[i]], kNever);
          if (least == kNever) continue;
          float& rarity = s_.rarity[node[i]];
          rarity = std::min(rarity * least, kMostRare);
          expected += static_cast<int64_t>((1 / rarity) * kNodeUnit);
        }
      });
    }
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
          const float rarity = s_.rarity[node[i]];
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
  Team& team_;
  LaborScratch& s_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_IMPORTANCE_H_
