// Walks of second order: candidates are drawn as in a walk of first order, and accepted or not.
// jgs/sampling/algorithms/node2vec.py defines the results.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "time_search.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr int kFlying = 64;  // walks that a thread has under way

// What a walk is waiting for.
enum class Stage {
  kRow,
  kEnd,
  kBegin,
  kTotal,
  kBackFrom,
  kBackTo,
  kBackWeight,
  kSum,
  kCandidate,
  kTest
};

// The position of an edge in its row, in an entry of BySource.
int32_t PositionOf(int64_t entry) { return static_cast<int32_t>(entry & 0xFFFFFFFF); }

struct Flight {
  Key key;
  int64_t walk;
  int32_t* path;
  uint32_t step, attempt;
  Stage stage;
  int32_t here, previous, candidate;
  int64_t cutoff;                 // of the step
  EdgeRange row, previous_row;    // whole rows
  int32_t begin, count;           // the eligible part of `row`
  int32_t back_from, back_count;  // the edges to `previous`, if steps back are separate
  int64_t back_before, back_weight, total;
  uint64_t back_area, area;
  int64_t edge;
  uint32_t chance;  // the word that decides about the candidate
  LineSearch<int32_t> ids;
  LineSearch<int64_t> sums;  // of weights or entries of BySource
  TimeSearch times;
};

class Flights {
 public:
  Flights(Walkers& walkers, int64_t begin, int64_t end)
      : w_(walkers),
        g_(walkers.graph),
        rule_(*walkers.options.second),
        weighted_(g_.weight_prefix != nullptr),
        order_(walkers.options.by_source),
        times_(walkers.options.limits.time),
        per_node_(1.0 / static_cast<double>(std::max<int64_t>(g_.num_nodes, 1))),
        next_(begin),
        end_(end) {}

  // Every walk in turn goes as far as what it has prefetched allows, and prefetches more.
  void Run() {
    std::vector<Flight> flights(kFlying);
    size_t num = 0;
    while (num < flights.size() && Enter(flights[num])) ++num;
    while (num > 0 && !w_.bad.load(std::memory_order_relaxed)) {
      for (size_t i = 0; i < num;) {
        if (Advance(flights[i]) || Enter(flights[i])) {
          ++i;
        } else {
          std::swap(flights[i], flights[--num]);
        }
      }
    }
  }

 private:
  bool Enter(Flight& f) {
    while (next_ < end_) {
      const int64_t walk = next_++;
      if (!w_.Begin(walk)) continue;
      f.key = w_.KeyOf(walk);
      f.walk = walk;
      f.path = w_.Path(walk);
      f.step = 0;
      f.here = -1;
      f.cutoff = w_.cutoff != nullptr ? w_.cutoff[walk] : 0;
      f.row = {0, 0};
      Arrive(f, w_.roots[walk]);
      return true;
    }
    return false;
  }

  void Arrive(Flight& f, int32_t node) {
    f.previous = f.here;
    f.previous_row = f.row;
    f.here = node;
    ++f.step;
    f.attempt = 0;
    f.stage = Stage::kRow;
    PrefetchRow(g_, node);
  }

  // Each of these returns whether the walk goes on.

  bool Advance(Flight& f) {
    switch (f.stage) {
      case Stage::kRow: return Row(f);
      case Stage::kEnd: return !f.times.Look() || Before(f);
      case Stage::kBegin: return !f.times.Look() || Since(f);
      case Stage::kTotal: return Total(f);
      case Stage::kBackFrom: return !Found(f) || BackFrom(f);
      case Stage::kBackTo: return !Found(f) || BackTo(f);
      case Stage::kBackWeight: return BackWeight(f);
      case Stage::kSum: return !f.sums.Look() || Ask(f, f.begin + f.sums.position());
      case Stage::kCandidate: return Candidate(f);
      case Stage::kTest: return !Found(f) || Test(f);
    }
    return false;
  }

  bool Row(Flight& f) {
    f.row = RowOf(g_, f.here, w_.bad);
    f.begin = 0;
    f.count = f.row.count;
    if (times_ == nullptr || f.count == 0) return Eligible(f);
    f.times.Begin(times_ + f.row.start, f.count, f.cutoff);
    f.stage = Stage::kEnd;
    return true;
  }

  bool Before(Flight& f) {
    const Limits& limits = w_.options.limits;
    f.count = f.times.position();
    if (limits.window < 0 || f.count == 0) return Eligible(f);
    f.times.Begin(times_ + f.row.start, f.count, limits.Since(f.cutoff));
    f.stage = Stage::kBegin;
    return true;
  }

  bool Since(Flight& f) {
    f.begin = f.times.position();
    f.count -= f.begin;
    return Eligible(f);
  }

  bool Eligible(Flight& f) {
    if (f.count == 0) return End(f);
    if (!weighted_) return Total(f);
    __builtin_prefetch(&Sums(f)[f.begin + f.count - 1]);
    if (f.begin > 0) __builtin_prefetch(&Sums(f)[f.begin - 1]);
    f.stage = Stage::kTotal;
    return true;
  }

