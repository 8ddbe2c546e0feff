#include "walk.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draw_recent.h"
#include "isa.h"
#include "time_search.h"
#include "walk_runs.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr double kStepsOfTask = 2048;

// For each walk, the number of earlier roots that are the same node and have the same cutoff.
std::vector<int32_t> WalkNumbers(const Seeds& seeds) {
  uint64_t size = 4;
  while (size < 2 * static_cast<uint64_t>(seeds.num)) size *= 2;
  struct Entry {
    int32_t root, count;
  };
  const int32_t* const roots = seeds.nodes;
  const int64_t* const time = seeds.time;
  std::vector<Entry> table(size, Entry{-1, 0});
  std::vector<int64_t> cutoff(time != nullptr ? size : 0);  // of the entries
  std::vector<int32_t> number(seeds.num);
  const auto place = [&](int64_t i) {
    uint64_t named = static_cast<uint32_t>(roots[i]) * uint64_t{0x9E3779B97F4A7C15};
    if (time != nullptr) {
      named = (named ^ static_cast<uint64_t>(time[i])) * uint64_t{0xD6E8FEB86659FD93};
    }
    return named >> 20 & (size - 1);
  };
  constexpr int64_t kAhead = 16;
  for (int64_t i = 0; i < seeds.num; ++i) {
    if (i + kAhead < seeds.num) __builtin_prefetch(&table[place(i + kAhead)], 1);
    uint64_t at = place(i);
    const auto other = [&] {
      return table[at].root != roots[i] || (time != nullptr && cutoff[at] != time[i]);
    };
    while (table[at].count > 0 && other()) at = (at + 1) & (size - 1);
    if (time != nullptr) cutoff[at] = time[i];
    table[at].root = roots[i];
    number[i] = table[at].count++;
  }
  return number;
}

// What steps draw from: whole rows; stretches with holes, as edges are excluded or there are
// cutoffs; or such stretches of all relations of a row.
enum class Rows { kWhole, kLimited, kRuns };

// Walks of first order, a step of every lane in turn. Each stage prefetches, for all lanes,
// what the next one reads, so that the reads of one walk overlap with those of the others.
template <Rows kRows>
class Lanes {
 public:
  Lanes(Walkers& walkers, int64_t begin, int64_t end)
      : w_(walkers), g_(walkers.graph), o_(walkers.options), next_(begin), end_(end),
        runs_(walkers.graph, walkers.options, walkers.bad) {}

  void Run() {
    while (num_ < kLanes && Enter(num_)) ++num_;
    while (num_ > 0) {
      RunOn(isa_, Bits{*this, 0, high_, low_});
      if (o_.restart != 0 || o_.stop != 0) RunOn(isa_, Bits{*this, kJumps, back_, end_word_});
      if (kRuns) {
        FindRuns();
      } else {
        FindRows();
      }
      Jump();
      if (kRuns && g_.weight_prefix != nullptr) {
        DrawByWeightOfRuns();
      } else if (g_.weight_prefix != nullptr) {
        DrawByWeight();
      } else if (kLimited && o_.recency.half_life > 0) {
        DrawByRecency();
      } else {
        Draw();
      }
      Step();
      if (w_.bad.load(std::memory_order_relaxed)) return;
    }
  }

 private:
  static constexpr bool kLimited = kRows != Rows::kWhole, kRuns = kRows == Rows::kRuns;
  static constexpr int64_t kNone = -1, kBack = -2;  // in place of an edge
  static constexpr int kWhole = 16;                 // lanes of the widest vectors

  struct Bits {
    Lanes& l;
    uint32_t number;
    uint32_t *high, *low;
    JGS_INLINE void operator()() const {
      const int used = (l.num_ + kWhole - 1) / kWhole * kWhole;
      for (int r = 0; r < used; ++r) {
        uint32_t x0 = l.step_[r], x1 = number;
        Threefry({{l.key0_[r], l.key1_[r]}}, x0, x1);
        high[r] = x0;
        low[r] = x1;
      }
    }
  };

  // Puts the next walk that is not padding into a lane; false if there is none.
  bool Enter(int lane) {
    while (next_ < end_) {
      const int64_t walk = next_++;
      if (!w_.Begin(walk)) continue;
      const Key key = w_.KeyOf(walk);
      key0_[lane] = key.word[0];
      key1_[lane] = key.word[1];
      walk_[lane] = walk;
      path_[lane] = w_.Path(walk);
      here_[lane] = w_.roots[walk];
      cutoff_[lane] = CutoffOfRoot(lane);
      step_[lane] = 1;
      AskForRow(lane);
      return true;
    }
    return false;
  }

