#include "frontier.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "draw_weighted.h"
#include "isa.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr int64_t kUnits = 1024;  // `enlargement` is a number of these parts
constexpr uint32_t kAttempts = 8;
// The second counter of random bits; see frontier.py.
constexpr uint32_t kInitial = 0, kSuccessor = 1, kPop = 2;

// 64 random bits for each of kLanes counters from `first` on, computed with vector
// instructions.
struct Bits {
  Key key;
  uint32_t first, number;
  uint64_t* bits;
  JGS_INLINE void operator()() const {
    uint32_t high[kLanes], low[kLanes];
    for (int r = 0; r < kLanes; ++r) {
      uint32_t x0 = first + static_cast<uint32_t>(r), x1 = number;
      Threefry(key, x0, x1);
      high[r] = x0;
      low[r] = x1;
    }
    for (int r = 0; r < kLanes; ++r) bits[r] = static_cast<uint64_t>(high[r]) << 32 | low[r];
  }
};

// The table in which a slot of the frontier owns a range of as many entries as its degree; and
// its index array, which has the range of each slot. An entry that its slot does not own is
// dead, and its contents mean nothing.
class Dashboard {
 public:
  explicit Dashboard(int64_t num_slots) : start_(num_slots), degree_(num_slots, 0) {}

  int64_t used() const { return used_; }
  int64_t live() const { return live_; }

  // Gives a slot `degree` entries after the last one, in place of those that it has.
  void Put(int64_t slot, int64_t degree) {
    live_ += degree - degree_[slot];
    degree_[slot] = static_cast<uint32_t>(degree);
    Append(slot);
  }

  // Moves the entries of all slots to the front, in the order of the slots.
  void CleanUp() {
    used_ = 0;
    for (size_t slot = 0; slot < start_.size(); ++slot) Append(slot);
  }

  // The slot that owns this entry, or -1.
  int64_t Owner(int64_t entry) const {
    const int32_t slot = slot_[entry];
    return static_cast<uint32_t>(entry) - start_[slot] < degree_[slot] ? slot : -1;
  }

 private:
  static constexpr int64_t kWhole = 16;  // entries that are written at once

  void Append(int64_t slot) {
    const int64_t degree = degree_[slot];
    start_[slot] = static_cast<uint32_t>(used_);
    if (used_ + degree + kWhole > static_cast<int64_t>(slot_.size())) {
      slot_.resize(2 * (used_ + degree + kWhole));
    }
    for (int64_t i = 0; i < degree; i += kWhole) {
      std::fill_n(&slot_[used_ + i], kWhole, static_cast<int32_t>(slot));
    }
    used_ += degree;
  }

  int64_t used_ = 0, live_ = 0;
  std::vector<int32_t> slot_;            // for every entry
  std::vector<uint32_t> start_, degree_;  // for every slot
};

// Draws one subgraph. What a pop reads is prefetched and read some pops after its node has
// entered, mostly long before the node is popped: first the edge to the successor, then the
// successor's row.
class Sampler {
 public:
  Sampler(const GraphView& graph, Key key, const FrontierOptions& options,
          std::atomic<bool>& bad)
      : g_(graph), key_(key), o_(options), bad_(bad), board_(options.size),
        member_(options.size) {}

  // The first frontier and the popped nodes, with repetitions; any nodes if the graph is
  // damaged.
  std::vector<int32_t> Run() {
    std::vector<int32_t> met;
    met.reserve(o_.size + std::min(o_.pops, kManyPops));
    Begin();
    for (const Member& member : member_) met.push_back(member.node);
    for (int64_t pop = 0; pop < o_.pops && board_.live() > 0; ++pop) {
      if (pop % kLanes == 0) DrawBits(pop);
      const int64_t slot = Pop(pop);
      Member& member = member_[slot];
      met.push_back(member.node);
      FindSuccessor(member);
      FindRow(member);
      member.node = member.successor;
      board_.Put(slot, Enter(member, {member.at, member.count}, successor_[pop % kLanes]));
      if (pop >= 2 * kDelay) FindRow(*entered_[(pop - 2 * kDelay) % (2 * kDelay)]);
      if (pop >= kDelay) FindSuccessor(*entered_[(pop - kDelay) % (2 * kDelay)]);
      entered_[pop % (2 * kDelay)] = &member;
      if (bad_.load(std::memory_order_relaxed)) break;
    }
    return met;
  }