  bool Total(Flight& f) {
    f.total = weighted_ ? Minus(Sum(f, f.begin + f.count), Sum(f, f.begin)) : f.count;
    if (f.total <= 0) return End(f);
    f.back_weight = 0;
    if (!rule_.apart || f.step == 1) return Attempt(f);
    Find(f, f.row, f.previous, f.begin);
    f.stage = Stage::kBackFrom;
    return true;
  }

  bool BackFrom(Flight& f) {
    f.back_from = Place(f);
    constexpr double kNear = 1e-300;  // the search begins with the first value
    const int32_t first = f.back_from, left = f.row.count - first;
    if (order_ != nullptr) {
      f.sums.Begin(Order(f.row) + first, left, Entry(f.previous, f.begin + f.count), kNear);
    } else {
      f.ids.Begin(Ids(f.row) + first, left, int64_t{f.previous} + 1, kNear);
    }
    f.stage = Stage::kBackTo;
    return true;
  }

  bool BackTo(Flight& f) {
    f.back_count = Place(f);
    if (f.back_count == 0) return Attempt(f);
    if (!weighted_) return Areas(f, f.back_from, f.back_count);
    const int64_t* const sums = order_ != nullptr ? WeightBySource(f) : Sums(f);
    __builtin_prefetch(&sums[std::max(f.back_from - 1, 0)]);
    __builtin_prefetch(&sums[f.back_from + f.back_count - 1]);
    f.stage = Stage::kBackWeight;
    return true;
  }

  bool BackWeight(Flight& f) {
    if (order_ != nullptr) return Areas(f, 0, Lost(f, f.back_count));
    const int64_t before = Sum(f, f.back_from);
    return Areas(f, before, Minus(Sum(f, f.back_from + f.back_count), before));
  }

  // The areas of steps back and of the other steps, from their weights, reduced to 31 bits.
  bool Areas(Flight& f, int64_t before, int64_t weight) {
    if (weight < 0 || weight > f.total) return Damaged();
    f.back_before = before;
    f.back_weight = weight;
    int shift = 0;
    while (f.total >> shift >= int64_t{1} << 31) ++shift;
    const auto scaled = [&](int64_t some) {
      return static_cast<uint64_t>(std::max<int64_t>(some >> shift, some > 0));
    };
    f.back_area = scaled(weight) * rule_.area_back;
    f.area = f.back_area + scaled(f.total - weight) * rule_.area_on;
    return Attempt(f);
  }

  bool Attempt(Flight& f) {
    uint32_t high = f.step, low = 2 * f.attempt, side = f.step, chance = 2 * f.attempt + 1;
    Threefry(f.key, high, low);
    Threefry(f.key, side, chance);
    f.chance = chance;
    const bool apart = f.back_weight > 0;
    const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
    if (apart && static_cast<uint64_t>(Below(uint64_t{side} << 32, f.area)) < f.back_area) {
      if (w_.options.causal) f.edge = BackEdge(f, Below(bits, f.back_weight));
      return Accept(f, f.previous);
    }
    int64_t point = Below(bits, static_cast<uint64_t>(f.total - f.back_weight));
    if (apart && order_ != nullptr) {
      point = Over(f, point);
    } else if (apart && point >= f.back_before) {
      point += f.back_weight;
    }
    if (!weighted_) return Ask(f, f.begin + point);
    const double slope = f.begin > 0 ? 0 : f.count / static_cast<double>(f.total);
    f.sums.Begin(Sums(f) + f.begin, f.count - 1, Plus(Plus(point, Sum(f, f.begin)), 1), slope);
    f.stage = Stage::kSum;
    return true;
  }

  bool Ask(Flight& f, int64_t position) {
    f.edge = f.row.start + position;
    __builtin_prefetch(&g_.indices[f.edge]);
    if (w_.options.causal) __builtin_prefetch(&times_[f.edge]);
    f.stage = Stage::kCandidate;
    return true;
  }

  bool Candidate(Flight& f) {
    const int32_t node = g_.indices[f.edge];
    if (node < 0 || node >= g_.num_nodes) return Damaged();
    if (f.step == 1) return Accept(f, node);
    if (node == f.previous) return f.chance < rule_.back ? Accept(f, node) : Reject(f);
    if (f.chance < std::min(rule_.near, rule_.far)) return Accept(f, node);
    f.candidate = node;
    const Limits& limits = w_.options.limits;
    int64_t begin = 0;
    if (times_ != nullptr && limits.window >= 0) {
      const int64_t* const row = times_ + f.previous_row.start;
      begin = std::lower_bound(row, row + f.previous_row.count, limits.Since(f.cutoff)) - row;
    }
    Find(f, f.previous_row, node, begin);
    f.stage = Stage::kTest;
    return true;
  }

