#include "labor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "labor_scan.h"
#include "sample_hops.h"

namespace jgs {
namespace {

constexpr int64_t kUnit = 1 << 12;      // fixed point of sums of inverse importances: of 1
constexpr float kPerUnit = 1.0f / kUnit;
constexpr float kNodeUnit = 0x1p30f;    // of an expected number of nodes: of 1
constexpr int64_t kTolerance = 10000;   // LABOR-*: fewer nodes by less than this part
constexpr float kMostRare = 0x1p20f;    // the least importance is its inverse
constexpr float kNever = std::numeric_limits<float>::infinity();

// Positive floats that threads share: as integers they have the same order.
using Bits = uint32_t __attribute__((may_alias));

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void LowerTo(float& shared, float value) {
  auto* word = reinterpret_cast<Bits*>(&shared);
  const uint32_t mine = ToBits(value);
  uint32_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (mine < found && !__atomic_compare_exchange_n(word, &found, mine, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

float Swap(float& shared, float value) {
  return FromBits(__atomic_exchange_n(reinterpret_cast<Bits*>(&shared), ToBits(value),
                                      __ATOMIC_RELAXED));
}

void Store(float& shared, float value) {
  __atomic_store_n(reinterpret_cast<Bits*>(&shared), ToBits(value), __ATOMIC_RELAXED);
}

// k / degree in units of 2**-64, rounded down; k is less than the degree.
uint64_t Fraction(int64_t k, int64_t degree) {
  const uint64_t d = static_cast<uint64_t>(degree), upper = static_cast<uint64_t>(k) << 32;
  return upper / d << 32 | (upper % d << 32) / d;
}

// The Rows of a HopSampler. All rows are drawn before the first edge is placed: until then
// nobody knows how many there are.
class LaborRows {
 public:
  LaborRows(const GraphView& graph, LaborOptions options, Team& team, Workspace& work)
      : graph_(graph), options_(options), team_(team), w_(work), s_(work.labor) {}

  bool Bound(const Hop& hop, const Targets& targets) {
    s_.count.Reserve(targets.num);
    if (s_.chunks.size() < static_cast<size_t>(targets.num_chunks)) {
      s_.chunks.resize(targets.num_chunks);
    }
    by_importance_ = options_.importance != 0 && hop.fanout >= 0;
    if (by_importance_ && !FindImportances(hop, targets)) return false;
    w_.bound.assign(targets.num_chunks + 1, 0);
    team_.For(targets.num_chunks, [&](int64_t c) { w_.bound[c + 1] = Take(hop, targets, c); });
    for (int64_t c = 0; c < targets.num_chunks; ++c) w_.bound[c + 1] += w_.bound[c];
    if (by_importance_) {
      ForCandidates(targets, [&](int64_t, int64_t, int32_t node) { Store(s_.rarity[node], 1); });
    }
    return true;
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, Stream& stream) {
    const int32_t* position = s_.chunks[chunk].position.data();
    const float* inverse = s_.chunks[chunk].inverse.data();
    int64_t edges = w_.bound[chunk];
    for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
      const int64_t start = w_.row_start[t], count = s_.count[t];
      const bool whole = Whole(hop, t);
      if (whole) {
        stream.Add(count, [=](int64_t i) { return start + i; });
      } else {
        stream.Add(count, [=](int64_t i) { return start + position[i]; });
        position += count;
      }
      hop.indptr[t] = static_cast<int32_t>(edges);
      if (hop.edge_weight != nullptr) {
        const bool certain = whole || !by_importance_;
        Weigh(hop, w_.degree[t], certain ? nullptr : inverse, count, hop.edge_weight + edges);
        if (!certain) inverse += count;
      }
      edges += count;
    }
  }

 private:
  bool Whole(const Hop& hop, int64_t t) const {
    return hop.fanout < 0 || w_.degree[t] <= hop.fanout;
  }

  // Calls look(chunk, target, node) for every neighbour of every target.
  template <typename Look>
  void ForCandidates(const Targets& targets, const Look& look) {
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
        const int32_t* node = graph_.indices + w_.row_start[t];
        for (int32_t i = 0; i < w_.degree[t]; ++i) look(chunk, t, node[i]);
      }
    });
  }

