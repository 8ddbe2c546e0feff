#include "labor.h"

#include <algorithm>
#include <mutex>
#include <type_traits>

#include "labor_hubs.h"
#include "labor_importance.h"
#include "labor_rows.h"
#include "labor_scan.h"
#include "labor_sieve.h"
#include "sample_hops.h"

namespace jgs {
namespace {

// The Rows of a HopSampler. All rows are drawn before the first edge is placed, because their
// number of edges is not known before.
template <bool kLimited, bool by_relation>  // whether edges are excluded, see HopRows
class LaborRows {
 public:
  static constexpr bool kTimed = false, kByRelation = by_relation;
  using Id = int32_t;

  LaborRows(const GraphView& graph, const Limits& limits, const HubIndex& hubs,
            const LaborOptions& options, Team& team, Workspace& work)
      : graph_(graph), options_(options), team_(team), w_(work),
        s_(work.labor), rows_(graph, limits, options.relations, team, work),
        importances_(graph, rows_, team, work), hubs_(hubs, graph, limits, work.labor.hubs) {}

  void FindRuns(const int32_t*, int64_t, int64_t) {}  // Bound finds them

  bool Bound(const Hop& hop, const Targets& targets) {
    if (!rows_.Find(hop, targets)) return false;
    s_.count.Reserve(rows_.Num(targets));
    if (s_.chunks.size() < static_cast<size_t>(targets.num_chunks)) {
      s_.chunks.resize(targets.num_chunks);
    }
    by_importance_ = options_.importance != 0 && rows_.AnyDraws(hop);
    if (by_importance_ && !importances_.Find(hop, targets, options_.importance)) return false;
    if (!by_importance_ && !MakeSieve(hop, targets)) return false;
    w_.bound.assign(targets.num_chunks + 1, 0);
    team_.For(targets.num_chunks, [&](int64_t c) { w_.bound[c + 1] = Take(hop, targets, c); });
    for (int64_t c = 0; c < targets.num_chunks; ++c) w_.bound[c + 1] += w_.bound[c];
    if (by_importance_) importances_.Forget(targets);
    return true;
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, Stream& stream) {
    const int32_t* position = s_.chunks[chunk].position.data();
    const float* inverse = s_.chunks[chunk].inverse.data();
    int64_t edges = w_.bound[chunk], next = targets.Begin(chunk);
    const auto begin_rows = [&](int64_t end) {  // of the targets before `end`
      for (; next < end; ++next) hop.indptr[next] = static_cast<int32_t>(edges);
    };
    for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
      begin_rows(rows_.Target(r) + 1);
      const int64_t start = rows_.Start(r), count = s_.count[r];
      const bool whole = rows_.Whole(hop, r);
      const Holes holes = rows_.HolesOf(r);
      if (whole && holes.num > 0) {
        stream.Add(count, [=](int64_t i) { return holes.Edge(start, i); });
      } else if (whole) {
        stream.Add(count, [=](int64_t i) { return start + i; });
      } else {
        stream.Add(count, [=](int64_t i) { return start + position[i]; });
        position += count;
      }
      if (hop.edge_type != nullptr) {
        std::fill_n(hop.edge_type + edges, count, static_cast<int16_t>(rows_.Relation(r)));
      }
      if (hop.edge_weight != nullptr) {
        const bool certain = whole || !by_importance_;
        Weigh(rows_.Fanout(hop, r), rows_.Degree(r), certain ? nullptr : inverse, count,
              hop.edge_weight + edges);
        if (!certain) inverse += count;
      }
      edges += count;
    }
    begin_rows(targets.End(chunk));
  }

 private:
  // The number of a row's target among the hubs, or -1.
  int64_t Hub(const Targets& targets, int64_t r) const {
    if (by_relation) return -1;  // their rows are not whole
    return hubs_.Find(targets.nodes[r], rows_.Degree(r) + rows_.HolesOf(r).num);
  }

  // The same, if the sieve has drawn for the hubs.
  int64_t HubOf(const Targets& targets, int64_t r) const {
    return sieve_.exponent > 0 ? Hub(targets, r) : -1;
  }

