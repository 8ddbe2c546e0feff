#include "labor.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "labor_hubs.h"
#include "labor_importance.h"
#include "labor_rows.h"
#include "labor_scan.h"
#include "labor_sieve.h"
#include "sample_hops.h"

namespace jgs {
namespace {

// The Rows of a HopSampler. All rows are drawn before the first edge is placed, because their
// number of edges is not known before. `limited` and `timed`: see HopRows.
template <bool limited, bool timed, bool by_relation, typename IdOfRows = int32_t>
class LaborRows {
 public:
  static constexpr bool kTimed = timed, kByRelation = by_relation, kScans = true;
  using Id = IdOfRows;
  using Rows = HopRows<limited, timed, by_relation>;

  LaborRows(const GraphView& graph, const Limits& limits, const HubIndex& hubs,
            const LaborOptions& options, Team& team, Workspace& work)
      : graph_(graph), options_(options), team_(team), w_(work),
        s_(work.labor), rows_(graph, limits, options.relations, team, work),
        hubs_(hubs, graph, limits, work.labor.hubs) {}

  void FindRuns(const int32_t*, int64_t, int64_t) {}  // Bound finds them

  bool Bound(const Hop& hop, const Targets& targets) {
    if (!rows_.Find(hop, targets)) return false;
    s_.count.Reserve(rows_.Num(targets));
    FindKeys(hop);
    by_importance_ = options_.importance != 0 && rows_.AnyDraws(hop);
    by_era_ = timed && by_importance_ && w_.cutoffs.size() > 1;
    if (by_era_) return TakeByEra(hop, targets);
    s_.chunks.resize(std::max<size_t>(s_.chunks.size(), targets.num_chunks));
    const auto take = [&](const float* rarity) {
      w_.bound.assign(targets.num_chunks + 1, 0);
      team_.For(targets.num_chunks, [&](int64_t chunk) {
        w_.bound[chunk + 1] = Take(hop, targets, RowsOf(targets, chunk), s_.chunks[chunk], rarity);
      });
      for (int64_t c = 0; c < targets.num_chunks; ++c) w_.bound[c + 1] += w_.bound[c];
    };
    if (!by_importance_) {
      if (!MakeSieve(hop, targets)) return false;
      take(nullptr);
      return true;
    }
    std::vector<RowRange> all;
    for (int64_t c = 0; c < targets.num_chunks; ++c) all.push_back(RowsOf(targets, c));
    s_.rate.Reserve(rows_.Num(targets));
    auto rarities = TakeRarities();
    Importances<Rows> importances(graph_, rows_, hop, all, team_, s_.rate.data(), *rarities);
    const bool good = importances.Find(options_.importance);
    if (good) {
      take(rarities->rarity.data());
      importances.Forget();
    }
    GiveRarities(std::move(rarities));
    return good;
  }

  void Draw(const Hop& hop, const Targets& targets, int64_t chunk, StreamOf<timed, Id>& stream) {
    const LaborScratch::Chunk* drawn = by_era_ ? nullptr : &s_.chunks[chunk];
    int64_t first = 0;  // of what the row drew
    int64_t edges = w_.bound[chunk], next = targets.Begin(chunk);
    const auto begin_rows = [&](int64_t end) {  // of the targets before `end`
      for (; next < end; ++next) hop.indptr[next] = static_cast<int32_t>(edges);
    };
    for (int64_t r = rows_.Begin(targets, chunk); r < rows_.End(targets, chunk); ++r) {
      begin_rows(rows_.Target(r) + 1);
      const int64_t start = rows_.Start(r), count = s_.count[r];
      const bool whole = rows_.Whole(hop, r);
      const Holes holes = rows_.HolesOf(r);
      const int32_t era = Era(r);
      if (by_era_) {
        drawn = &s_.chunks[era];
        first = s_.first[r];
      }
      if (whole && holes.num > 0) {
        stream.Add(count, [=](int64_t i) { return holes.Edge(start, i); }, era);
      } else if (whole) {
        stream.Add(count, [=](int64_t i) { return start + i; }, era);
      } else {
        const int32_t* position = drawn->position.data() + first;
        stream.Add(count, [=](int64_t i) { return start + position[i]; }, era);
      }
      if (hop.edge_type != nullptr) {
        std::fill_n(hop.edge_type + edges, count, static_cast<int16_t>(rows_.Relation(r)));
      }
      if (hop.edge_weight != nullptr) {
        const bool certain = whole || !by_importance_;
        Weigh(rows_.Fanout(hop, r), rows_.Degree(r),
              certain ? nullptr : drawn->inverse.data() + first, count, hop.edge_weight + edges);
      }
      if (!whole) first += count;
      edges += count;
    }
    begin_rows(targets.End(chunk));
  }

