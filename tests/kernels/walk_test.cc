// The walks' plain C++ layer on threads of its own, without XLA: for ThreadSanitizer. Every
// thread count must give the bytes that one thread gives. Walks of first order must be those
// of a plain loop, on the instructions that JGS_MAX_ISA allows. Run by `make sanitize` and by
// test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "draw_weighted.h"
#include "threads.h"
#include "walk.h"

namespace {

struct Graph {
  std::vector<int64_t> indptr{0}, prefix;
  std::vector<int32_t> indices;  // ascending within each stretch of a row
  std::vector<int16_t> type;
  std::vector<int64_t> stretches;  // those of types 0 and 2
  std::vector<int64_t> time, excluded;  // ascending in each row; a third of the edges
};

constexpr int64_t kWindow = 12;

// Rows of three types; every 50th is long, every 7th empty, and some weigh nothing.
Graph RandomGraph(int num_nodes, int mean_degree) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    const int most = v % 50 == 0 ? 80 * mean_degree : v % 7 == 0 ? 1 : mean_degree;
    int64_t sum = 0;
    for (int16_t type = 0; type < 3; ++type) {
      int node = 0;
      for (int i = random() % most; i > 0 && node < num_nodes; --i) {
        graph.indices.push_back(node);
        graph.type.push_back(type);
        graph.prefix.push_back(sum += v % 11 == 0 ? 0 : random() % 3);
        node += random() % (2 * num_nodes / most);
      }
    }
    graph.indptr.push_back(graph.indices.size());
    for (int64_t e = graph.indptr[v], end = graph.indptr[v + 1]; e < end; ++e) {
      graph.time.push_back(20 * (e - graph.indptr[v]) / (end - graph.indptr[v]));
      if (random() % 3 == 0) graph.excluded.push_back(e);
    }
  }
  graph.excluded.insert(graph.excluded.end(), 5, graph.indices.size());
  for (int16_t wanted : {0, 2}) {
    for (int v = 0; v < num_nodes; ++v) {
      const auto row = graph.type.begin() + graph.indptr[v];
      const auto in = std::equal_range(row, graph.type.begin() + graph.indptr[v + 1], wanted);
      graph.stretches.push_back(in.first - graph.type.begin());
      graph.stretches.push_back(in.second - in.first);
    }
  }
  return graph;
}

// Each row's edges by source and then position, with the prefix sums of their weights.
struct Index {
  std::vector<int64_t> order, weight;

  explicit Index(const Graph& graph) {
    for (size_t v = 0; v + 1 < graph.indptr.size(); ++v) {
      const int64_t begin = graph.indptr[v], end = graph.indptr[v + 1];
      for (int64_t e = begin; e < end; ++e) {
        order.push_back(int64_t{graph.indices[e]} << 32 | (e - begin));
      }
      std::sort(order.begin() + begin, order.end());
      for (int64_t e = begin, sum = 0; e < end; ++e) {
        const int64_t at = begin + (order[e] & 0xFFFFFFFF);
        sum += graph.prefix[at] - (at > begin ? graph.prefix[at - 1] : 0);
        weight.push_back(sum);
      }
    }
  }
};

// The runs of each row, whose times are made to ascend in each run.
struct Runs {
  std::vector<int64_t> indptr{0}, first;

  explicit Runs(Graph& graph) {
    for (size_t v = 0; v + 1 < graph.indptr.size(); ++v) {
      for (int64_t e = graph.indptr[v], begin = e; e < graph.indptr[v + 1]; ++e) {
        if (e == begin || graph.type[e] != graph.type[e - 1]) {
          begin = e;
          first.push_back(e << 15 | graph.type[e]);
        }
        graph.time[e] = (e - begin) / (1 + v % 5);
      }
      indptr.push_back(first.size());
    }
    first.push_back(static_cast<int64_t>(graph.indices.size()) << 15);
  }
};

struct Walks {
  std::vector<int32_t> nodes, lengths;
  std::string error;
  bool operator==(const Walks& o) const {
    return nodes == o.nodes && lengths == o.lengths && error == o.error;
  }
};

constexpr jgs::Key kKey{{3, 4}};
constexpr int kLength = 12;

// The cutoff of each root, of four.
std::vector<int64_t> Cutoffs() {
  std::vector<int64_t> cutoffs;
  for (int i = 0; i < 3000; ++i) cutoffs.push_back(5 + i % 4 * 5);
  return cutoffs;
}

std::vector<int32_t> Roots(int32_t num_nodes) {
  std::vector<int32_t> roots;
  for (int i = 0; i < 3000; ++i) roots.push_back((i * 7) % (i % 3 == 0 ? 10 : num_nodes + 1));
  return roots;
}

jgs::GraphView View(const Graph& g, bool weighted) {
  return {g.indptr.data(), g.indptr.data() + 1, static_cast<int64_t>(g.indptr.size()) - 1, g.indices.data(),
          static_cast<int64_t>(g.indices.size()), weighted ? g.prefix.data() : nullptr, nullptr};
}