  int64_t CutoffOfRoot(int r) const {
    return w_.cutoff != nullptr ? w_.cutoff[walk_[r]] : 0;
  }

  void FindRows() {
    for (int r = 0; r < num_; ++r) {
      inside_[r] = false;
      if (o_.stretches == nullptr) {
        row_[r] = RowOf(g_, here_[r], w_.bad);
      } else {
        const int64_t* stretch = Stretch(r);
        row_[r] = RangeOf(g_, stretch[0], stretch[1], w_.bad);
        inside_[r] = NeedsRow() && row_[r].start > g_.indptr[here_[r]];
      }
    }
    if (kLimited) Limit();
  }

  // Makes each lane's row as long as the eligible edges of its relations are many.
  void FindRuns() {
    runs_.Find(num_, here_, cutoff_);
    for (int r = 0; r < num_; ++r) row_[r] = {0, static_cast<int32_t>(runs_.Total(r))};
  }

  // Makes each lane's row the stretch that its step's cutoff and the excluded edges leave.
  void Limit() {
    for (int r = 0; r < num_; ++r) run_[r] = row_[r].start;
    if (o_.limits.time != nullptr) {
      Search(false, [&](int64_t r, int32_t found) { row_[r].count = found; });
      if (o_.limits.window >= 0) {
        Search(true, [&](int64_t r, int32_t found) {
          row_[r] = {row_[r].start + found, row_[r].count - found};
          inside_[r] |= found > 0;
        });
      }
    }
    for (int r = 0; r < num_; ++r) {
      int64_t count = row_[r].count;
      holes_[r] = o_.limits.StepOver(row_[r].start, count);
      skipped_[r] = o_.latest >= 0 ? std::max<int64_t>(count - o_.latest, 0) : 0;
      row_[r].count = static_cast<int32_t>(count - skipped_[r]);
    }
  }

  // How many edges of each lane's row are before its cutoff, or before its window.
  template <typename Keep>
  void Search(bool window, const Keep& keep) const {
    SearchTimes(
        num_,
        [&](int64_t r, const int64_t*& values, int32_t& count, int64_t& target) {
          values = o_.limits.time + row_[r].start;
          count = row_[r].count;
          target = window ? o_.limits.Since(cutoff_[r]) : cutoff_[r];
        },
        keep);
  }

  // The part of the row of a lane's node from which the step draws.
  const int64_t* Stretch(int r) const {
    const int64_t relation = o_.relations[(step_[r] - 1) % o_.num_relations];
    return o_.stretches + 2 * (relation * g_.num_nodes + here_[r]);
  }

  // Such a part is enough without weights; with weights the rest of the row must be known too.
  bool NeedsRow() const { return o_.stretches == nullptr || g_.weight_prefix != nullptr; }

  void AskForRow(int r) const {
    if (kRuns) runs_.AskFor(here_[r]);
    if (NeedsRow() && !(kRuns && g_.weight_prefix == nullptr)) PrefetchRow(g_, here_[r]);
    if (o_.stretches != nullptr) __builtin_prefetch(Stretch(r));
  }

  // Decides which lanes go on: edge_ becomes the beginning of their draw, or what they do
  // instead.
  void Jump() {
    for (int r = 0; r < num_; ++r) {
      edge_[r] = row_[r].count > 0 ? row_[r].start : kNone;
      if (step_[r] == 1) continue;
      if (o_.restart != 0 && back_[r] < o_.restart) edge_[r] = kBack;
      if (o_.stop != 0 && end_word_[r] < o_.stop) edge_[r] = kNone;
    }
  }

  void Draw() {
    for (int r = 0; r < num_; ++r) {
      const uint64_t n = static_cast<uint64_t>(row_[r].count), carry = low_[r] * n >> 32;
      const int64_t position = static_cast<int64_t>((high_[r] * n + carry) >> 32);
      if constexpr (kRuns) {
        if (edge_[r] >= 0) {
          int64_t within = position;
          const WalkRuns::Part& part = runs_.At(r, within);
          edge_[r] = part.holes.Edge(part.start, within);
        }
      } else {
        const int64_t edge =
            kLimited ? holes_[r].Edge(edge_[r], skipped_[r] + position) : edge_[r] + position;
        edge_[r] = edge_[r] < 0 ? edge_[r] : edge;
      }
      if (edge_[r] >= 0) PrefetchEdge(edge_[r]);
    }
  }

