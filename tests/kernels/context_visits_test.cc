// The plain C++ layer of contexts by visits on threads of its own, without XLA: for
// ThreadSanitizer. Every thread count must give what a count of the walks of SampleWalks gives, on
// the instructions that JGS_MAX_ISA allows. A damaged index must give an error. Run by `make
// sanitize` and by test_isa.py.
#include "context_visits.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "threads.h"

namespace {

constexpr jgs::Key kKey{{3, 4}};
constexpr int64_t kWalks = 1300, kLength = 5, kSize = 60;

// Rows of up to nine runs, of ascending times; every 7th is empty, and every 50th long, or all.
struct Graph {
  const int num_nodes;
  std::vector<int64_t> indptr{0}, time, runs_indptr{0}, runs;
  std::vector<int32_t> indices;
  std::vector<jgs::RowTime> rows;

  Graph(int num_nodes, bool all_long) : num_nodes(num_nodes) {
    std::mt19937 random(1);
    for (int v = 0; v < num_nodes; ++v) {
      for (int type = 0; v % 7 != 0 && type < 1 + v % 9; ++type) {
        const bool is_long = all_long || v % 50 == 1;
        const int64_t count = random() % (is_long ? 90 : 6), first = indices.size();
        for (int64_t i = 0; i < count; ++i) {
          indices.push_back(random() % num_nodes);
          time.push_back(random() % 20);
        }
        std::sort(time.begin() + first, time.end());
        if (count > 0) runs.push_back(first << 15 | type);
      }
      const int64_t begin = indptr.back();
      const auto latest = std::max_element(time.begin() + begin, time.end());
      // A row of 30 edges or more is read where it lies, as one of very many is.
      const int64_t count = static_cast<int64_t>(time.size()) - begin;
      rows.push_back({begin << jgs::RowTime::kCountBits |
                          (count < 30 ? count : jgs::RowTime::kMany),
                      latest == time.end() ? INT64_MIN : *latest});
      indptr.push_back(indices.size());
      runs_indptr.push_back(runs.size());
    }
    runs.push_back(static_cast<int64_t>(indices.size()) << 15);
    rows.push_back({static_cast<int64_t>(indices.size()) << jgs::RowTime::kCountBits, 0});
  }
};

// nodes, hop, parent and edge of each token
using Token = std::tuple<int32_t, int32_t, int32_t, int64_t>;

std::vector<Token> Run(const jgs::GraphView& graph, const jgs::WalkOptions& options,
                       const jgs::Seeds& seeds, int num_threads, std::string& error) {
  std::vector<int32_t> nodes(seeds.num * kSize, -7), hop(nodes), parent(nodes);
  std::vector<int64_t> edge(nodes.size());
  Threads threads;
  error = jgs::FindMostVisited(graph, kKey, seeds, options, kWalks,
                               {kSize, nodes.data(), hop.data(), parent.data(), edge.data()},
                               threads.Get(num_threads));
  std::vector<Token> found;
  for (size_t i = 0; i < nodes.size(); ++i) {
    found.push_back({nodes[i], hop[i], parent[i], edge[i]});
  }
  return found;
}

// The nodes that the walks of SampleWalks visit, by the number of visits and the first visit.
std::vector<int32_t> Counted(const jgs::GraphView& graph, const jgs::WalkOptions& options,
                             int32_t seed, int64_t cutoff) {
  const std::vector<int32_t> roots(kWalks, seed);
  const std::vector<int64_t> cutoffs(kWalks, cutoff);
  std::vector<int32_t> nodes(kWalks * (kLength + 1)), lengths(kWalks);
  const int32_t nobody = graph.num_nodes;
  jgs::SampleWalks(graph, kKey, {roots.data(), kWalks, cutoffs.data()}, options, nodes.data(),
                   lengths.data(), jgs::Executor{});
  std::map<int32_t, std::tuple<int64_t, int64_t, int64_t>> visits;  // -count, hop, place
  for (int64_t walk = 0, at = 0; walk < kWalks; ++walk) {
    for (int64_t step = 0, hop = 0; step <= kLength; ++step, ++at, ++hop) {
      if (nodes[at] == seed) hop = 0;
      if (nodes[at] == seed || nodes[at] == nobody) continue;
      auto& [count, first, place] = visits.try_emplace(nodes[at], 0, hop, at).first->second;
      --count;
      std::tie(first, place) = std::min(std::make_tuple(first, place), std::make_tuple(hop, at));
    }
  }
  std::vector<int32_t> order;
  for (const auto& visit : visits) order.push_back(visit.first);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return visits[a] < visits[b]; });
  order.insert(order.begin(), seed);
  order.resize(kSize, nobody);
  return order;
}

// Whether the contexts of a graph are counts of walks, for every number of threads.
bool Try(Graph& g, int& runs) {
  const jgs::GraphView view{g.indptr.data(), g.indptr.data() + 1, g.num_nodes, g.indices.data(),
                            static_cast<int64_t>(g.indices.size()), nullptr, nullptr};
  std::vector<int32_t> nodes;
  std::vector<int64_t> cutoffs;
  for (int i = 0; i < 3; ++i) {  // a thread has several seeds, or several threads have one
    for (int v : {3, 51, g.num_nodes, 7, 51, 8, 101, 3}) nodes.push_back(v);
    for (int cutoff : {9, 15, 3, 12, 4, 20, 11, 10}) cutoffs.push_back(cutoff + i);
  }
  const jgs::Seeds seeds{nodes.data(), static_cast<int64_t>(nodes.size()), cutoffs.data()};
  for (const auto [window, by_rows] : {std::pair{-1, true}, {-1, false}, {6, false}}) {
    std::string error;
    jgs::WalkOptions options{kLength, uint64_t{1} << 29, 0, nullptr, nullptr, 0, nullptr, -1,
                             {}};
    const int64_t* const time = g.time.data();
    options.limits = jgs::LimitsOf(seeds, time, view.num_edges, nullptr, window, error);
    options.index = {g.runs_indptr.data(), g.runs_indptr.data() + 1, g.runs.data(),
                     static_cast<int64_t>(g.runs.size()) - 1};
    if (by_rows) options.rows = g.rows.data();
    const std::vector<Token> one = Run(view, options, seeds, 1, error);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::vector<int32_t> wanted = Counted(view, options, nodes[i], cutoffs[i]);
      for (int64_t t = 0; t < kSize; ++t) {
        if (error.empty() && std::get<0>(one[i * kSize + t]) == wanted[t]) continue;
        std::printf("seed %d: another token %d; %s\n", static_cast<int>(i), static_cast<int>(t),
                    error.c_str());
        return false;
      }
    }
    for (int threads : {2, 3, 4, 8}) {
      ++runs;
      if (Run(view, options, seeds, threads, error) == one && error.empty()) continue;
      std::printf("%d threads: other contexts; %s\n", threads, error.c_str());
      return false;
    }
    int64_t& damaged = by_rows ? g.rows[8].packed : g.runs_indptr[52];
    const int64_t whole = damaged;
    damaged = int64_t{1} << 62;  // of a seed, for runs one whose row is long
    Run(view, options, seeds, 4, error);
    damaged = whole;
    if (error.empty()) {
      std::printf("damaged arrays were not refused\n");
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  int runs = 0;
  Graph few(400, false), many(9000, true);
  if (!Try(few, runs) || !Try(many, runs)) return EXIT_FAILURE;
  std::printf("context_visits_test: %d runs equal\n", runs);
  return EXIT_SUCCESS;
}
