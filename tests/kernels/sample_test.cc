// The sampler's plain C++ layer on threads of its own, without XLA: for ThreadSanitizer.
// Every thread count must give the bytes that one thread gives, and a sample whose inputs are
// not relabelled must be the relabelled one in other words. Run by `make sanitize`.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sample.h"

namespace {

struct Sample {
  std::vector<std::vector<int32_t>> indptr, indices;
  std::vector<std::vector<int64_t>> edge_id;
  std::vector<std::vector<float>> edge_weight;
  std::vector<int32_t> nodes, counts;
  bool overflow = false;
  std::string error;

  bool operator==(const Sample& o) const {
    return indptr == o.indptr && indices == o.indices && edge_id == o.edge_id &&
           edge_weight == o.edge_weight && nodes == o.nodes && counts == o.counts &&
           overflow == o.overflow && error == o.error;
  }
};

struct Graph {
  std::vector<int64_t> indptr{0}, prefix;
  std::vector<int32_t> indices;
  std::vector<float> weight;
};

Graph RandomGraph(int num_nodes, int mean_degree) {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    const int degree = v % 50 == 0 ? 40 * mean_degree : random() % (2 * mean_degree);
    int64_t sum = 0;
    for (int i = 0; i < degree; ++i) {
      graph.indices.push_back(random() % num_nodes);
      const int weight = random() % 3;
      graph.weight.push_back(weight);
      graph.prefix.push_back(sum += weight);
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

Sample Run(const Graph& g, int batch, const std::vector<int64_t>& fanouts, bool replace,
           bool weighted, bool relabel_inputs, int64_t edge_limit, int num_threads) {
  const int64_t num_nodes = g.indptr.size() - 1;
  const jgs::GraphView view{g.indptr.data(), num_nodes, g.indices.data(),
                            static_cast<int64_t>(g.indices.size()), g.prefix.data(),
                            g.weight.data()};
  std::vector<int32_t> seeds;
  for (int i = 0; i < batch; ++i) seeds.push_back((i * 7) % (num_nodes + 1));
  Sample s;
  std::vector<jgs::Hop> hops;
  int64_t targets = batch;
  for (size_t h = 0; h < fanouts.size(); ++h) {
    const int64_t edges = std::min(
        edge_limit, fanouts[h] < 0 ? 2 * static_cast<int64_t>(g.indices.size()) : targets * fanouts[h]);
    const int64_t sources = std::min(targets + edges, num_nodes + batch);
    s.indptr.emplace_back(targets + 1, -7);
    s.indices.emplace_back(edges, -7);
    s.edge_id.emplace_back(edges, -7);
    s.edge_weight.emplace_back(edges, -7);
    jgs::Hop hop{};
    hop.key = {{1, static_cast<uint32_t>(h)}};
    hop.fanout = fanouts[h];
    hop.target_capacity = targets;
    hop.edge_capacity = edges;
    hop.source_capacity = sources;
    hop.indptr = s.indptr.back().data();
    hop.indices = s.indices.back().data();
    hop.edge_id = s.edge_id.back().data();
    hop.edge_weight = s.edge_weight.back().data();
    hops.push_back(hop);
    targets = sources;
  }
  s.nodes.assign(relabel_inputs ? targets : hops.back().target_capacity, -7);
  std::vector<std::thread> threads;
  jgs::Executor executor{num_threads, [&](std::function<void()> task) {
                           threads.emplace_back(std::move(task));
                         }};
  s.error = jgs::SampleNeighbors(view, seeds.data(), batch, replace, weighted,
                                 relabel_inputs, hops, s.nodes.data(), &s.overflow, executor);
  for (auto& thread : threads) thread.join();
  for (const auto& hop : hops) {
    s.counts.insert(s.counts.end(), {hop.num_targets, hop.num_sources, hop.num_edges});
  }
  return s;
}

// What `relabelled` is when its inputs are not relabelled.
Sample WithoutInputs(Sample relabelled, int32_t num_nodes) {
  Sample& s = relabelled;
  int32_t* counts = &s.counts[s.counts.size() - 3];
  auto& indices = s.indices.back();
  for (int32_t& i : indices) i = &i - indices.data() < counts[2] ? s.nodes[i] : num_nodes;
  s.nodes.resize(s.indptr.back().size() - 1);
  std::fill(s.nodes.begin() + counts[0], s.nodes.end(), num_nodes);
  if (!s.overflow) counts[1] = num_nodes;
  return relabelled;
}

}  // namespace

int main() {
  const Graph graph = RandomGraph(20000, 12);
  int runs = 0;
  for (const auto& fanouts : std::vector<std::vector<int64_t>>{{5, 6}, {-1, 2}, {3, -1}, {100}}) {
    for (int mode = 0; mode < 4; ++mode) {
      for (int64_t limit : {int64_t{1} << 40, int64_t{20000}}) {
        const auto run = [&](bool relabel_inputs, int threads) {
          return Run(graph, 4000, fanouts, mode & 1, mode & 2, relabel_inputs, limit, threads);
        };
        const Sample one = run(true, 1), other = WithoutInputs(one, 20000);
        if (!one.error.empty() || (limit > 20000 && one.overflow)) {
          std::printf("mode %d: %s, overflow %d\n", mode, one.error.c_str(), one.overflow);
          return EXIT_FAILURE;
        }
        for (int threads : {1, 2, 3, 4, 8}) {
          runs += 2;
          if (!(run(true, threads) == one) || !(run(false, threads) == other)) {
            std::printf("mode %d, %d threads: another sample\n", mode, threads);
            return EXIT_FAILURE;
          }
        }
      }
    }
  }
  std::printf("sample_test: %d runs equal\n", runs);
  return EXIT_SUCCESS;
}
