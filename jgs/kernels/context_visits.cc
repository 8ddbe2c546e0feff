#include "context_visits.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "seed_walks.h"
#include "walkers.h"

namespace jgs {
namespace {

constexpr int64_t kShare = 512;  // walks of a seed that a thread makes at least

// What the walks of a seed went along: nodes [num_walks, length + 1], num_nodes after a walk's
// end, and edges [num_walks, length].
struct Paths {
  std::vector<int32_t> nodes;
  std::vector<int64_t> edges;

  void MakeRoom(int64_t num_walks, int64_t length) {
    nodes.resize(num_walks * (length + 1));
    edges.resize(num_walks * length);
  }
};

// The nodes that are visited most, without a table of all.
//
// A small counter for each of many hashes of nodes is at least the count of any node that has
// the hash. So a table of the nodes whose counters reach `least` has all visited so often.
class Visits {
 public:
  struct Node {
    int32_t node = kFree, count = 0;
    // The hop of the first visit, its walk and its step: the least number is the first visit's.
    uint64_t first = 0;
  };

  // Makes `most` of the most visited nodes the first ones of found(), in order, or all if there
  // are fewer.
  void Find(const Paths& paths, int32_t seed, int32_t nobody, int64_t num_walks, int64_t length,
            int64_t most) {
    Sketch(paths, num_walks, length);
    for (int64_t wanted = 2 * most + kMore;; wanted *= 4) {
      const int least = Least(wanted);
      Count(paths, seed, nobody, num_walks, length, least);
      const auto often = [&](const Node& node) { return node.count >= least; };
      if (least <= 1 || std::count_if(found_.begin(), found_.end(), often) >= most) break;
    }
    most = std::min<int64_t>(most, found_.size());
    std::partial_sort(found_.begin(), found_.begin() + most, found_.end(),
                      [](const Node& a, const Node& b) {
                        return a.count != b.count ? a.count > b.count : a.first < b.first;
                      });
  }

  const std::vector<Node>& found() const { return found_; }

 private:
  static constexpr int32_t kFree = -1;
  static constexpr int64_t kMore = 64;
  static constexpr int kLeastBits = 10, kMostBits = 20, kLookedAtBits = 14;

  static uint32_t Hash(int32_t node) { return static_cast<uint32_t>(node) * 0x9E3779B1u; }

  void Sketch(const Paths& paths, int64_t num_walks, int64_t length) {
    int bits = kLeastBits;
    while (bits < kMostBits && int64_t{1} << bits < num_walks * length) ++bits;
    shift_ = 32 - bits;
    sketch_.assign(size_t{1} << bits, 0);
    for (int64_t i = 0; i < num_walks * (length + 1); ++i) {
      uint8_t& counter = sketch_[Hash(paths.nodes[i]) >> shift_];
      counter += counter != 255;
    }
  }

  // The largest number that `wanted` counters reach, or 1.
  int Least(int64_t wanted) const {
    // Some counters show about how many of all there are.
    const size_t stride = std::max<size_t>(sketch_.size() >> kLookedAtBits, 1);
    int64_t reached[256] = {};
    for (size_t i = 0; i < sketch_.size(); i += stride) reached[sketch_[i]] += stride;
    int least = 255;
    for (int64_t sum = reached[255]; least > 1 && sum < wanted; sum += reached[least]) --least;
    return least;
  }

  // Makes `found_` the nodes whose counters reach `least`, with all their visits.
  void Count(const Paths& paths, int32_t seed, int32_t nobody, int64_t num_walks,
             int64_t length, int least) {
    found_.clear();
    places_.assign(size_t{1} << kLeastBits, kFree);
    mask_ = static_cast<uint32_t>(places_.size() - 1);
    visits_.resize(length);
    for (int64_t w = 0, at = 0; w < num_walks; ++w) {
      const int32_t* const path = &paths.nodes[w * (length + 1) + 1];
      uint32_t hop = 0;
      int num = 0;
      for (int64_t step = 0; step < length; ++step, ++at) {
        const int32_t node = path[step];
        hop = node == seed ? 0 : hop + 1;
        visits_[num] = {node, 1, uint64_t{hop} << 32 | static_cast<uint64_t>(at)};
        num += sketch_[Hash(node) >> shift_] >= least && hop != 0 && node < nobody;
      }
      for (int i = 0; i < num; ++i) Add(visits_[i]);
    }
  }