Walks Run(const jgs::GraphView& graph, const jgs::WalkOptions& options, int num_threads) {
  const std::vector<int32_t> roots = Roots(graph.num_nodes);
  const std::vector<int64_t> cutoffs = Cutoffs();
  const jgs::Seeds seeds{roots.data(), static_cast<int64_t>(roots.size()),
                         options.limits.time != nullptr ? cutoffs.data() : nullptr};
  Walks w;
  w.nodes.assign(roots.size() * (kLength + 1), -7);
  w.lengths.assign(roots.size(), -7);
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  w.error = jgs::SampleWalks(graph, kKey, seeds, options, w.nodes.data(), w.lengths.data(),
                             executor);
  return w;
}

// A walk of first order, step by step. With `types` it follows types 2 and 0 in turn.
Walks Plain(const jgs::GraphView& g, const jgs::WalkOptions& options, const int16_t* types) {
  Walks w;
  const jgs::Limits& limits = options.limits;
  const int64_t* const excluded = limits.excluded;
  std::map<std::pair<int32_t, int64_t>, uint32_t> walks_of;
  const std::vector<int64_t> cutoffs = Cutoffs();
  size_t number = 0;
  for (int32_t root : Roots(g.num_nodes)) {
    const int64_t cutoff = limits.time != nullptr ? cutoffs[number++] : 0;
    // Padding has no cutoff, and makes no step.
    jgs::Key of_call = kKey, key{{static_cast<uint32_t>(root), walks_of[{root, cutoff}]++}};
    if (limits.time != nullptr) {
      of_call = {{0, static_cast<uint32_t>(cutoff)}};
      jgs::Threefry(kKey, of_call.word[0], of_call.word[1]);
    }
    jgs::Threefry(of_call, key.word[0], key.word[1]);
    int32_t here = root, length = 0;
    int64_t own = cutoff;  // of the step
    w.nodes.push_back(root);
    for (uint32_t step = 1; step <= kLength; ++step) {
      uint32_t high = step, low = 0, back = step, end = 0xFFFFFFFF;
      jgs::Threefry(key, high, low);
      jgs::Threefry(key, back, end);
      int32_t there = -1;
      if (here >= 0 && here < g.num_nodes) {
        std::vector<int64_t> edges, sums{0};
        for (int64_t e = g.indptr[here]; e < g.indptr[here + 1]; ++e) {
          if (types != nullptr && types[e] != (step % 2 == 1 ? 2 : 0)) continue;
          const int64_t age = limits.time != nullptr ? own - limits.time[e] : 1;
          if (age <= 0 || age > kWindow) continue;
          if (std::binary_search(excluded, excluded + limits.num_excluded, e)) continue;
          const int64_t before = e > g.indptr[here] && g.weight_prefix ? g.weight_prefix[e - 1] : 0;
          edges.push_back(e);
          sums.push_back(sums.back() + (g.weight_prefix ? g.weight_prefix[e] - before : 1));
        }
        if (options.latest >= 0 && static_cast<int64_t>(edges.size()) > options.latest) {
          edges.erase(edges.begin(), edges.end() - options.latest);
          sums.resize(options.latest + 1);
        }
        const int64_t point = jgs::Below(static_cast<uint64_t>(high) << 32 | low, sums.back());
        for (size_t i = 0; i < edges.size() && there < 0; ++i) {
          if (sums[i + 1] <= point) continue;
          there = g.indices[edges[i]];
          if (options.causal) own = limits.time[edges[i]];
        }
        if (step > 1 && back < options.restart) {
          there = root;
          own = cutoff;
        }
        if (step > 1 && end < options.stop) there = -1;
      }
      here = there < 0 ? static_cast<int32_t>(g.num_nodes) : there;
      length += there >= 0;
      w.nodes.push_back(here);
    }
    w.lengths.push_back(length);
  }
  return w;
}

}  // namespace