 private:
  static constexpr int64_t kManyPops = 1 << 20;
  static constexpr int64_t kDelay = 8;    // pops until a prefetched value is read
  static constexpr uint32_t kAtOnce = 2;  // attempts whose bits are drawn for many pops at once

  // A node of the frontier, and what is known of its successor.
  struct Member {
    int32_t node;
    int32_t successor;  // kUnknown until it is read; kNone for a node without neighbours
    int32_t count;      // of edges in the successor's row; kUnknown until it is read
    int64_t at;         // the edge to the successor; later the beginning of the successor's row
  };
  static constexpr int32_t kUnknown = -1, kNone = -2;

  void Begin() {
    uint64_t bits[kLanes];
    ForLanes([&](int64_t first, int64_t num) {
      RunOn(isa_, Bits{key_, static_cast<uint32_t>(first), kInitial, bits});
      for (int64_t i = 0; i < num; ++i) {
        const int64_t node = Below(bits[i], static_cast<uint64_t>(g_.num_nodes));
        member_[first + i].node = static_cast<int32_t>(node);
        PrefetchRow(g_, member_[first + i].node);
      }
    });
    ForLanes([&](int64_t first, int64_t num) {
      RunOn(isa_, Bits{key_, static_cast<uint32_t>(first), kSuccessor, bits});
      for (int64_t i = 0; i < num; ++i) {
        Member& member = member_[first + i];
        board_.Put(first + i, Enter(member, RowOf(g_, member.node, bad_), bits[i]));
      }
    });
    for (Member& member : member_) FindSuccessor(member);
    for (Member& member : member_) FindRow(member);
  }

  // Calls body(first, num) for the slots, kLanes at a time.
  template <typename Body>
  void ForLanes(const Body& body) {
    for (int64_t first = 0; first < o_.size; first += kLanes) {
      body(first, std::min<int64_t>(kLanes, o_.size - first));
    }
  }

  // Draws the bits of kLanes pops.
  void DrawBits(int64_t pop) {
    const uint32_t first = static_cast<uint32_t>(pop);
    for (uint32_t i = 0; i < kAtOnce; ++i) RunOn(isa_, Bits{key_, first, kPop + i, attempt_[i]});
    const uint32_t entrance = first + static_cast<uint32_t>(o_.size);
    RunOn(isa_, Bits{key_, entrance, kSuccessor, successor_});
  }

  // The slot that is popped. Some slots must be live.
  int64_t Pop(int64_t pop) {
    if (board_.used() * kUnits > o_.enlargement * board_.live()) board_.CleanUp();
    const uint64_t used = static_cast<uint64_t>(board_.used());
    for (uint32_t i = 0; i < kAttempts; ++i) {
      const uint64_t bits = i < kAtOnce ? attempt_[i][pop % kLanes] : AttemptBits(pop, i);
      const int64_t slot = board_.Owner(Below(bits, used));
      if (slot >= 0) return slot;
    }
    board_.CleanUp();
    const uint64_t live = static_cast<uint64_t>(board_.live());
    return board_.Owner(Below(AttemptBits(pop, kAttempts), live));
  }

  uint64_t AttemptBits(int64_t pop, uint32_t attempt) const {
    uint32_t x0 = static_cast<uint32_t>(pop), x1 = kPop + attempt;
    Threefry(key_, x0, x1);
    return static_cast<uint64_t>(x0) << 32 | x1;
  }

