#include "context_visits.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "walk_runs.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr int64_t kTogether = 512;  // walks whose steps are counted together

// The visits to each node, in a hash table.
class Visits {
 public:
  struct Node {
    int32_t node = kFree, count = 0;
    // The hop of the first visit, its walk and its step: the least number is the first visit's.
    uint64_t first = 0;
    int64_t edge = 0;  // along which it went
    int32_t parent = 0;
  };

  void AskFor(int32_t node) const { __builtin_prefetch(&table_[Place(node)], 1); }

  void Add(const Node& visit) {
    Node& known = *Find(visit.node);
    if (known.node == kFree) {
      used_.push_back(static_cast<uint32_t>(&known - table_.data()));
      known = visit;
      if (2 * used_.size() > table_.size()) Grow();
      return;
    }
    const int32_t count = known.count + visit.count;
    if (visit.first < known.first) known = visit;
    known.count = count;
  }

  void Clear() {
    for (const uint32_t at : used_) table_[at].node = kFree;
    used_.clear();
  }

  // Calls `look` with every node and its visits, in any order.
  template <typename Look>
  void ForEach(const Look& look) const {
    for (const uint32_t at : used_) look(table_[at]);
  }

 private:
  static constexpr int32_t kFree = -1;

  uint32_t Place(int32_t node) const {
    return (static_cast<uint32_t>(node) * 0x9E3779B1u) >> shift_;
  }

  Node* Find(int32_t node) {
    uint32_t at = Place(node);
    while (table_[at].node != kFree && table_[at].node != node) at = (at + 1) & mask_;
    return &table_[at];
  }

  void Grow() {
    std::vector<Node> old(2 * table_.size());
    old.swap(table_);
    --shift_;
    mask_ = static_cast<uint32_t>(table_.size() - 1);
    for (uint32_t& at : used_) {
      const Node& node = old[at];
      Node* const place = Find(node.node);
      *place = node;
      at = static_cast<uint32_t>(place - table_.data());
    }
  }

  int shift_ = 22;
  uint32_t mask_ = (1u << 10) - 1;
  std::vector<Node> table_ = std::vector<Node>(1 << 10);
  std::vector<uint32_t> used_;  // the places of the table that have nodes
};

// Walks from a seed, and counts what they visit.
class SeedWalks {
 public:
  SeedWalks(const GraphView& graph, Key key, const WalkOptions& options, std::atomic<bool>& bad)
      : g_(graph), key_(key), o_(options), bad_(bad), roots_(kTogether), number_(kTogether),
        lengths_(kTogether), nodes_(kTogether * (options.length + 1)), cutoff_(kTogether),
        edges_(kTogether * options.length) {}

  // Adds the visits of the walks [begin, end) from a seed.
  void Count(int32_t seed, const int64_t* cutoff, int64_t begin, int64_t end, Visits& visits) {
    std::fill(roots_.begin(), roots_.end(), seed);
    if (cutoff != nullptr) std::fill(cutoff_.begin(), cutoff_.end(), *cutoff);
    for (int64_t first = begin; first < end && !bad_.load(); first += kTogether) {
      const int64_t num = std::min(kTogether, end - first);
      for (int64_t i = 0; i < num; ++i) number_[i] = static_cast<int32_t>(first + i);
      const int64_t* const cutoffs = cutoff != nullptr ? cutoff_.data() : nullptr;
      Walkers walkers{g_,   key_, roots_.data(),  cutoffs,         number_.data(),
                      o_,   nodes_.data(),        lengths_.data(), edges_.data(),
                      &memo_};
      WalkFirstOrder(walkers, 0, num);
      if (walkers.bad.load()) {
        bad_.store(true);
        return;
      }
      Add(seed, first, num, visits);
    }
  }

 private:
  void Add(int32_t seed, int64_t first, int64_t num, Visits& visits) const {
    constexpr int64_t kAhead = 12;
    const int64_t size = num * (o_.length + 1);
    for (int64_t w = 0, at = 0; w < num; ++w) {
      uint64_t hop = 0;
      const uint64_t before = static_cast<uint64_t>((first + w) * o_.length);
      for (int64_t step = 0; step <= o_.length; ++step, ++at) {
        if (at + kAhead < size) visits.AskFor(nodes_[at + kAhead]);
        const int32_t node = nodes_[at];
        hop = node == seed ? 0 : hop + 1;
        if (hop == 0 || node >= g_.num_nodes) continue;
        visits.Add({node, 1, hop << 32 | (before + step - 1), edges_[w * o_.length + step - 1],
                    nodes_[at - 1]});
      }
    }
  }

