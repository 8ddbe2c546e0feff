// The plain C++ layer of visits on threads of its own, without XLA: for ThreadSanitizer. Every
// thread count must give what a plain loop over all walks gives, on the instructions that
// JGS_MAX_ISA allows. A damaged graph must give an error. Run by `make sanitize`
// and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "threads.h"
#include "visits.h"

namespace {

constexpr jgs::Key kKey{{3, 4}};

struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::vector<int16_t> type;
};

// Rows of two types; every 7th is empty.
Graph RandomGraph(int num_nodes, int mean_degree) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    for (int16_t type = 0; v % 7 != 0 && type < 2; ++type) {
      for (int i = random() % mean_degree; i > 0; --i) {
        graph.indices.push_back(random() % num_nodes);
        graph.type.push_back(type);
      }
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

struct Found {
  std::vector<int32_t> nodes, counts;
  std::string error;
};

std::vector<int32_t> Targets(int32_t num_nodes) {
  std::vector<int32_t> targets;
  for (int i = 0; i < 700; ++i) targets.push_back((i * 7) % (num_nodes + 1));
  return targets;
}

int64_t Width(const jgs::VisitOptions& options) {
  int64_t width = 0;
  for (int64_t g = 0; g < options.num_groups; ++g) width += options.groups[g].size;
  return width;
}

Found Run(const jgs::GraphView& graph, const jgs::VisitOptions& options, int num_threads) {
  const std::vector<int32_t> targets = Targets(graph.num_nodes);
  Found found;
  found.nodes.assign(targets.size() * Width(options), -7);
  found.counts = found.nodes;
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  found.error = jgs::MostVisited(graph, kKey, targets.data(), targets.size(), options,
                                 found.nodes.data(), found.counts.data(), executor);
  return found;
}

// Walks one by one. Visits are ordered by traversal, and by walk within a traversal.
std::vector<int32_t> Visited(const jgs::GraphView& g, const jgs::VisitOptions& o, int32_t target) {
  std::vector<int32_t> visited(o.length * o.num_walks, -1);
  const int64_t per = std::max<int64_t>(1, o.num_path);
  for (int64_t walk = 0; walk < o.num_walks && target < g.num_nodes; ++walk) {
    jgs::Key key{{static_cast<uint32_t>(target), static_cast<uint32_t>(walk)}};
    jgs::Threefry(kKey, key.word[0], key.word[1]);
    int32_t here = target;
    for (int64_t step = 0; step < o.length * per; ++step) {
      uint32_t high = step + 1, low = 0, back = step + 1, end = 0xFFFFFFFF;
      jgs::Threefry(key, high, low);
      jgs::Threefry(key, back, end);
      if (step > 0 && step % per == 0 && end < o.stop) break;
      std::vector<int32_t> row;
      for (int64_t e = g.indptr[here]; e < g.indptr[here + 1]; ++e) {
        if (o.num_path == 0 || o.edge_type[e] == o.path[step % per]) row.push_back(g.indices[e]);
      }
      if (row.empty()) break;
      const uint64_t n = row.size(), carry = low * n >> 32;
      here = row[(high * n + carry) >> 32];
      if ((step + 1) % per == 0) visited[step / per * o.num_walks + walk] = here;
    }
  }
  return visited;
}

bool IsIn(const jgs::VisitGroup& group, int64_t node) {
  for (int64_t i = 0; i < group.num_bounds; i += 2) {
    if (group.bounds[i] <= node && node < group.bounds[i + 1]) return true;
  }
  return false;
}

bool IsPlain(const jgs::GraphView& g, const jgs::VisitOptions& o, const Found& found) {
  int64_t at = 0;
  for (int32_t target : Targets(g.num_nodes)) {
    const std::vector<int32_t> visited = Visited(g, o, target);
    for (int64_t group = 0; group < o.num_groups; ++group) {
      std::vector<int32_t> left = visited;
      for (int64_t i = 0; i < o.groups[group].size; ++i, ++at) {
        int32_t best = -1;
        int64_t most = 0;
        for (int32_t node : left) {
          if (node == target || !IsIn(o.groups[group], node)) continue;
          const int64_t count = std::count(left.begin(), left.end(), node);
          if (count > most) best = node, most = count;
        }
        if (found.nodes[at] != (best < 0 ? g.num_nodes : best) || found.counts[at] != most) {
          return false;
        }
        std::replace(left.begin(), left.end(), best, -1);
      }
    }
  }
  return true;
}

}  // namespace

int main() {
  Graph graph = RandomGraph(500, 12);
  const int64_t num_nodes = static_cast<int64_t>(graph.indptr.size()) - 1;
  const jgs::GraphView view{graph.indptr.data(), graph.indptr.data() + 1, num_nodes, graph.indices.data(),
                            static_cast<int64_t>(graph.indices.size()), nullptr, nullptr};
  const int64_t path[] = {1, 0};
  const int64_t few[] = {0, 100}, more[] = {100, 250, 300, 300, 350, 500};
  const jgs::VisitGroup groups[] = {{2, few, 2}, {5, more, 6}};
  const uint64_t half = uint64_t{1} << 31;
  const jgs::VisitOptions modes[] = {
      {70, 6, half, nullptr, nullptr, 0, groups, 2, {}},
      {9, 3, 0, graph.type.data(), path, 2, groups, 2, {}},
      {1, 4, 2 * half, graph.type.data(), path, 1, groups, 1, {}},
  };
  int runs = 0;
  for (const jgs::VisitOptions& options : modes) {
    for (int threads : {1, 2, 4, 8}) {
      ++runs;
      const Found found = Run(view, options, threads);
      if (!found.error.empty() || !IsPlain(view, options, found)) {
        std::printf("run %d: other visits; %s\n", runs, found.error.c_str());
        return EXIT_FAILURE;
      }
    }
  }
  std::fill(graph.indices.begin(), graph.indices.end(), 500);
  if (Run(view, modes[0], 4).error.empty()) {
    std::printf("a damaged graph was not refused\n");
    return EXIT_FAILURE;
  }
  std::printf("%d runs equal\n", runs);
}