  void DrawByRecency() {
    for (int r = 0; r < num_; ++r) {
      if (edge_[r] < 0) continue;
      const int64_t last = edge_[r] + row_[r].count + holes_[r].num - 1;
      __builtin_prefetch(&o_.recency.sums[last]);
    }
    while (recent_.size() < kLanes) recent_.emplace_back(o_.recency);
    for (int r = 0; r < num_; ++r) {
      if (edge_[r] < 0) continue;
      const int64_t latest = holes_[r].Edge(edge_[r], row_[r].count - 1);
      recent_[r].Begin(run_[r], edge_[r], latest, holes_[r]);
      recent_[r].Draw(static_cast<uint64_t>(high_[r]) << 32 | low_[r]);
    }
    RecentRow::SearchAll(recent_.data(), num_);
    for (int r = 0; r < num_; ++r) {
      if (edge_[r] < 0) continue;
      edge_[r] = recent_[r].Found();
      PrefetchEdge(edge_[r]);
    }
  }

  void DrawByWeight() {
    const int64_t* prefix = g_.weight_prefix;
    int64_t length[kLanes];
    for (int r = 0; r < num_; ++r) {
      length[r] = row_[r].count + (kLimited ? holes_[r].num : 0);
      if (edge_[r] >= 0) __builtin_prefetch(&prefix[edge_[r] + length[r] - 1]);
      if (edge_[r] >= 0 && inside_[r]) __builtin_prefetch(&prefix[edge_[r] - 1]);
    }
    for (int r = 0; r < num_; ++r) {
      if (edge_[r] < 0) continue;
      const int64_t before = inside_[r] ? prefix[edge_[r] - 1] : 0;
      HoleWeights holes{before};
      if (kLimited) holes = o_.limits.WeightsOf(holes_[r], edge_[r], before);
      const int64_t last = prefix[edge_[r] + length[r] - 1];
      const int64_t total = Minus(Minus(last, before), holes.Lost(holes.num));
      if (total <= 0) {
        edge_[r] = kNone;
        continue;
      }
      SearchWeight(r, length[r], total, holes, Below(BitsOf(r), static_cast<uint64_t>(total)));
    }
    FindWeights();
  }

  void DrawByWeightOfRuns() {
    runs_.Weigh(num_, here_);
    for (int r = 0; r < num_; ++r) {
      if (edge_[r] < 0) continue;
      const int64_t total = runs_.Total(r);
      if (total <= 0) {
        edge_[r] = kNone;
        continue;
      }
      int64_t point = Below(BitsOf(r), static_cast<uint64_t>(total));
      const WalkRuns::Part& part = runs_.At(r, point);
      edge_[r] = part.start;
      SearchWeight(r, part.length, part.size, runs_.WeightsOf(part), point);
    }
    FindWeights();
  }

  uint64_t BitsOf(int r) const { return static_cast<uint64_t>(high_[r]) << 32 | low_[r]; }

  // Begins to search for the edge that has a point below `total`, the weight of the stretch of
  // `length` edges that begins at edge_.
  void SearchWeight(int r, int64_t length, int64_t total, const HoleWeights& holes,
                    int64_t point) {
    sums_[r].Begin(g_.weight_prefix + edge_[r], static_cast<int32_t>(length) - 1,
                   Plus(holes.InRow(point), 1),
                   holes.base > 0 ? 0 : length / static_cast<double>(total));
    open_[num_open_++] = static_cast<uint8_t>(r);
  }

  void FindWeights() {
    while (num_open_ > 0) {
      int still = 0;
      for (int i = 0; i < num_open_; ++i) {
        const int r = open_[i];
        if (sums_[r].Look()) {
          edge_[r] += sums_[r].position();
          PrefetchEdge(edge_[r]);
        } else {
          open_[still++] = open_[i];
        }
      }
      num_open_ = still;
    }
  }