  void Add(const Node& visit) {
    uint32_t at = Hash(visit.node) >> 8 & mask_;
    const auto other = [&] { return found_[places_[at]].node != visit.node; };
    while (places_[at] != kFree && other()) at = (at + 1) & mask_;
    if (places_[at] == kFree) {
      places_[at] = static_cast<int32_t>(found_.size());
      found_.push_back(visit);
      if (2 * found_.size() > places_.size()) Grow();
      return;
    }
    Node& known = found_[places_[at]];
    ++known.count;
    known.first = std::min(known.first, visit.first);
  }

  void Grow() {
    places_.assign(2 * places_.size(), kFree);
    mask_ = static_cast<uint32_t>(places_.size() - 1);
    for (size_t i = 0; i < found_.size(); ++i) {
      uint32_t at = Hash(found_[i].node) >> 8 & mask_;
      while (places_[at] != kFree) at = (at + 1) & mask_;
      places_[at] = static_cast<int32_t>(i);
    }
  }

  std::vector<uint8_t> sketch_;
  std::vector<Node> found_, visits_;
  std::vector<int32_t> places_;  // of the hashes, in found_
  int shift_ = 0;
  uint32_t mask_ = 0;
};

// What a thread works with. It is kept for its next seeds.
class Worker {
 public:
  Worker(const GraphView& graph, Key key, const WalkOptions& options, std::atomic<bool>& bad)
      : g_(graph), key_(key), o_(options), bad_(bad), walks_(graph, key, options, bad) {}

  Paths paths;  // of the seed that the worker has alone

  // Makes the walks [begin, end) from a seed.
  void Walk(int32_t seed, const int64_t* cutoff, int64_t begin, int64_t end, Paths& paths) {
    if (g_.weight_prefix != nullptr) return WalkByWeight(seed, cutoff, begin, end, paths);
    walks_.Begin(seed, cutoff);
    for (int64_t first = begin; first < end && !bad_.load(); first += SeedWalks::kTogether) {
      const int num = static_cast<int>(std::min<int64_t>(SeedWalks::kTogether, end - first));
      walks_.Walk(first, num, &paths.nodes[first * (o_.length + 1)],
                  &paths.edges[first * o_.length]);
    }
  }

  // Writes the context of seed `i`, of which `paths` are the walks.
  void Rank(const Paths& paths, int32_t seed, int64_t i, int64_t num_walks,
            const Contexts& contexts) {
    const auto nobody = static_cast<int32_t>(g_.num_nodes);
    const int64_t num = seed < nobody ? num_walks : 0;
    visits_.Find(paths, seed, nobody, num, o_.length, contexts.size - 1);
    const auto& found = visits_.found();
    for (int64_t t = 0, at = i * contexts.size; t < contexts.size; ++t, ++at) {
      contexts.nodes[at] = t == 0 ? seed : nobody;
      contexts.hop[at] = 0;
      contexts.parent[at] = nobody;
      contexts.edge[at] = g_.num_edges;
      if (t == 0 || t > static_cast<int64_t>(found.size())) continue;
      const int64_t first = found[t - 1].first & 0xFFFFFFFF;
      contexts.nodes[at] = found[t - 1].node;
      contexts.hop[at] = static_cast<int32_t>(found[t - 1].first >> 32);
      contexts.parent[at] = paths.nodes[first + first / o_.length];
      contexts.edge[at] = paths.edges[first];
    }
  }

