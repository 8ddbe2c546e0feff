// The plain C++ layer of contexts on threads of its own, without XLA: for ThreadSanitizer. Every
// thread count must give what a plain search gives where nodes take all their edges. A damaged
// graph must give an error. Run by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "contexts.h"
#include "threads.h"

namespace {

constexpr int kSize = 40, kHops = 3, kMostDegree = 6;

struct Graph {
  std::vector<int64_t> indptr{0}, time;
  std::vector<int32_t> indices;
};

// Rows in order of their times.
Graph RandomGraph(int num_nodes) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    int64_t time = 0;
    for (int i = v % 5 == 0 ? 0 : random() % (kMostDegree + 1); i > 0; --i) {
      graph.indices.push_back(random() % num_nodes);
      graph.time.push_back(time += random() % 4);
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

struct Found {
  std::vector<int32_t> nodes, hop, parent;
  std::vector<int64_t> edge;
  std::string error;

  bool operator==(const Found& other) const {
    return nodes == other.nodes && hop == other.hop && parent == other.parent &&
           edge == other.edge && error == other.error;
  }
};

Found Run(const Graph& graph, const std::vector<int32_t>& seeds, const std::vector<int64_t>& time,
          bool by_age, int num_threads) {
  const int64_t num_nodes = static_cast<int64_t>(graph.indptr.size()) - 1;
  const jgs::GraphView view{graph.indptr.data(), graph.indptr.data() + 1, num_nodes, graph.indices.data(),
                            static_cast<int64_t>(graph.indices.size()), nullptr, nullptr};
  const int64_t num = static_cast<int64_t>(seeds.size());
  const jgs::Seeds of{seeds.data(), num, time.data(), nullptr, 0};
  jgs::NeighborOptions options{false, false, false, -1, graph.time.data(), {}, {}};
  const std::vector<int64_t> widths(kHops, kMostDegree);
  jgs::ContextHops by{std::vector<jgs::Hop>(kHops), widths.data(), by_age ? 400 : kSize, by_age};
  for (int h = 0; h < kHops; ++h) {
    by.hops[h].key = {{7, static_cast<uint32_t>(h)}};
    by.hops[h].fanout = kMostDegree;
  }
  Found found;
  found.nodes.assign(num * kSize, -7);
  found.hop = found.parent = found.nodes;
  found.edge.assign(num * kSize, -7);
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  found.error = jgs::FindByHops(view, of, options, by,
                                {kSize, found.nodes.data(), found.hop.data(), found.parent.data(),
                                 found.edge.data()},
                                executor);
  return found;
}

Found Searched(const Graph& graph, const std::vector<int32_t>& seeds,
               const std::vector<int64_t>& cutoff, bool by_age) {
  struct Token {
    int32_t node, hop, parent;
    int64_t edge, oldest;
  };
  const auto num_nodes = static_cast<int32_t>(graph.indptr.size() - 1);
  const auto num_edges = static_cast<int64_t>(graph.indices.size());
  Found found;
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::vector<Token> tokens;
    std::map<int32_t, bool> known;
    if (seeds[i] < num_nodes) tokens.push_back({seeds[i], 0, num_nodes, num_edges, INT64_MAX});
    known[seeds[i]] = true;
    for (size_t at = 0; at < tokens.size(); ++at) {
      const Token by = tokens[at];
      if (by.hop == kHops) continue;
      for (int64_t e = graph.indptr[by.node]; e < graph.indptr[by.node + 1]; ++e) {
        if (graph.time[e] >= cutoff[i] || known[graph.indices[e]]) continue;
        known[graph.indices[e]] = true;
        tokens.push_back({graph.indices[e], by.hop + 1, by.node, e,
                          std::min(by.oldest, graph.time[e])});
      }
    }
    if (by_age) {
      std::stable_sort(tokens.begin(), tokens.end(),
                       [](const Token& a, const Token& b) { return a.oldest > b.oldest; });
    }
    tokens.resize(kSize, {num_nodes, 0, num_nodes, num_edges, 0});
    for (const Token& token : tokens) {
      found.nodes.push_back(token.node);
      found.hop.push_back(token.hop);
      found.parent.push_back(token.parent);
      found.edge.push_back(token.edge);
    }
  }
  return found;
}

// The tree of contexts by a search for every token's parent.
bool TreeIsPlain(const Found& found, int32_t num_nodes, int num_threads) {
  const int64_t rows = static_cast<int64_t>(found.nodes.size()), num = rows / kSize;
  std::vector<int32_t> place(rows), indptr(rows + 1), children(rows), wanted;
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  jgs::ContextTrees(found.nodes.data(), found.parent.data(), num, kSize, num_nodes, place.data(),
                    indptr.data(), children.data(), executor);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row / kSize * kSize;
    if (indptr[row] != static_cast<int32_t>(wanted.size())) return false;
    for (int64_t other = first; other < first + kSize && found.nodes[row] < num_nodes; ++other) {
      if (found.parent[other] == found.nodes[row]) wanted.push_back(static_cast<int32_t>(other));
    }
    const auto* begin = found.nodes.data() + first;
    const auto at = std::find(begin, begin + kSize, found.parent[row]) - begin;
    if (place[row] != (found.parent[row] == num_nodes ? kSize : at)) return false;
  }
  if (indptr[rows] != static_cast<int32_t>(wanted.size())) return false;
  wanted.resize(rows, static_cast<int32_t>(rows));
  return wanted == children;
}

}  // namespace

int main() {
  Graph graph = RandomGraph(300);
  std::vector<int32_t> seeds;
  std::vector<int64_t> cutoffs;
  for (int i = 0; i < 120; ++i) {
    seeds.push_back((i * 7) % 301);
    cutoffs.push_back(i % 4 * 4);
  }
  for (const bool by_age : {false, true}) {
    const Found wanted = Searched(graph, seeds, cutoffs, by_age);
    for (const int num_threads : {1, 2, 4}) {
      const Found found = Run(graph, seeds, cutoffs, by_age, num_threads);
      if (!(found == wanted) || !TreeIsPlain(found, 300, num_threads)) {
        std::printf("contexts_test: %d threads, by age %d: another context %s\n", num_threads,
                    by_age, found.error.c_str());
        return 1;
      }
    }
  }
  for (const int32_t wrong : {-1, 300}) {
    Graph damaged = graph;
    damaged.indices[damaged.indptr[14]] = wrong;
    for (const int num_threads : {1, 4}) {
      if (Run(damaged, seeds, cutoffs, false, num_threads).error.empty()) {
        std::printf("contexts_test: a damaged graph gave no error\n");
        return 1;
      }
    }
  }
  std::printf("contexts_test: 6 runs equal\n");
  return 0;
}