  // Reads the beginning of a row that will be scanned.
  void PrefetchRow(const Hop& hop, int64_t t) const {
    constexpr int32_t kLine = 64 / sizeof(int32_t);
    if (Whole(hop, t)) return;
    const int32_t* neighbors = graph_.indices + w_.row_start[t];
    const int32_t count = std::min(w_.degree[t], kScanAhead);
    for (int32_t i = 0; i < count; i += kLine) PrefetchFar(neighbors + i);
  }

  // Draws for a chunk's rows; returns how many edges.
  int64_t Take(const Hop& hop, const Targets& targets, int64_t chunk) {
    auto& drawn = s_.chunks[chunk];
    drawn.position.clear();
    drawn.inverse.clear();
    int64_t edges = 0;
    Piece piece;
    for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
      const int32_t degree = w_.degree[t];
      const int32_t* neighbors = graph_.indices + w_.row_start[t];
      if (t + 1 < targets.End(chunk)) PrefetchRow(hop, t + 1);
      int64_t count = 0;
      if (Whole(hop, t)) {
        count = degree;
      } else {
        const uint64_t limit = by_importance_ ? 0 : Fraction(hop.fanout, degree);
        for (int32_t first = 0; first < degree; first += Piece::kPiece) {
          piece.neighbors = neighbors + first;
          piece.count = std::min(degree - first, Piece::kPiece);
          piece.ahead = degree - first;
          hop.phase != 0 ? TakePiece<true>(hop, t, limit, piece)
                         : TakePiece<false>(hop, t, limit, piece);
          for (int i = 0; i < piece.num_taken; ++i) {
            drawn.position.push_back(first + piece.position[i]);
          }
          if (by_importance_ && hop.edge_weight != nullptr) {
            drawn.inverse.insert(drawn.inverse.end(), piece.inverse,
                                 piece.inverse + piece.num_taken);
          }
          count += piece.num_taken;
        }
      }
      s_.count[t] = static_cast<int32_t>(count);
      edges += count;
    }
    return edges;
  }

  template <bool dependent>
  void TakePiece(const Hop& hop, int64_t t, uint64_t limit, Piece& piece) {
    if (by_importance_) {
      RunOn(isa_, TakeByImportance<dependent>{hop, s_.rate[t], s_.rarity.data(), piece});
    } else {
      RunOn(isa_, TakeBelow<dependent>{hop, limit, piece});
    }
  }

  // The weights of a row's `count` edges. `inverse`: null where each has the same probability.
  void Weigh(const Hop& hop, int32_t degree, const float* inverse, int64_t count,
             float* weight) const {
    float over = static_cast<float>(count);
    if (options_.unbiased) {
      over = static_cast<float>(by_importance_ || hop.fanout < 0
                                    ? degree
                                    : std::min<int64_t>(degree, hop.fanout));
    } else if (inverse != nullptr) {
      int64_t sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += static_cast<int64_t>(inverse[i] * kUnit);
      over = static_cast<float>(sum) * kPerUnit;
    }
    const float factor = static_cast<float>(count) / (over > 0 ? over : 1);
    for (int64_t i = 0; i < count; ++i) {
      weight[i] = (inverse == nullptr ? 1.0f : inverse[i]) * factor;
    }
  }