  // Lets a node with this row enter: draws the edge to its successor. Returns its capped
  // degree.
  int64_t Enter(Member& member, EdgeRange row, uint64_t bits) const {
    member.successor = row.count > 0 ? kUnknown : kNone;
    member.count = kUnknown;
    if (row.count > 0) {
      member.at = row.start + Below(bits, static_cast<uint64_t>(row.count));
      __builtin_prefetch(&g_.indices[member.at]);
    }
    return std::min<int64_t>(row.count, o_.degree_cap);
  }

  void FindSuccessor(Member& member) {
    if (member.successor != kUnknown) return;
    const int32_t source = g_.indices[member.at];
    const bool good = source >= 0 && source < g_.num_nodes;
    if (!good) bad_.store(true);
    member.successor = good ? source : 0;
    PrefetchRow(g_, member.successor);
  }

  void FindRow(Member& member) {
    if (member.successor < 0 || member.count != kUnknown) return;
    const EdgeRange row = RowOf(g_, member.successor, bad_);
    member.at = row.start;
    member.count = row.count;
  }

  const GraphView& g_;
  const Key key_;
  const FrontierOptions& o_;
  std::atomic<bool>& bad_;
  const Isa isa_ = BestIsa();
  Dashboard board_;
  std::vector<Member> member_;  // for every slot
  uint64_t attempt_[kAtOnce][kLanes], successor_[kLanes];  // those of the current pops
  Member* entered_[2 * kDelay];  // by the last pops
};

// Sorts nodes below num_nodes, 11 bits at a time.
void Sort(std::vector<int32_t>& nodes, int64_t num_nodes) {
  constexpr int kDigit = 11;
  constexpr uint32_t kMask = (1u << kDigit) - 1;
  std::vector<int32_t> sorted(nodes.size());
  std::vector<uint32_t> place;
  for (int shift = 0; shift < 31 && (num_nodes - 1) >> shift > 0; shift += kDigit) {
    place.assign(kMask + 2, 0);
    for (int32_t node : nodes) ++place[(static_cast<uint32_t>(node) >> shift & kMask) + 1];
    for (uint32_t digit = 0; digit < kMask; ++digit) place[digit + 1] += place[digit];
    for (int32_t node : nodes) {
      sorted[place[static_cast<uint32_t>(node) >> shift & kMask]++] = node;
    }
    nodes.swap(sorted);
  }
}

}  // namespace

std::string CheckFrontier(const FrontierOptions& o) {
  constexpr double kMost = 2147483648.0;
  const bool good = o.size >= 1 && o.pops >= 0 && o.size < kMost && o.pops < kMost &&
                    o.size + o.pops < kMost && o.degree_cap >= 1 && o.enlargement >= kUnits &&
                    (o.size + 1.0) * static_cast<double>(o.degree_cap) *
                            static_cast<double>(o.enlargement) / kUnits < kMost;
  return good ? "" : "the frontier's size, pops, degree cap and enlargement must be as "
                     "jgs.sampling.Frontier has them. Draw through it";
}

std::string SampleFrontiers(const GraphView& graph, const uint32_t* keys, int64_t num_subgraphs,
                            const FrontierOptions& options, int64_t room, int32_t* nodes,
                            int32_t* counts, const Executor& executor) {
  std::atomic<bool> bad{false};
  ParallelFor(executor, num_subgraphs, [&](int64_t subgraph) {
    const Key key{{keys[2 * subgraph], keys[2 * subgraph + 1]}};
    std::vector<int32_t> met = Sampler(graph, key, options, bad).Run();
    Sort(met, graph.num_nodes);
    const auto last = std::unique(met.begin(), met.end());
    const int64_t count = last - met.begin(), kept = std::min(count, room);
    int32_t* own = nodes + subgraph * room;
    std::copy_n(met.begin(), kept, own);
    std::fill(own + kept, own + room, static_cast<int32_t>(graph.num_nodes));
    counts[subgraph] = static_cast<int32_t>(count);
  });
  return bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