  const GraphView& g_;
  const Key key_;
  const WalkOptions& o_;
  std::atomic<bool>& bad_;
  std::vector<int32_t> roots_, number_, lengths_, nodes_;
  std::vector<int64_t> cutoff_, edges_;
  RunMemo memo_;
};

// Writes the context of seed `i`.
void Rank(const Visits& visits, int32_t seed, int64_t i, const GraphView& graph,
          const Contexts& contexts, std::vector<Visits::Node>& found) {
  found.clear();
  visits.ForEach([&](const Visits::Node& node) { found.push_back(node); });
  const int64_t num = std::min<int64_t>(contexts.size - 1, static_cast<int64_t>(found.size()));
  std::partial_sort(found.begin(), found.begin() + num, found.end(),
                    [](const Visits::Node& a, const Visits::Node& b) {
                      return a.count != b.count ? a.count > b.count : a.first < b.first;
                    });
  const auto nobody = static_cast<int32_t>(graph.num_nodes);
  for (int64_t t = 0, at = i * contexts.size; t < contexts.size; ++t, ++at) {
    Visits::Node node{t == 0 ? seed : nobody, 0, 0, graph.num_edges, nobody};
    if (t > 0 && t <= num) node = found[t - 1];
    contexts.nodes[at] = node.node;
    contexts.hop[at] = static_cast<int32_t>(node.first >> 32);
    contexts.parent[at] = node.parent;
    contexts.edge[at] = node.edge;
  }
}

// What a thread counts with. It is kept for its next seeds.
struct Worker {
  Worker(const GraphView& graph, Key key, const WalkOptions& options, std::atomic<bool>& bad)
      : walks(graph, key, options, bad) {}

  SeedWalks walks;
  Visits visits;
  std::vector<Visits::Node> found;
};

}  // namespace

std::string FindMostVisited(const GraphView& graph, Key key, const Seeds& seeds,
                            const WalkOptions& options, int64_t num_walks,
                            const Contexts& contexts, const Executor& executor) {
  const std::string error = CheckSeeds(seeds.nodes, seeds.num, graph.num_nodes);
  if (!error.empty()) return error;
  // A seed's walks are shared out only where there are few seeds for each thread.
  const int64_t threads = std::max<int64_t>(executor.num_threads, 1);
  const int64_t most = (num_walks + kTogether - 1) / kTogether;
  const int64_t wanted = threads == 1 ? 1 : (8 * threads + seeds.num - 1) / seeds.num;
  const int64_t shares = std::max<int64_t>(std::min(most, wanted), 1);
  std::vector<Visits> parts(shares > 1 ? seeds.num * shares : 0);
  std::atomic<bool> bad{false};
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;
  const auto take = [&]() -> std::unique_ptr<Worker> {
    std::lock_guard<std::mutex> lock(mutex);
    if (idle.empty()) return std::make_unique<Worker>(graph, key, options, bad);
    std::unique_ptr<Worker> worker = std::move(idle.back());
    idle.pop_back();
    return worker;
  };
  Team team(executor);
  team.For(seeds.num * shares, [&](int64_t task) {
    std::unique_ptr<Worker> worker = take();
    const int64_t i = task / shares, share = task % shares;
    const int32_t seed = seeds.nodes[i];
    Visits& visits = shares > 1 ? parts[task] : worker->visits;
    visits.Clear();
    if (seed < graph.num_nodes) {
      worker->walks.Count(seed, seeds.time != nullptr ? &seeds.time[i] : nullptr,
                          num_walks * share / shares, num_walks * (share + 1) / shares, visits);
    }
    if (shares == 1) Rank(visits, seed, i, graph, contexts, worker->found);
    std::lock_guard<std::mutex> lock(mutex);
    idle.push_back(std::move(worker));
  });
  if (shares > 1) {
    team.For(seeds.num, [&](int64_t i) {
      Visits& all = parts[i * shares];
      for (int64_t share = 1; share < shares; ++share) {
        parts[i * shares + share].ForEach([&](const Visits::Node& node) { all.Add(node); });
      }
      std::vector<Visits::Node> found;
      Rank(all, seeds.nodes[i], i, graph, contexts, found);
    });
  }
  return bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