  // Sets each target's rate and each candidate's rarity; false where a neighbour is no node.
  bool FindImportances(const Hop& hop, const Targets& targets) {
    s_.rate.Reserve(targets.num);
    if (static_cast<int64_t>(s_.rarity.size()) < graph_.num_nodes) {
      s_.rarity.resize(graph_.num_nodes, 1.0f);
      s_.least.resize(graph_.num_nodes, kNever);
    }
    std::atomic<bool> good{true};
    ForCandidates(targets, [&](int64_t, int64_t, int32_t node) {
      if (node < 0 || node >= graph_.num_nodes) good.store(false, std::memory_order_relaxed);
    });
    if (!good.load()) return false;
    const float per_k = 1.0f / static_cast<float>(hop.fanout);
    for (int64_t t = 0; t < targets.num; ++t) {
      s_.rate[t] = Whole(hop, t) ? 1 : std::max(static_cast<float>(w_.degree[t]) * per_k, 1.0f);
    }
    int64_t before = std::numeric_limits<int64_t>::max();
    for (int64_t round = 0; options_.importance < 0 || round < options_.importance; ++round) {
      ForCandidates(targets, [&](int64_t, int64_t t, int32_t node) {
        LowerTo(s_.least[node], s_.rate[t]);
      });
      std::atomic<int64_t> expected{0};
      team_.For(targets.num_chunks, [&](int64_t chunk) {
        expected.fetch_add(Multiply(targets, chunk), std::memory_order_relaxed);
      });
      team_.For(targets.num_chunks, [&](int64_t chunk) {
        for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
          if (!Whole(hop, t)) s_.rate[t] = Solve(hop.fanout, t);
        }
      });
      if (before - expected.load() <= before / kTolerance) break;
      before = expected.load();
    }
    return true;
  }

  // Multiplies the rarity of a chunk's candidates by the least rate of their targets, each once
  // whichever chunk comes first; returns how many of them are expected to be drawn.
  int64_t Multiply(const Targets& targets, int64_t chunk) {
    int64_t expected = 0;
    for (int64_t t = targets.Begin(chunk); t < targets.End(chunk); ++t) {
      const int32_t* node = graph_.indices + w_.row_start[t];
      for (int32_t i = 0; i < w_.degree[t]; ++i) {
        const float least = Swap(s_.least[node[i]], kNever);
        if (least == kNever) continue;
        float& rarity = s_.rarity[node[i]];
        rarity = std::min(rarity * least, kMostRare);
        expected += static_cast<int64_t>((1 / rarity) * kNodeUnit);
      }
    }
    return expected;
  }

  // The rate that keeps the variance; see `_solve` in labor_plain.py.
  float Solve(int64_t k, int64_t t) const {
    const int64_t degree = w_.degree[t];
    const int32_t* node = graph_.indices + w_.row_start[t];
    float rate = kNever;
    for (int64_t sure = -1;;) {
      int64_t now = 0, rest = 0;
      for (int64_t i = 0; i < degree; ++i) {
        const float rarity = s_.rarity[node[i]];
        const bool one = Inverse(rate, rarity) <= 1;
        now += one;
        rest += one ? 0 : static_cast<int64_t>(rarity * kUnit);
      }
      if (now <= sure || rest == 0) return rate;
      const float left = static_cast<float>(degree * degree - k * now);
      const float parts = static_cast<float>(rest) * kPerUnit * static_cast<float>(k);
      rate = std::max(left / parts, 1.0f);
      sure = now;
    }
  }

  const GraphView& graph_;
  const LaborOptions options_;
  Team& team_;
  Workspace& w_;
  LaborScratch& s_;
  const Isa isa_ = BestIsa();
  bool by_importance_ = false;
};

}  // namespace

std::string SampleLabor(const GraphView& graph, const int32_t* seeds, int64_t num_seeds,
                        LaborOptions options, bool relabel_inputs, std::vector<Hop>& hops,
                        int32_t* nodes, bool* overflow, const Executor& executor) {
  return SampleHops(graph, seeds, num_seeds, relabel_inputs, hops, nodes, overflow, executor,
                    [&](Team& team, Workspace& work) {
                      return LaborRows(graph, options, team, work);
                    });
}

}  // namespace jgs