 private:
  // The number of the cutoff of a row's target.
  int32_t Era(int64_t r) const { return timed ? rows_.Era(rows_.Target(r)) : 0; }

  RowRange RowsOf(const Targets& targets, int64_t chunk) const {
    return {rows_.Begin(targets, chunk), rows_.End(targets, chunk)};
  }

  // What names the numbers of this hop's nodes, under each cutoff.
  void FindKeys(const Hop& hop) {
    keys_.clear();
    if constexpr (!timed) keys_.emplace_back(hop);
    for (size_t era = 0; timed && era < w_.cutoffs.size(); ++era) {
      keys_.emplace_back(hop, w_.cutoffs[era]);
    }
  }

  // Draws by importance for the rows of each cutoff by themselves, which one thread does. False if
  // the graph is damaged.
  bool TakeByEra(const Hop& hop, const Targets& targets) {
    const int64_t num_rows = rows_.Num(targets);
    const int64_t num_eras = static_cast<int64_t>(w_.cutoffs.size());
    s_.chunks.resize(std::max<size_t>(s_.chunks.size(), num_eras));
    s_.rate.Reserve(num_rows);
    s_.first.Reserve(num_rows);
    s_.by_era.Reserve(num_rows);
    s_.era_begin.assign(num_eras + 1, 0);
    for (int64_t r = 0; r < num_rows; ++r) ++s_.era_begin[Era(r) + 1];
    for (int64_t era = 0; era < num_eras; ++era) s_.era_begin[era + 1] += s_.era_begin[era];
    std::vector<int64_t> next(s_.era_begin.begin(), s_.era_begin.end() - 1);
    for (int64_t r = 0; r < num_rows; ++r) s_.by_era[next[Era(r)]++] = r;
    std::atomic<bool> good{true};
    team_.For(num_eras, [&](int64_t era) {
      const RowRange rows{s_.era_begin[era], s_.era_begin[era + 1], s_.by_era.data()};
      auto rarities = TakeRarities();
      Importances<Rows> importances(graph_, rows_, hop, {rows}, team_, s_.rate.data(), *rarities);
      if (importances.Find(options_.importance)) {
        Take(hop, targets, rows, s_.chunks[era], rarities->rarity.data());
        importances.Forget();
      } else {
        good.store(false);
      }
      GiveRarities(std::move(rarities));
    });
    if (!good.load()) return false;
    w_.bound.assign(targets.num_chunks + 1, 0);
    for (int64_t chunk = 0; chunk < targets.num_chunks; ++chunk) {
      int64_t sum = w_.bound[chunk];
      RowsOf(targets, chunk).For([&](int64_t r) { sum += s_.count[r]; });
      w_.bound[chunk + 1] = sum;
    }
    return true;
  }

  std::unique_ptr<Rarities> TakeRarities() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (s_.rarities.empty()) return std::make_unique<Rarities>();
    auto rarities = std::move(s_.rarities.back());
    s_.rarities.pop_back();
    return rarities;
  }

  void GiveRarities(std::unique_ptr<Rarities> rarities) {
    std::lock_guard<std::mutex> lock(mutex_);
    s_.rarities.push_back(std::move(rarities));
  }

  // The number of a row's target among the hubs, or -1.
  int64_t Hub(const Targets& targets, int64_t r) const {
    if (timed || by_relation) return -1;  // their rows are not whole
    return hubs_.Find(targets.nodes[r], rows_.Degree(r) + rows_.HolesOf(r).num);
  }

  // The same, if the sieve has drawn for the hubs.
  int64_t HubOf(const Targets& targets, int64_t r) const {
    return sieve_.exponent > 0 ? Hub(targets, r) : -1;
  }

  // Prefetches the beginning of a row that will be scanned.
  JGS_INLINE void PrefetchRow(const Hop& hop, const Targets& targets, int64_t r) const {
    constexpr int32_t kLine = 64 / sizeof(int32_t);
    if (rows_.Whole(hop, r) || HubOf(targets, r) >= 0) return;
    const int32_t* neighbors = graph_.indices + rows_.Start(r);
    const int32_t count = std::min(rows_.Degree(r), kScanAhead);
    for (int32_t i = 0; i < count; i += kLine) PrefetchFar(neighbors + i);
  }