  bool Test(Flight& f) {
    const int32_t at = Place(f);
    bool near = at < f.previous_row.count;
    if (near && order_ != nullptr) {
      const int64_t entry = Order(f.previous_row)[at], position = PositionOf(entry);
      near = entry >> 32 == f.candidate;
      if (near && times_ != nullptr) {
        if (position < 0 || position >= f.previous_row.count) return Damaged();
        near = times_[f.previous_row.start + position] < f.cutoff;
      }
    } else if (near) {
      near = Ids(f.previous_row)[at] == f.candidate;
    }
    return f.chance < (near ? rule_.near : rule_.far) ? Accept(f, f.candidate) : Reject(f);
  }

  bool Accept(Flight& f, int32_t node) {
    f.path[f.step] = node;
    if (w_.options.causal) f.cutoff = times_[f.edge];
    if (f.step < w_.options.length) {
      Arrive(f, node);
      return true;
    }
    w_.lengths[f.walk] = static_cast<int32_t>(w_.options.length);
    return false;
  }

  bool Reject(Flight& f) {
    ++f.attempt;
    return Attempt(f);
  }

  bool End(Flight& f) {
    w_.End(f.walk, f.step - 1);
    return false;
  }

  bool Damaged() {
    w_.bad.store(true);
    return false;
  }

  // Begins to find where the edges from `source` at or after a position of the row are among
  // its edges by source.
  void Find(Flight& f, const EdgeRange& row, int32_t source, int64_t position) {
    const double slope = row.count * per_node_;
    if (order_ != nullptr) {
      f.sums.Begin(Order(row), row.count, Entry(source, position), slope / 4294967296.0);
    } else {
      f.ids.Begin(Ids(row), row.count, source, slope);
    }
  }

  bool Found(Flight& f) { return order_ != nullptr ? f.sums.Look() : f.ids.Look(); }

  int32_t Place(const Flight& f) const {
    return order_ != nullptr ? f.sums.position() : f.ids.position();
  }

  static int64_t Entry(int32_t source, int64_t position) {
    return int64_t{source} << 32 | position;
  }

  // Of a row with BySource: the weight of its first `count` edges back.
  int64_t Lost(const Flight& f, int32_t count) const {
    if (!weighted_ || count == 0) return count;
    const int64_t* const sums = WeightBySource(f) + f.back_from;
    return Minus(sums[count - 1], f.back_from > 0 ? sums[-1] : 0);
  }

  // The first edge back, by number, for which `holds`; back_count if there is none.
  template <typename Holds>
  static int32_t FirstBack(const Flight& f, const Holds& holds) {
    int32_t low = 0, high = f.back_count;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      holds(middle) ? high = middle : low = middle + 1;
    }
    return low;
  }

  // Of a row with BySource: a point of all its eligible edges, for one of those that do not
  // lead back.
  int64_t Over(const Flight& f, int64_t point) const {
    const int64_t base = weighted_ ? Sum(f, f.begin) : f.begin;
    const int32_t passed = FirstBack(f, [&](int32_t back) {
      const int32_t position = BackPosition(f, back);
      const int64_t before = weighted_ ? Sum(f, position) : position;
      return Minus(Minus(before, base), Lost(f, back)) > point;
    });
    return Plus(point, Lost(f, passed));
  }

  // Of a row with BySource: the edge back with the point of their weight.
  int64_t BackEdge(const Flight& f, int64_t point) const {
    const int32_t back = FirstBack(f, [&](int32_t back) { return Lost(f, back + 1) > point; });
    return f.row.start + BackPosition(f, std::min(back, f.back_count - 1));
  }

  // A position in the row also if the index is damaged.
  int32_t BackPosition(const Flight& f, int32_t back) const {
    const int32_t position = PositionOf(Order(f.row)[f.back_from + back]);
    return std::min(std::max(position, 0), f.row.count - 1);
  }

  // The weight of the first `count` edges of a walk's row.
  int64_t Sum(const Flight& f, int32_t count) const { return count > 0 ? Sums(f)[count - 1] : 0; }

  const int32_t* Ids(const EdgeRange& row) const { return g_.indices + row.start; }
  const int64_t* Order(const EdgeRange& row) const { return order_ + row.start; }
  const int64_t* Sums(const Flight& f) const { return g_.weight_prefix + f.row.start; }
  const int64_t* WeightBySource(const Flight& f) const {
    return w_.options.weight_by_source + f.row.start;
  }

  Walkers& w_;
  const GraphView& g_;
  const SecondOrder& rule_;
  const bool weighted_;
  const int64_t* const order_;  // BySource, or null: rows are sorted by source
  const int64_t* const times_;  // null: there are no cutoffs
  const double per_node_;
  int64_t next_;  // the first walk that has not begun
  const int64_t end_;
};

}  // namespace

void WalkSecondOrder(Walkers& walkers, int64_t begin, int64_t end) {
  Flights(walkers, begin, end).Run();
}

}  // namespace jgs