 private:
  void WalkByWeight(int32_t seed, const int64_t* cutoff, int64_t begin, int64_t end,
                    Paths& paths) {
    const int64_t num = end - begin;
    roots_.assign(num, seed);
    lengths_.resize(num);
    number_.resize(num);
    std::iota(number_.begin(), number_.end(), static_cast<int32_t>(begin));
    if (cutoff != nullptr) cutoffs_.assign(num, *cutoff);
    Walkers walkers{g_, key_, roots_.data(), cutoff != nullptr ? cutoffs_.data() : nullptr,
                    number_.data(), o_, &paths.nodes[begin * (o_.length + 1)], lengths_.data(),
                    &paths.edges[begin * o_.length]};
    WalkFirstOrder(walkers, 0, num);
    if (walkers.bad.load()) bad_.store(true);
  }

  const GraphView& g_;
  const Key key_;
  const WalkOptions& o_;
  std::atomic<bool>& bad_;
  SeedWalks walks_;
  Visits visits_;
  std::vector<int32_t> roots_, lengths_, number_;
  std::vector<int64_t> cutoffs_;
};

}  // namespace

std::string FindMostVisited(const GraphView& graph, Key key, const Seeds& seeds,
                            const WalkOptions& options, int64_t num_walks,
                            const Contexts& contexts, const Executor& executor) {
  const std::string error = CheckSeeds(seeds.nodes, seeds.num, graph.num_nodes);
  if (!error.empty()) return error;
  std::atomic<bool> bad{false};
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;
  const auto with_worker = [&](const auto& work) {
    std::unique_ptr<Worker> worker;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!idle.empty()) {
        worker = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (worker == nullptr) worker = std::make_unique<Worker>(graph, key, options, bad);
    work(*worker);
    std::lock_guard<std::mutex> lock(mutex);
    idle.push_back(std::move(worker));
  };
  const auto walk = [&](Worker& worker, int64_t i, int64_t begin, int64_t end, Paths& paths) {
    const int32_t seed = seeds.nodes[i];
    const int64_t* const cutoff = seeds.time != nullptr ? &seeds.time[i] : nullptr;
    if (seed < graph.num_nodes) worker.Walk(seed, cutoff, begin, end, paths);
  };
  const auto rank = [&](Worker& worker, int64_t i, const Paths& paths) {
    if (!bad.load()) worker.Rank(paths, seeds.nodes[i], i, num_walks, contexts);
  };
  Team team(executor);
  const int64_t threads = std::max<int64_t>(executor.num_threads, 1);
  if (threads == 1 || seeds.num >= 8 * threads) {
    team.For(seeds.num, [&](int64_t i) {
      with_worker([&](Worker& worker) {
        worker.paths.MakeRoom(num_walks, options.length);
        walk(worker, i, 0, num_walks, worker.paths);
        rank(worker, i, worker.paths);
      });
    });
    return bad.load() ? DamagedGraph(graph.num_nodes) : "";
  }
  // The threads share the walks of a seed, and as many seeds as threads are under way.
  const int64_t shares = std::min((num_walks + kShare - 1) / kShare, 8 * threads);
  std::vector<Paths> paths(std::min(threads, seeds.num));
  for (Paths& of_seed : paths) of_seed.MakeRoom(num_walks, options.length);
  for (int64_t first = 0; first < seeds.num; first += threads) {
    const int64_t num = std::min(threads, seeds.num - first);
    team.For(num * shares, [&](int64_t task) {
      const int64_t i = task / shares, share = task % shares;
      with_worker([&](Worker& worker) {
        walk(worker, first + i, num_walks * share / shares, num_walks * (share + 1) / shares,
             paths[i]);
      });
    });
    team.For(num, [&](int64_t i) {
      with_worker([&](Worker& worker) { rank(worker, first + i, paths[i]); });
    });
  }
  return bad.load() ? DamagedGraph(graph.num_nodes) : "";
}

}  // namespace jgs