  // Prefetches the beginning of a row that will be scanned.
  void PrefetchRow(const Hop& hop, const Targets& targets, int64_t r) const {
    constexpr int32_t kLine = 64 / sizeof(int32_t);
    if (rows_.Whole(hop, r) || HubOf(targets, r) >= 0) return;
    const int32_t* neighbors = graph_.indices + rows_.Start(r);
    const int32_t count = std::min(rows_.Degree(r), kScanAhead);
    for (int32_t i = 0; i < count; i += kLine) PrefetchFar(neighbors + i);
  }

  // Draws for the rows of a chunk; returns the number of edges.
  int64_t Take(const Hop& hop, const Targets& targets, int64_t chunk) {
    auto& drawn = s_.chunks[chunk];
    drawn.position.clear();
    drawn.inverse.clear();
    int64_t edges = 0;
    Piece piece;
    const int64_t end = rows_.End(targets, chunk);
    for (int64_t r = rows_.Begin(targets, chunk); r < end; ++r) {
      const int32_t degree = rows_.Degree(r);
      const int64_t fanout = rows_.Fanout(hop, r);
      const Holes holes = rows_.HolesOf(r);
      const int32_t length = degree + holes.num;
      const size_t before = drawn.position.size();
      const int32_t* neighbors = graph_.indices + rows_.Start(r);
      const bool whole = rows_.Whole(hop, r);
      if (r + 1 < end) PrefetchRow(hop, targets, r + 1);
      int64_t count = 0;
      if (whole) {
        count = degree;
      } else if (const int64_t hub = HubOf(targets, r); hub >= 0) {
        count = hubs_.Append(hub, drawn.position);
      } else {
        const uint64_t limit = by_importance_ ? 0 : Fraction(fanout, degree);
        const bool sieved = !by_importance_ && sieve_.Serves(fanout, degree);
        for (int32_t first = 0; first < length; first += Piece::kPiece) {
          piece.neighbors = neighbors + first;
          piece.count = std::min(length - first, Piece::kPiece);
          piece.ahead = length - first;
          sieved ? TakeSifted(hop, r, limit, piece) : TakePiece(hop, r, limit, piece);
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
      if (holes.num > 0 && !whole) count -= Drop(holes, r, before, count, drawn);
      s_.count[r] = static_cast<int32_t>(count);
      edges += count;
    }
    return edges;
  }

  // Drops the excluded edges among the last `count` positions of a chunk, those of row r, which
  // begin at `first`. Returns their number.
  int64_t Drop(const Holes& holes, int64_t r, size_t first, int64_t count,
               LaborScratch::Chunk& drawn) const {
    const int64_t start = rows_.Start(r);
    const bool inverses = !drawn.inverse.empty();
    const size_t first_inverse = drawn.inverse.size() - (inverses ? count : 0);
    size_t kept = 0;
    int32_t hole = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const int64_t edge = start + drawn.position[first + i];
      while (hole < holes.num && holes.edge[hole] < edge) ++hole;
      if (hole < holes.num && holes.edge[hole] == edge) continue;
      drawn.position[first + kept] = drawn.position[first + i];
      if (inverses) drawn.inverse[first_inverse + kept] = drawn.inverse[first_inverse + i];
      ++kept;
    }
    drawn.position.resize(first + kept);
    if (inverses) drawn.inverse.resize(first_inverse + kept);
    return count - static_cast<int64_t>(kept);
  }

  void TakePiece(const Hop& hop, int64_t r, uint64_t limit, Piece& piece) {
    hop.phase != 0 ? TakeOf<true>(hop, r, limit, piece) : TakeOf<false>(hop, r, limit, piece);
  }

  template <bool dependent>
  void TakeOf(const Hop& hop, int64_t r, uint64_t limit, Piece& piece) {
    if (by_importance_) {
      RunOn(isa_, TakeByImportance<dependent>{hop, s_.rate[r], s_.rarity.data(), piece});
    } else {
      RunOn(isa_, TakeBelow<dependent>{hop, limit, piece});
    }
  }

  // Does what TakePiece does, for the neighbours that the sieve passes.
  void TakeSifted(const Hop& hop, int64_t r, uint64_t limit, Piece& piece) {
    Sifted sifted;
    RunOn(isa_, Sift{sieve_, piece, sifted});
    Piece rest;
    rest.neighbors = sifted.node;
    rest.count = rest.ahead = sifted.count;
    TakePiece(hop, r, limit, rest);
    piece.num_taken = rest.num_taken;
    for (int i = 0; i < rest.num_taken; ++i) {
      piece.position[i] = sifted.position[rest.position[i]];
    }
  }

  // Makes the sieve of a hop if it pays, and draws for the hubs. False if their index is
  // damaged.
  bool MakeSieve(const Hop& hop, const Targets& targets) {
    Candidates all;
    std::mutex mutex;
    team_.For(targets.num_chunks, [&](int64_t chunk) {
      Candidates some;
      for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
        if (rows_.Whole(hop, r)) continue;
        const bool hub = Hub(targets, r) >= 0;
        hub ? some.AddHub(rows_.Degree(r)) : some.Add(rows_.Fanout(hop, r), rows_.Degree(r));
      }
      std::lock_guard<std::mutex> lock(mutex);
      all.Add(some);
    });
    sieve_.exponent = all.BestExponent(graph_.num_nodes, hop.phase != 0 ? 3 : 1);
    if (sieve_.exponent == 0) return true;
    hop.phase != 0 ? Fill<true>(hop) : Fill<false>(hop);
    return hubs_.good();
  }