  void Step() {
    int kept = 0;
    for (int r = 0; r < num_; ++r) {
      int32_t there = -1;
      if (edge_[r] >= 0) {
        there = g_.indices[edge_[r]];
        if (there < 0 || there >= g_.num_nodes) {
          w_.bad.store(true);
          return;
        }
        if (kLimited && o_.causal) cutoff_[r] = o_.limits.time[edge_[r]];
      } else if (edge_[r] == kBack) {
        there = w_.roots[walk_[r]];
        cutoff_[r] = CutoffOfRoot(r);
      }
      bool goes_on = there >= 0;
      if (goes_on) {
        path_[r][step_[r]] = there;
        if (w_.edges != nullptr) w_.edges[walk_[r] * o_.length + step_[r] - 1] = edge_[r];
        goes_on = step_[r] < o_.length;
        if (!goes_on) w_.lengths[walk_[r]] = static_cast<int32_t>(o_.length);
      } else {
        w_.End(walk_[r], step_[r] - 1);
      }
      if (goes_on) {
        here_[r] = there;
        ++step_[r];
        AskForRow(r);
        Move(r, kept++);
      } else if (Enter(r)) {
        Move(r, kept++);
      }
    }
    num_ = kept;
  }

  void Move(int from, int to) {
    if (from == to) return;
    key0_[to] = key0_[from];
    key1_[to] = key1_[from];
    walk_[to] = walk_[from];
    path_[to] = path_[from];
    here_[to] = here_[from];
    cutoff_[to] = cutoff_[from];
    step_[to] = step_[from];
  }

  JGS_INLINE void PrefetchEdge(int64_t edge) const {
    __builtin_prefetch(&g_.indices[edge]);
    if (kLimited && o_.causal) __builtin_prefetch(&o_.limits.time[edge]);
  }

  Walkers& w_;
  const GraphView& g_;
  const WalkOptions& o_;
  const Isa isa_ = BestIsa();
  int64_t next_;  // the first walk that has had no lane
  const int64_t end_;
  int num_ = 0;  // lanes in use, which come first
  uint32_t key0_[kLanes] = {}, key1_[kLanes] = {}, step_[kLanes] = {};
  uint32_t high_[kLanes], low_[kLanes], back_[kLanes], end_word_[kLanes];
  int64_t walk_[kLanes], edge_[kLanes];
  int64_t cutoff_[kLanes];    // of the step; 0 without times
  int64_t run_[kLanes];       // where the edges begin of which the row is a part
  std::vector<RecentRow> recent_;
  int32_t* path_[kLanes];
  int32_t here_[kLanes];
  EdgeRange row_[kLanes];     // or the part of the row that the step draws from
  bool inside_[kLanes];       // whether the row has edges before that part
  Holes holes_[kLanes];       // the excluded edges in that part
  int64_t skipped_[kLanes];   // its eligible edges that come before the latest ones
  WalkRuns runs_;
  LineSearch<int64_t> sums_[kLanes];
  uint8_t open_[kLanes];      // the lanes whose searches go on
  int num_open_ = 0;
};

}  // namespace

void WalkFirstOrder(Walkers& walkers, int64_t begin, int64_t end) {
  const WalkOptions& options = walkers.options;
  if (options.index.indptr != nullptr) return Lanes<Rows::kRuns>(walkers, begin, end).Run();
  if (options.limits.any()) return Lanes<Rows::kLimited>(walkers, begin, end).Run();
  Lanes<Rows::kWhole>(walkers, begin, end).Run();
}

std::string SampleWalks(const GraphView& graph, Key key, const Seeds& seeds,
                        const WalkOptions& options, int32_t* nodes, int32_t* lengths,
                        const Executor& executor) {
  const int32_t* roots = seeds.nodes;
  const int64_t num_roots = seeds.num;
  std::string error = CheckSeeds(roots, num_roots, graph.num_nodes);
  if (!error.empty()) return error;
  const std::vector<int32_t> number = WalkNumbers(seeds);
  Walkers walkers{graph, key, roots, seeds.time, number.data(), options, nodes, lengths};
  // Enough walks to fill all lanes of a thread and to be worth waking it, and several tasks for
  // each thread if there are many.
  const double ends = static_cast<double>(options.stop) / 4294967296.0;  // the chance of a step
  const double steps = std::min(static_cast<double>(options.length), 1.0 / std::max(ends, 1e-9));
  const int64_t share = num_roots / (4 * std::max<int64_t>(executor.num_threads, 1));
  const int64_t least = std::max<int64_t>(kLanes, static_cast<int64_t>(kStepsOfTask / steps));
  const int64_t size = std::max(least, std::min<int64_t>(share, 1024));
  ParallelFor(executor, (num_roots + size - 1) / size, [&](int64_t task) {
    const int64_t begin = task * size, end = std::min(begin + size, num_roots);
    if (options.second != nullptr) return WalkSecondOrder(walkers, begin, end);
    WalkFirstOrder(walkers, begin, end);
  });
  return walkers.bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
