// Walks of second order: candidates are drawn as in a walk of first order, and accepted or not.
// jgs/sampling/algorithms/walks/node2vec.py defines the results.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "walkers.h"

namespace jgs {
namespace {

constexpr int kFlying = 64;  // walks that a thread has under way

// What a walk is waiting for.
enum class Stage { kRow, kTotal, kBackFrom, kBackTo, kBackWeight, kSum, kCandidate, kTest };

struct Flight {
  Key key;
  int64_t walk;
  int32_t* path;
  uint32_t step, attempt;
  Stage stage;
  int32_t here, previous, candidate;
  EdgeRange row, previous_row;
  int32_t back_from, back_count;  // the edges to `previous`, if steps back are separate
  int64_t back_before, back_weight, total;
  uint64_t back_area, area;
  int64_t edge;
  uint32_t chance;  // the word that decides about the candidate
  LineSearch<int32_t> ids;
  LineSearch<int64_t> sums;
};

class Flights {
 public:
  Flights(Walkers& walkers, int64_t begin, int64_t end)
      : w_(walkers),
        g_(walkers.graph),
        rule_(*walkers.options.second),
        weighted_(g_.weight_prefix != nullptr),
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
      case Stage::kTotal: return Total(f);
      case Stage::kBackFrom: return !f.ids.Look() || BackFrom(f);
      case Stage::kBackTo: return !f.ids.Look() || BackTo(f);
      case Stage::kBackWeight: return BackWeight(f);
      case Stage::kSum: return !f.sums.Look() || Ask(f, f.sums.position());
      case Stage::kCandidate: return Candidate(f);
      case Stage::kTest: return !f.ids.Look() || Test(f);
    }
    return false;
  }

  bool Row(Flight& f) {
    f.row = RowOf(g_, f.here, w_.bad);
    if (f.row.count == 0) return End(f);
    if (!weighted_) return Total(f);
    __builtin_prefetch(&Sums(f)[f.row.count - 1]);
    f.stage = Stage::kTotal;
    return true;
  }

  bool Total(Flight& f) {
    f.total = weighted_ ? Sums(f)[f.row.count - 1] : f.row.count;
    if (f.total <= 0) return End(f);
    f.back_weight = 0;
    if (!rule_.apart || f.step == 1) return Attempt(f);
    f.ids.Begin(Ids(f.row), f.row.count, f.previous, f.row.count * per_node_);
    f.stage = Stage::kBackFrom;
    return true;
  }

  bool BackFrom(Flight& f) {
    f.back_from = f.ids.position();
    constexpr double kNear = 1e-300;  // the search begins with the first value
    f.ids.Begin(Ids(f.row) + f.back_from, f.row.count - f.back_from, int64_t{f.previous} + 1,
                kNear);
    f.stage = Stage::kBackTo;
    return true;
  }

  bool BackTo(Flight& f) {
    f.back_count = f.ids.position();
    if (f.back_count == 0) return Attempt(f);
    if (!weighted_) return Areas(f, f.back_from, f.back_count);
    __builtin_prefetch(&Sums(f)[std::max(f.back_from - 1, 0)]);
    __builtin_prefetch(&Sums(f)[f.back_from + f.back_count - 1]);
    f.stage = Stage::kBackWeight;
    return true;
  }

  bool BackWeight(Flight& f) {
    const int64_t before = f.back_from > 0 ? Sums(f)[f.back_from - 1] : 0;
    return Areas(f, before, Minus(Sums(f)[f.back_from + f.back_count - 1], before));
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
    if (apart && static_cast<uint64_t>(Below(uint64_t{side} << 32, f.area)) < f.back_area) {
      return Accept(f, f.previous);
    }
    const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
    int64_t point = Below(bits, static_cast<uint64_t>(f.total - f.back_weight));
    if (apart && point >= f.back_before) point += f.back_weight;
    if (!weighted_) return Ask(f, point);
    f.sums.Begin(Sums(f), f.row.count - 1, point + 1, f.row.count / static_cast<double>(f.total));
    f.stage = Stage::kSum;
    return true;
  }

  bool Ask(Flight& f, int64_t position) {
    f.edge = f.row.start + position;
    __builtin_prefetch(&g_.indices[f.edge]);
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
    f.ids.Begin(Ids(f.previous_row), f.previous_row.count, node,
                f.previous_row.count * per_node_);
    f.stage = Stage::kTest;
    return true;
  }

  bool Test(Flight& f) {
    const int32_t at = f.ids.position();
    const bool near = at < f.previous_row.count && Ids(f.previous_row)[at] == f.candidate;
    return f.chance < (near ? rule_.near : rule_.far) ? Accept(f, f.candidate) : Reject(f);
  }

  bool Accept(Flight& f, int32_t node) {
    f.path[f.step] = node;
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

  const int32_t* Ids(const EdgeRange& row) const { return g_.indices + row.start; }
  const int64_t* Sums(const Flight& f) const { return g_.weight_prefix + f.row.start; }

  Walkers& w_;
  const GraphView& g_;
  const SecondOrder& rule_;
  const bool weighted_;
  const double per_node_;
  int64_t next_;  // the first walk that has not begun
  const int64_t end_;
};

}  // namespace

void WalkSecondOrder(Walkers& walkers, int64_t begin, int64_t end) {
  Flights(walkers, begin, end).Run();
}

}  // namespace jgs