  template <bool dependent>
  void Fill(const Hop& hop) {
    constexpr int64_t kTask = Sieve::kWordsATask;
    const int64_t num_words = Sieve::WordsOf(graph_.num_nodes);
    s_.sieve.Reserve(num_words + 1);
    uint32_t* words = s_.sieve.data();
    words[num_words] = ~uint32_t{0};
    sieve_.words = words;
    sieve_.num_words = static_cast<uint32_t>(num_words);
    const uint32_t most = hubs_.Begin(hop.fanout);
    team_.For((num_words + kTask - 1) / kTask, [&](int64_t task) {
      const int64_t begin = task * kTask, end = std::min(begin + kTask, num_words);
      FillSieve<dependent> fill{hop, sieve_.exponent, begin, end, words};
      if (!hubs_.any()) return RunOn(isa_, fill);
      std::vector<uint32_t> passed(end - begin);
      fill.most = most;
      fill.passed = passed.data();
      RunOn(isa_, fill);
      hubs_.Take<dependent>(hop, begin * kScanLanes, passed);
    });
    hubs_.End();
  }

  // The weights of a row's `count` edges. `inverse` is null if all have the same probability.
  void Weigh(int64_t fanout, int32_t degree, const float* inverse, int64_t count,
             float* weight) const {
    float over = static_cast<float>(count);
    if (options_.unbiased) {
      over = static_cast<float>(
          by_importance_ || fanout < 0 ? degree : std::min<int64_t>(degree, fanout));
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

  const GraphView& graph_;
  const LaborOptions options_;
  Team& team_;
  Workspace& w_;
  LaborScratch& s_;
  HopRows<kLimited, by_relation> rows_;
  Importances<HopRows<kLimited, by_relation>> importances_;
  const Isa isa_ = BestIsa();
  bool by_importance_ = false;
  Sieve sieve_{};  // the sieve of this hop
  Hubs hubs_;
};

}  // namespace

std::string SampleLabor(const GraphView& graph, const HubIndex& hubs, const Seeds& seeds,
                        LaborOptions options, bool relabel_inputs, std::vector<Hop>& hops,
                        const SampledNodes& sampled, const Executor& executor) {
  const bool typed = options.relations.num > 0;
  const HubIndex index = typed ? HubIndex{} : hubs;
  std::string error = CheckHubs(index, graph);
  const Limits limits = LimitsOf(seeds, nullptr, graph.num_edges, nullptr, -1, error);
  if (!error.empty()) return error;
  const auto sample = [&](auto limited, auto by_relation) {
    return SampleHops(graph, seeds, limits, relabel_inputs, hops, sampled, executor,
                      [&](Team& team, Workspace& work) {
                        return LaborRows<limited.value, by_relation.value>(
                            graph, limits, index, options, team, work);
                      });
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  if (typed) return limits.any() ? sample(yes, yes) : sample(no, yes);
  return limits.any() ? sample(yes, no) : sample(no, no);
}

}  // namespace jgs
