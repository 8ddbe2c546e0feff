// The plain C++ layer of push on threads of its own, without XLA: for ThreadSanitizer. Every
// thread count must give the contexts of a plain loop over all nodes and edges. Damaged graphs
// must give errors. Run by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "push.h"
#include "threads.h"

namespace {

constexpr int64_t kNodes = 300, kSize = 40, kSeeds = 90;

struct Graph {
  std::vector<int64_t> indptr{0}, time;
  std::vector<int32_t> indices;
  std::vector<int16_t> type;
};

// Rows of three types, each sorted by time; every 7th is empty, every 50th long.
Graph RandomGraph() {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < kNodes; ++v) {
    for (int16_t type = 0; v % 7 != 0 && type < 3; ++type) {
      int64_t time = random() % 3;
      for (int i = random() % (v % 50 == 1 ? 400 : 5); i > 0; --i) {
        graph.indices.push_back(random() % kNodes);
        graph.type.push_back(type);
        graph.time.push_back(time += random() % 2);
      }
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

struct Contexts {
  std::vector<int32_t> nodes, hop, parent;
  std::vector<int64_t> edge, score;
  std::string error;
  bool operator==(const Contexts& o) const {
    return nodes == o.nodes && hop == o.hop && parent == o.parent && edge == o.edge &&
           score == o.score && error == o.error;
  }
};

Contexts Padding(int64_t num_edges) {
  const std::vector<int32_t> none(kSeeds * kSize, kNodes), zero(kSeeds * kSize, 0);
  const std::vector<int64_t> edge(kSeeds * kSize, num_edges), score(kSeeds * kSize, 0);
  return {none, zero, none, edge, score, ""};
}

Contexts Run(const jgs::GraphView& graph, const jgs::Seeds& seeds, const jgs::PushOptions& o,
             int num_threads) {
  Contexts found = Padding(-7);
  Threads threads;
  const jgs::PushedContexts to{kSize,
                               found.nodes.data(),
                               found.hop.data(),
                               found.parent.data(),
                               found.edge.data(),
                               found.score.data()};
  found.error = jgs::PushContexts(graph, seeds, o, to, threads.Get(num_threads));
  return found;
}

int64_t Stopping(int64_t mass, int64_t restart) {
  return static_cast<int64_t>(static_cast<__int128>(mass) * restart >> 31);
}

// Each round looks at every node and edge.
void Plain(const jgs::GraphView& g, const jgs::PushOptions& o, int32_t seed, int64_t cutoff,
           int64_t at, Contexts& to) {
  const auto weight = [&](int64_t e) -> int64_t {
    const bool hole = std::count(o.limits.excluded, o.limits.excluded + o.limits.num_excluded, e);
    if (hole || (o.limits.time != nullptr && o.limits.time[e] >= cutoff)) return 0;
    return o.num_weights > 0 ? o.weight[o.edge_type[e]] : 1;
  };
  std::vector<int64_t> left(kNodes), stopped(kNodes), edge(kNodes, g.num_edges);
  std::vector<int32_t> hop(kNodes, -1), parent(kNodes, kNodes);
  left[seed] = int64_t{1} << 62;
  hop[seed] = 0;
  for (bool pushes = true; pushes;) {
    pushes = false;
    std::vector<int64_t> got(kNodes), most(kNodes);
    const std::vector<int32_t> before = hop;
    for (int32_t v = 0; v < kNodes; ++v) {  // parents ascend, so the first of equal ones stays
      int64_t total = 0, degree = 0;
      for (int64_t e = g.indptr[v]; e < g.indptr[v + 1]; ++e) {
        total += weight(e);
        degree += weight(e) > 0;
      }
      if (left[v] / std::max<int64_t>(degree, 1) < o.least) continue;
      pushes = true;
      const int64_t stops = degree > 0 ? Stopping(left[v], o.restart) : left[v];
      const int64_t share = degree > 0 ? (left[v] - stops) / total : 0;
      stopped[v] += stops;
      left[v] -= stops + share * total;
      for (int64_t e = g.indptr[v]; e < g.indptr[v + 1]; ++e) {
        const int32_t u = g.indices[e];
        const int64_t mass = share * weight(e);
        got[u] += mass;
        if (mass == 0 || before[u] >= 0) continue;
        if (mass < most[u] || (mass == most[u] && parent[u] != v)) continue;
        std::tie(most[u], edge[u], parent[u], hop[u]) = std::make_tuple(mass, e, v, before[v] + 1);
      }
    }
    for (int32_t v = 0; v < kNodes; ++v) left[v] += got[v];
  }
  std::vector<std::tuple<bool, int64_t, int32_t, int32_t>> order;
  for (int32_t v = 0; v < kNodes; ++v) {
    const int64_t score = stopped[v] + Stopping(left[v], o.restart);
    if (score > 0) order.emplace_back(v != seed, -score, hop[v], v);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < std::min<size_t>(kSize, order.size()); ++i, ++at) {
    const int32_t v = to.nodes[at] = std::get<3>(order[i]);
    to.hop[at] = hop[v];
    to.parent[at] = parent[v];
    to.edge[at] = edge[v];
    to.score[at] = -std::get<1>(order[i]);
  }
}

}  // namespace

int main() {
  Graph graph = RandomGraph();
  const int64_t num_edges = graph.indices.size();
  const jgs::GraphView view{graph.indptr.data(), graph.indptr.data() + 1, kNodes,  graph.indices.data(),
                            num_edges,           nullptr, nullptr};
  std::vector<int32_t> nodes;
  std::vector<int64_t> cutoffs, excluded;
  for (int i = 0; i < kSeeds; ++i) nodes.push_back(i * 11 % (kNodes + 1));
  for (int i = 0; i < kSeeds; ++i) cutoffs.push_back(i % 5);
  for (int64_t e = 3; e < num_edges; e += 9) excluded.push_back(e);
  const jgs::Seeds seeds{nodes.data(), kSeeds, cutoffs.data(), excluded.data(),
                         static_cast<int64_t>(excluded.size())};
  std::string error;
  const int64_t weights[] = {0, 65535, 2}, whole = int64_t{1} << 62;
  const jgs::Limits timed =
      jgs::LimitsOf(seeds, graph.time.data(), num_edges, nullptr, -1, error);
  const jgs::PushOptions modes[] = {
      {int64_t{1} << 29, whole / 1000, nullptr, nullptr, 0, {}},
      {int64_t{1} << 28, whole / 100000, graph.type.data(), weights, 3, {}},
      {int64_t{1} << 28, whole / 100000, graph.type.data(), weights, 3, timed},
      {int64_t{1} << 30, whole / 100, graph.type.data(), nullptr, 0, timed},
  };
  int runs = 0;
  for (const jgs::PushOptions& options : modes) {
    Contexts plain = Padding(num_edges);
    for (int64_t i = 0; i < kSeeds; ++i) {
      if (nodes[i] < kNodes) Plain(view, options, nodes[i], cutoffs[i], i * kSize, plain);
    }
    for (int threads : {1, 2, 4, 8}) {
      ++runs;
      if (Run(view, seeds, options, threads) == plain) continue;
      std::printf("run %d: other contexts\n", runs);
      return EXIT_FAILURE;
    }
  }
  const auto refused = [&](const char* what) {
    for (const jgs::PushOptions& options : modes) {
      if (!Run(view, seeds, options, 4).error.empty()) continue;
      std::printf("%s were not refused\n", what);
      std::exit(EXIT_FAILURE);
    }
  };
  const Graph whole_graph = graph;
  for (int32_t bad : {-1, static_cast<int32_t>(kNodes)}) {
    std::fill(graph.indices.begin(), graph.indices.end(), bad);
    refused("indices that are no nodes");
  }
  std::copy(whole_graph.indices.begin(), whole_graph.indices.end(), graph.indices.begin());
  for (int64_t shift : {-num_edges, num_edges}) {
    for (int v = 0; v <= kNodes; ++v) graph.indptr[v] = whole_graph.indptr[v] + shift;
    refused("rows beyond the edges");
  }
  std::reverse_copy(whole_graph.indptr.begin(), whole_graph.indptr.end(), graph.indptr.begin());
  refused("rows of less than no edges");
  std::copy(whole_graph.indptr.begin(), whole_graph.indptr.end(), graph.indptr.begin());
  nodes[5] = kNodes + 1;
  refused("seeds that are no nodes");
  std::printf("%d runs equal\n", runs);
}
