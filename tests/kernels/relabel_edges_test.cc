// Self-test of relabel_edges.h without Python or XLA, for the sanitizers (ThreadSanitizer above
// all): against a map filled edge by edge, on 1, 2 and 4 threads.
// Run by `make sanitize`.
#include "relabel_edges.h"

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "threads.h"

namespace {

std::atomic<int> failures{0};

constexpr int32_t kPadding = 1 << 30;

struct Result {
  std::vector<int32_t> nodes, indices;
  int64_t count;
  bool operator==(const Result& other) const {
    return nodes == other.nodes && indices == other.indices && count == other.count;
  }
};

Result ByDefinition(const std::vector<int32_t>& targets, const std::vector<int32_t>& neighbors,
                    int64_t capacity, int64_t edge_capacity) {
  Result result{targets, {}, 0};
  std::unordered_map<int32_t, int32_t> place;
  for (size_t t = 0; t < targets.size(); ++t) place.emplace(targets[t], t);
  for (const int32_t node : neighbors) {
    const auto found = place.emplace(node, static_cast<int32_t>(result.nodes.size()));
    if (found.second) result.nodes.push_back(node);
    result.indices.push_back(found.first->second);
  }
  const bool fits = static_cast<int64_t>(result.nodes.size()) <= capacity;
  result.count = fits ? static_cast<int64_t>(result.nodes.size()) : capacity + 1;
  if (!fits) result.nodes.clear(), result.indices.clear();
  result.nodes.resize(capacity, kPadding);
  result.indices.resize(edge_capacity, static_cast<int32_t>(capacity));
  return result;
}

Result ByKernel(const std::vector<int32_t>& targets, const std::vector<int32_t>& neighbors,
                int64_t capacity, int64_t edge_capacity, int64_t num_threads) {
  Result result{std::vector<int32_t>(capacity, -7), std::vector<int32_t>(edge_capacity, -7), 0};
  jgs::Sources sources{capacity, edge_capacity, kPadding, result.nodes.data(),
                       result.indices.data(), -1};
  Threads threads;
  const jgs::EdgeList edges{targets.data(), static_cast<int64_t>(targets.size()),
                            neighbors.data(), static_cast<int64_t>(neighbors.size())};
  failures += !jgs::RelabelEdges(edges, sources, threads.Get(num_threads)).empty();
  result.count = sources.count;
  return result;
}

void Run(int64_t num_targets, int64_t num_edges, int32_t num_nodes, int64_t capacity) {
  std::mt19937 random(static_cast<uint32_t>(num_edges + num_nodes));
  std::vector<int32_t> targets(num_targets), neighbors(num_edges);
  for (int32_t& node : targets) node = static_cast<int32_t>(random() % num_nodes);
  for (int32_t& node : neighbors) node = static_cast<int32_t>(random() % num_nodes);
  const int64_t edge_capacity = num_edges + 3;
  const Result wanted = ByDefinition(targets, neighbors, capacity, edge_capacity);
  for (const int64_t num_threads : {1, 2, 4}) {
    Result other;
    std::thread beside([&] {  // two calls at once
      other = ByKernel(targets, neighbors, capacity, edge_capacity, num_threads);
    });
    const Result mine = ByKernel(targets, neighbors, capacity, edge_capacity, num_threads);
    beside.join();
    failures += !(mine == wanted) + !(other == wanted);
  }
  if (num_edges > 0 && wanted.count <= capacity) {  // otherwise it may stop before -1
    neighbors[num_edges / 2] = -1;
    Result result = wanted;
    jgs::Sources sources{capacity, edge_capacity, kPadding, result.nodes.data(),
                         result.indices.data(), -1};
    Threads threads;
    failures += jgs::RelabelEdges({targets.data(), num_targets, neighbors.data(), num_edges},
                                  sources, threads.Get(4)).empty();
  }
}

}  // namespace

int main() {
  for (const int64_t num_edges : {0, 1, 2047, 2049, 100000}) {
    for (const int32_t num_nodes : {10, 3000, 200000}) {
      Run(100, num_edges, num_nodes, 100 + num_edges);
      Run(100, num_edges, num_nodes, 150);  // too small for most
    }
  }
  std::printf(failures == 0 ? "relabel_edges_test: passed\n" : "relabel_edges_test: %d failures\n",
              failures.load());
  return failures != 0;
}