  // Draws for some rows, to `drawn`; returns the number of edges. `rarity` has that of every node
  // if draws are by importance.
  int64_t Take(const Hop& hop, const Targets& targets, const RowRange& rows,
               LaborScratch::Chunk& drawn, const float* rarity) {
    drawn.position.clear();
    drawn.inverse.clear();
    int64_t edges = 0;
    Piece piece;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t r = rows.At(i);
      const int32_t degree = rows_.Degree(r);
      const int64_t fanout = rows_.Fanout(hop, r);
      const Holes holes = rows_.HolesOf(r);
      const int32_t length = degree + holes.num;
      const size_t before = drawn.position.size();
      const int32_t* neighbors = graph_.indices + rows_.Start(r);
      const bool whole = rows_.Whole(hop, r);
      if (by_era_) s_.first[r] = static_cast<int64_t>(before);
      if (i + 1 < rows.end) PrefetchRow(hop, targets, rows.At(i + 1));
      const NumberKeys& keys = keys_[Era(r)];
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
          const float rate = by_importance_ ? s_.rate[r] : 0;
          sieved ? TakeSifted(keys, limit, piece) : TakePiece(keys, rate, rarity, limit, piece);
          for (int j = 0; j < piece.num_taken; ++j) {
            drawn.position.push_back(first + piece.position[j]);
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

  // Takes the neighbours of a piece whose numbers are below `limit`, or, where there are
  // rarities, below what follows from these and the row's rate.
  void TakePiece(const NumberKeys& keys, float rate, const float* rarity, uint64_t limit,
                 Piece& piece) {
    keys.phase != 0 ? TakeOf<true>(keys, rate, rarity, limit, piece)
                    : TakeOf<false>(keys, rate, rarity, limit, piece);
  }

  template <bool dependent>
  void TakeOf(const NumberKeys& keys, float rate, const float* rarity, uint64_t limit,
              Piece& piece) {
    if (rarity != nullptr) {
      RunOn(isa_, TakeByImportance<dependent>{keys, rate, rarity, piece});
    } else {
      RunOn(isa_, TakeBelow<dependent>{keys, limit, piece});
    }
  }

  // Does what TakePiece does, for the neighbours that the sieve passes.
  void TakeSifted(const NumberKeys& keys, uint64_t limit, Piece& piece) {
    Sifted sifted;
    RunOn(isa_, Sift{sieve_, piece, sifted});
    Piece rest;
    rest.neighbors = sifted.node;
    rest.count = rest.ahead = sifted.count;
    TakePiece(keys, 0, nullptr, limit, rest);
    piece.num_taken = rest.num_taken;
    for (int i = 0; i < rest.num_taken; ++i) {
      piece.position[i] = sifted.position[rest.position[i]];
    }
  }

  // Makes the sieve of a hop if it pays, and draws for the hubs. False if their index is
  // damaged.
  bool MakeSieve(const Hop& hop, const Targets& targets) {
    if constexpr (timed) return true;  // each cutoff would need one of its own
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
  Rows rows_;
  std::mutex mutex_;              // guards the rarities that nobody uses
  std::vector<NumberKeys> keys_;  // of this hop, one for each cutoff
  const Isa isa_ = BestIsa();
  // Whether this hop draws by importance, and whether by that of each cutoff.
  bool by_importance_ = false, by_era_ = false;
  Sieve sieve_{};  // the sieve of this hop
  Hubs hubs_;
};

}  // namespace

std::string SampleLabor(const GraphView& graph, const HubIndex& hubs, const Seeds& seeds,
                        LaborOptions options, bool relabel_inputs, std::vector<Hop>& hops,
                        const SampledNodes& sampled, const Executor& executor) {
  const bool typed = options.relations.num > 0;
  const HubIndex index = typed || seeds.time != nullptr ? HubIndex{} : hubs;
  std::string error = CheckHubs(index, graph);
  const Limits limits = LimitsOf(seeds, options.edge_time, graph.num_edges, nullptr,
                                 options.window, error);
  if (!error.empty()) return error;
  const auto sample = [&](auto limited, auto timed, auto by_relation, auto id) {
    using Rows = LaborRows<limited.value, timed.value, by_relation.value, decltype(id)>;
    return SampleHops(graph, seeds, limits, relabel_inputs, hops, sampled, executor,
                      [&](Team& team, Workspace& work) {
                        return Rows(graph, limits, index, options, team, work);
                      });
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  constexpr int32_t narrow = 0;
  constexpr int64_t wide = 0;
  if (limits.time != nullptr) {
    if (typed) return sample(yes, yes, yes, wide);
    if (Packs(seeds, graph.num_nodes)) return sample(yes, yes, no, narrow);
    return sample(yes, yes, no, wide);
  }
  if (typed) return limits.any() ? sample(yes, no, yes, narrow) : sample(no, no, yes, narrow);
  return limits.any() ? sample(yes, no, no, narrow) : sample(no, no, no, narrow);
}

}  // namespace jgs
