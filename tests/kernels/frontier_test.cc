// The plain C++ layer of frontier sampling on threads of its own, without XLA: for
// ThreadSanitizer. Every thread count must give what a plain table with marked dead entries
// gives, on the instructions that JGS_MAX_ISA allows. A damaged graph must give an error. Run
// by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "frontier.h"
#include "threads.h"
#include "threefry.h"

namespace {

constexpr int kSubgraphs = 5;

struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
};

// Skewed; every 7th row is empty.
Graph RandomGraph(int num_nodes) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    for (int i = v % 7 == 0 ? 0 : random() % (v % 50 == 1 ? 300 : 9); i > 0; --i) {
      graph.indices.push_back(random() % num_nodes);
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

std::vector<uint32_t> Keys() {
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < 2 * kSubgraphs; ++i) keys.push_back(i * i + 3);
  return keys;
}

struct Found {
  std::vector<int32_t> nodes, counts;
  std::string error;
};

Found Run(const jgs::GraphView& graph, const jgs::FrontierOptions& options, int64_t room,
          int num_threads) {
  Found found;
  found.nodes.assign(kSubgraphs * room, -7);
  found.counts.assign(kSubgraphs, -7);
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  found.error = jgs::SampleFrontiers(graph, Keys().data(), kSubgraphs, options, room,
                                     found.nodes.data(), found.counts.data(), executor);
  return found;
}

std::set<int32_t> Nodes(const jgs::GraphView& g, const jgs::FrontierOptions& o, jgs::Key key) {
  const auto below = [&](uint32_t x0, uint32_t x1, int64_t n) {
    jgs::Threefry(key, x0, x1);
    const uint64_t carry = static_cast<uint64_t>(x1) * n >> 32;
    return static_cast<int64_t>((static_cast<uint64_t>(x0) * n + carry) >> 32);
  };
  const auto row = [&](int32_t node) { return g.indptr[node + 1] - g.indptr[node]; };
  std::vector<int32_t> node(o.size), entered(o.size), table;  // in table: slots, or -1
  std::set<int32_t> met;
  int64_t live = 0;
  const auto put = [&](int32_t slot) {
    const int64_t degree = std::min(row(node[slot]), o.degree_cap);
    table.insert(table.end(), degree, slot);
    live += degree;
  };
  const auto clean_up = [&] {
    table.clear();
    live = 0;
    for (int32_t slot = 0; slot < o.size; ++slot) put(slot);
  };
  for (int32_t slot = 0; slot < o.size; ++slot) {
    node[slot] = static_cast<int32_t>(below(slot, 0, g.num_nodes));
    entered[slot] = slot;
    met.insert(node[slot]);
    put(slot);
  }
  for (int64_t pop = 0; pop < o.pops && live > 0; ++pop) {
    if (static_cast<int64_t>(table.size()) * 1024 > o.enlargement * live) clean_up();
    int32_t slot = -1;
    for (int i = 0; i < 8 && slot < 0; ++i) slot = table[below(pop, 2 + i, table.size())];
    if (slot < 0) {
      clean_up();
      slot = table[below(pop, 10, live)];
    }
    met.insert(node[slot]);
    live -= std::count(table.begin(), table.end(), slot);
    std::replace(table.begin(), table.end(), slot, -1);
    const int64_t at = below(entered[slot], 1, row(node[slot]));
    node[slot] = g.indices[g.indptr[node[slot]] + at];
    entered[slot] = static_cast<int32_t>(o.size + pop);
    put(slot);
  }
  return met;
}

bool IsPlain(const jgs::GraphView& g, const jgs::FrontierOptions& o, int64_t room,
             const Found& found) {
  for (int i = 0; i < kSubgraphs; ++i) {
    const std::set<int32_t> met = Nodes(g, o, {{Keys()[2 * i], Keys()[2 * i + 1]}});
    if (found.counts[i] != static_cast<int32_t>(met.size())) return false;
    auto next = met.begin();
    for (int64_t at = i * room; at < (i + 1) * room; ++at) {
      const int32_t expected = next == met.end() ? static_cast<int32_t>(g.num_nodes) : *next++;
      if (found.nodes[at] != expected) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  Graph graph = RandomGraph(3000);
  const int64_t num_nodes = static_cast<int64_t>(graph.indptr.size()) - 1;
  const jgs::GraphView view{graph.indptr.data(), graph.indptr.data() + 1, num_nodes, graph.indices.data(),
                            static_cast<int64_t>(graph.indices.size()), nullptr, nullptr};
  const jgs::FrontierOptions modes[] = {
      {100, 700, 30, 2048}, {65, 130, 1000, 1024}, {3, 200, 2, 100 * 1024}, {70, 0, 5, 1100}};
  int runs = 0;
  for (const jgs::FrontierOptions& options : modes) {
    for (int threads : {1, 2, 4, 8}) {
      for (int64_t room : {1000, 20}) {
        ++runs;
        const Found found = Run(view, options, room, threads);
        if (!found.error.empty() || !IsPlain(view, options, room, found)) {
          std::printf("run %d: other nodes; %s\n", runs, found.error.c_str());
          return EXIT_FAILURE;
        }
      }
    }
  }
  if (jgs::CheckFrontier(modes[0]) != "" || jgs::CheckFrontier({9, 9, 1 << 30, 2048}) == "" ||
      jgs::CheckFrontier({0, 9, 1, 2048}) == "" || jgs::CheckFrontier({9, -1, 1, 2048}) == "") {
    std::printf("wrong options were not refused\n");
    return EXIT_FAILURE;
  }
  std::fill(graph.indices.begin(), graph.indices.end(), 3000);
  if (Run(view, modes[0], 1000, 4).error.empty()) {
    std::printf("a damaged graph was not refused\n");
    return EXIT_FAILURE;
  }
  std::printf("%d runs equal\n", runs);
}