int main() {
  const Graph graph = RandomGraph(4000, 12);
  const std::vector<int64_t> relations{1, 0};
  const uint64_t half = uint64_t{1} << 31;
  const std::vector<jgs::SecondOrder> rules{{half, 2 * half, 2 * half, false, 1, 1},
                                            {half / 2, half, 2 * half, false, 1, 1},
                                            {2 * half, half, 2 * half, true, half, half / 9},
                                            {1, 2 * half, half, true, 7, half}};
  // Walks of second order need whole rows that ascend, in a graph of one type.
  Graph ascending = graph;
  for (size_t v = 0; v + 1 < graph.indptr.size(); ++v) {
    std::sort(ascending.indices.begin() + graph.indptr[v],
              ascending.indices.begin() + graph.indptr[v + 1]);
  }
  int runs = 0;
  for (bool weighted : {false, true}) {
    for (size_t mode = 0; mode < 4 + rules.size(); ++mode) {
      const bool typed = mode == 2 || mode == 3, first = mode < 4;
      const uint64_t restart = mode % 2 == 1 && first ? half / 2 : 0;
      const jgs::WalkOptions options{kLength,
                                     restart,
                                     restart / 4,
                                     typed ? graph.stretches.data() : nullptr,
                                     relations.data(),
                                     typed ? 2 : 0,
                                     first ? nullptr : &rules[mode - 4],
                                     -1,
                                     {}};
      const jgs::GraphView view = View(first ? graph : ascending, weighted);
      const Walks one = Run(view, options, 1);
      const int16_t* types = typed ? graph.type.data() : nullptr;
      if (!one.error.empty() || (first && !(one == Plain(view, options, types)))) {
        std::printf("mode %d: other walks; %s\n", static_cast<int>(mode), one.error.c_str());
        return EXIT_FAILURE;
      }
      for (int threads : {2, 3, 4, 8}) {
        ++runs;
        if (!(Run(view, options, threads) == one)) {
          std::printf("mode %d, %d threads: other walks\n", static_cast<int>(mode), threads);
          return EXIT_FAILURE;
        }
      }
    }
  }
  // Rows with holes, cutoffs and windows; the last modes are causal.
  for (int mode = 0; mode < 20; ++mode) {
    const bool weighted = mode & 1, timed = mode >= 4, holes = mode < 4 || mode % 8 < 4;
    jgs::WalkOptions options{kLength, mode & 2 ? half / 2 : 0, 0, nullptr, nullptr, 0, nullptr,
                             timed && !weighted ? 7 : -1, {}, mode >= 12};
    const jgs::GraphView view = View(graph, weighted);
    const jgs::Seeds seeds{nullptr, 0, timed ? graph.time.data() : nullptr, graph.excluded.data(),
                           holes ? static_cast<int64_t>(graph.excluded.size()) : 0};
    std::string error;
    options.limits = jgs::LimitsOf(seeds, graph.time.data(), view.num_edges, view.weight_prefix,
                                   timed ? kWindow : -1, error);
    const Walks one = Plain(view, options, nullptr);
    for (int threads : {1, 3, 8}) {
      ++runs;
      if (!(Run(view, options, threads) == one)) {
        std::printf("limits %d, %d threads: other walks\n", mode, threads);
        return EXIT_FAILURE;
      }
    }
  }
  // Rows of several relations, with cutoffs and windows.
  Graph typed = graph;
  const Runs by_relation(typed);
  for (int mode = 0; mode < 8; ++mode) {
    const bool weighted = mode & 1, holes = mode & 2;
    jgs::WalkOptions options{kLength, half / 2, half / 8, nullptr, nullptr, 0, nullptr, -1, {},
                             (mode & 4) != 0};
    const jgs::GraphView view = View(typed, weighted);
    const jgs::Seeds seeds{nullptr, 0, typed.time.data(), typed.excluded.data(),
                           holes ? static_cast<int64_t>(typed.excluded.size()) : 0};
    std::string error;
    options.limits = jgs::LimitsOf(seeds, typed.time.data(), view.num_edges, view.weight_prefix,
                                   kWindow, error);
    options.index = {by_relation.indptr.data(), by_relation.indptr.data() + 1, by_relation.first.data(),
                     static_cast<int64_t>(by_relation.first.size()) - 1};
    const Walks one = Plain(view, options, nullptr);
    for (int threads : {1, 3, 8}) {
      ++runs;
      if (!(Run(view, options, threads) == one)) {
        std::printf("relations %d, %d threads: other walks\n", mode, threads);
        return EXIT_FAILURE;
      }
    }
  }
  // Causal walks by recency, and of second order with an index of edges by source. The tests of
  // Python have their law and their plain form.
  const Index index(graph);
  const std::vector<int64_t> sums(graph.indices.size(), 1 << 20);  // any sums
  for (size_t mode = 0; mode < 2 * (1 + rules.size()); ++mode) {
    const bool second = mode / 2 < rules.size(), weighted = second && mode % 2;
    const jgs::GraphView view = View(graph, weighted);
    const jgs::Seeds seeds{nullptr, 0, graph.time.data()};
    std::string error;
    jgs::WalkOptions options{kLength, 0, 0, nullptr, nullptr, 0,
                             second ? &rules[mode / 2] : nullptr, -1, {}, true};
    options.limits = jgs::LimitsOf(seeds, graph.time.data(), view.num_edges, view.weight_prefix,
                                   mode % 2 ? kWindow : -1, error);
    if (!second) options.recency = {3, sums.data(), graph.time.data()};
    options.by_source = index.order.data();
    options.weight_by_source = index.weight.data();
    const Walks one = Run(view, options, 1);
    for (int threads : {2, 8}) {
      ++runs;
      if (!one.error.empty() || !(Run(view, options, threads) == one)) {
        std::printf("by time %d, %d threads: other walks\n", static_cast<int>(mode), threads);
        return EXIT_FAILURE;
      }
    }
  }
  std::printf("walk_test: %d runs equal\n", runs);
  return EXIT_SUCCESS;
}
