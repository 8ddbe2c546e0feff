// The induced subgraph's plain C++ layer on threads of its own, without XLA: for
// ThreadSanitizer. Every thread count must give what two loops over all pairs give, whether long
// rows are read or searched. Run by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "induced.h"
#include "threads.h"

namespace {

struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::vector<float> weight;
};

// Every 50th row is long, every 7th empty; rows ascend.
Graph RandomGraph(int num_nodes, int mean_degree) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    int degree = v % 50 == 0 ? 200 * mean_degree : v % 7 == 0 ? 0 : random() % (2 * mean_degree);
    std::vector<int32_t> row;
    for (; degree > 0; --degree) row.push_back(random() % num_nodes);
    std::sort(row.begin(), row.end());
    for (size_t i = 0; i < row.size(); ++i) {
      graph.weight.push_back(static_cast<float>(random() % 100));
    }
    graph.indices.insert(graph.indices.end(), row.begin(), row.end());
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

struct Result {
  std::vector<int32_t> indptr, indices;
  std::vector<int64_t> edge_id;
  std::vector<float> weight;
  int64_t needed;
  std::string error;
  bool operator==(const Result& o) const {
    return indptr == o.indptr && indices == o.indices && edge_id == o.edge_id &&
           weight == o.weight && needed == o.needed && error == o.error;
  }
};

Result Make(size_t num_rows, int64_t room) {
  Result r;
  r.indptr.assign(num_rows + 1, 0);
  r.indices.assign(room, static_cast<int32_t>(num_rows));
  r.edge_id.assign(room, 0);
  r.weight.assign(room, 0.0f);
  r.needed = 0;
  return r;
}

Result Run(const Graph& g, const std::vector<int32_t>& nodes, const std::vector<int32_t>& groups,
           bool sorted, bool by_row, int64_t room, int num_threads) {
  Result r = Make(nodes.size(), room);
  const jgs::GraphView view{g.indptr.data(), g.indptr.data() + 1, static_cast<int64_t>(g.indptr.size()) - 1,
                            g.indices.data(), static_cast<int64_t>(g.indices.size()), nullptr,
                            g.weight.data()};
  jgs::Induced block{nodes.data(), static_cast<int64_t>(nodes.size()), groups.data(),
                     static_cast<int64_t>(groups.size()) - 1, sorted, by_row, room,
                     r.indptr.data(), r.indices.data(), r.edge_id.data(), r.weight.data(), 0};
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  r.error = jgs::InducedBlock(view, block, executor);
  r.needed = block.needed;
  return r;
}

Result Plain(const Graph& g, const std::vector<int32_t>& nodes, const std::vector<int32_t>& groups,
             bool by_row, int64_t room) {
  Result r = Make(nodes.size(), room);
  const auto num_nodes = static_cast<int32_t>(g.indptr.size()) - 1;
  const auto num_edges = static_cast<int64_t>(g.indices.size());
  std::vector<int32_t> indices;
  std::vector<int64_t> edge_id;
  std::vector<float> weight;
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    const auto begin = nodes.begin() + groups[i], end = nodes.begin() + groups[i + 1];
    for (auto v = begin; v != end; ++v) {
      const size_t row = v - nodes.begin(), before = indices.size();
      for (int64_t e = *v < num_nodes ? g.indptr[*v] : 0; *v < num_nodes && e < g.indptr[*v + 1];
           ++e) {
        const auto place = std::find(begin, end, g.indices[e]);
        if (place == end) continue;
        indices.push_back(place - nodes.begin());
        edge_id.push_back(e);
        weight.push_back(g.weight[e]);
      }
      const size_t count = indices.size() - before;
      for (size_t e = before; by_row && e < indices.size(); ++e) weight[e] *= count;
      r.indptr[row + 1] = count;
    }
  }
  r.needed = indices.size();
  const bool fits = r.needed <= room;
  for (size_t row = 0; row < nodes.size(); ++row) {
    r.indptr[row + 1] = fits ? r.indptr[row] + r.indptr[row + 1] : 0;
  }
  std::fill(r.edge_id.begin(), r.edge_id.end(), num_edges);
  if (!fits) return r;
  std::copy(indices.begin(), indices.end(), r.indices.begin());
  std::copy(edge_id.begin(), edge_id.end(), r.edge_id.begin());
  std::copy(weight.begin(), weight.end(), r.weight.begin());
  return r;
}

}  // namespace

int main() {
  constexpr int kNodes = 3000;
  const Graph graph = RandomGraph(kNodes, 20);
  std::mt19937 random(2);
  std::vector<int32_t> every(kNodes);
  for (int v = 0; v < kNodes; ++v) every[v] = v;
  std::shuffle(every.begin(), every.end(), random);
  std::vector<int32_t> few(every.begin(), every.begin() + 40);
  for (int32_t v : {0, 50, 100}) {  // long rows with few wanted entries
    if (std::find(few.begin(), few.end(), v) == few.end()) few.push_back(v);
  }
  std::vector<int32_t> many, bounds{0};  // a node may be in several groups, or twice in one
  for (int g = 0; g < 60; ++g) {
    for (int i = random() % 20; i > 0; --i) many.push_back(random() % (kNodes / 5) * 5);
    if (g % 9 == 0) many.push_back(kNodes);
    bounds.push_back(many.size());
  }
  const std::vector<int32_t> half(every.begin(), every.begin() + kNodes / 2);
  const std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> cases{
      {half, {0, kNodes / 2}}, {few, {0, static_cast<int32_t>(few.size())}}, {many, bounds}};
  int runs = 0;
  for (const auto& [nodes, groups] : cases) {
    for (const int64_t room : {int64_t{1} << 18, int64_t{3}}) {
      for (const bool by_row : {false, true}) {
        const Result plain = Plain(graph, nodes, groups, by_row, room);
        for (const int mode : {2, 3, 4, 5, 8, 9, 16, 17}) {
          ++runs;
          if (!(Run(graph, nodes, groups, mode % 2, by_row, room, mode / 2) == plain)) {
            std::printf("%zu nodes, room %d, mode %d: other edges\n", nodes.size(),
                        static_cast<int>(room), mode);
            return EXIT_FAILURE;
          }
        }
      }
    }
  }
  if (Run(graph, few, {0, 50}, true, false, 9, 2).error.empty() ||
      Run(graph, few, {0, 5, 3}, true, false, 9, 2).error.empty()) {
    std::printf("wrong groups are not refused\n");
    return EXIT_FAILURE;
  }
  std::printf("induced_test: %d runs equal\n", runs);
  return EXIT_SUCCESS;
}
