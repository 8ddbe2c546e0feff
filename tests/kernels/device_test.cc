// What GPUs run, on the host: steps in several orders and on threads, beside the CPU's kernels.
// Samples must be equal to the bit, sums too where no row is summed in pieces. Run by
// `make sanitize`, and by test_cuda.py with the address and undefined behaviour sanitizers.
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "aggregate.h"
#include "device_aggregate.h"
#include "device_sample.h"
#include "host_launcher.h"
#include "sample.h"

namespace {

using jgs::Order;

constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled,
                             Order::kThreads};

struct Graph {
  std::vector<int64_t> indptr{0}, ends;
  std::vector<int32_t> indices;
  std::vector<float> weight;
  jgs::GraphView View() const {
    const int64_t num_nodes = indptr.size() - 1;
    const int64_t* to = ends.empty() ? indptr.data() + 1 : ends.data();
    return {indptr.data(), to, num_nodes, indices.data(), static_cast<int64_t>(indices.size()),
            nullptr, weight.data()};
  }
};

// Node 0 has `hub` edges, node 1 half as many, and every fifth node none.
Graph RandomGraph(int num_nodes, int most, int hub) {
  std::mt19937 random(3);
  Graph graph;
  for (int v = 0; v < num_nodes; ++v) {
    const int degree = v < 2 ? hub / (v + 1) : v % 5 == 0 ? 0 : random() % (most + 1);
    for (int i = 0; i < degree; ++i) {
      graph.indices.push_back(random() % num_nodes);
      graph.weight.push_back(random() % 100);
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

struct Case {
  std::vector<int64_t> fanouts;
  bool replace = false, relabel_inputs = true;
  int64_t most_edges = 1 << 20, most_sources = 1 << 20;
};

struct Sample {
  std::vector<std::vector<int32_t>> indptr, indices;
  std::vector<std::vector<int64_t>> edge_id;
  std::vector<std::vector<float>> weight;
  std::vector<int32_t> nodes, counts, needed;
  bool overflow = false;
  std::string error;

  bool operator==(const Sample& o) const {
    return indptr == o.indptr && indices == o.indices && edge_id == o.edge_id &&
           weight == o.weight && nodes == o.nodes && counts == o.counts && needed == o.needed &&
           overflow == o.overflow && error == o.error;
  }
};

// Draws by the launcher, or by the CPU's kernel if it is null.
Sample Draw(const jgs::GraphView& graph, const std::vector<int32_t>& seeds, const Case& with,
            jgs::Launcher* launcher) {
  const uint32_t key[2] = {7, 1u << 31};
  const size_t num_hops = with.fanouts.size();
  Sample s;
  int64_t targets = seeds.size();
  std::vector<jgs::Hop> hops(num_hops);
  std::vector<jgs::HopCounts> counts(num_hops);
  for (auto* of : {&s.indptr, &s.indices}) of->resize(num_hops);
  s.edge_id.resize(num_hops);
  s.weight.resize(num_hops);
  s.counts.resize(3 * num_hops);
  s.needed.resize(2 * num_hops);
  for (size_t h = 0; h < num_hops; ++h) {
    const int64_t k = with.fanouts[h];
    jgs::Hop& hop = hops[h];
    hop.key = jgs::Fold({{key[0], key[1]}}, static_cast<uint32_t>(h + 2));
    hop.fanout = k;
    hop.target_capacity = targets;
    const int64_t most = k == -1 ? graph.num_edges + 900 : targets * k;
    hop.edge_capacity = std::min(with.most_edges, most);
    hop.source_capacity = std::min(with.most_sources, targets + hop.edge_capacity);
    s.indptr[h].resize(targets + 1);
    s.indices[h].resize(hop.edge_capacity);
    s.edge_id[h].resize(hop.edge_capacity);
    s.weight[h].resize(hop.edge_capacity);
    hop.indptr = s.indptr[h].data();
    hop.indices = s.indices[h].data();
    hop.edge_id = s.edge_id[h].data();
    hop.edge_weight = graph.edge_weight == nullptr ? nullptr : s.weight[h].data();
    int32_t *of = &s.counts[3 * h], *needed = &s.needed[h];
    counts[h] = {of, of + 1, of + 2, needed, needed + num_hops};
    if (with.relabel_inputs || h + 1 < num_hops) targets = hop.source_capacity;
  }
  s.nodes.resize(targets);
  const jgs::Seeds of{seeds.data(), static_cast<int64_t>(seeds.size())};
  if (launcher != nullptr) {
    jgs::SampleOnDevice(*launcher, {graph, key, 2, of, with.replace, with.relabel_inputs, hops,
                                    counts, s.nodes.data(), targets, &s.overflow});
    return s;
  }
  const jgs::NeighborOptions options{with.replace, false, false, -1, nullptr, {}, {}};
  s.error = jgs::SampleNeighbors(graph, of, options, with.relabel_inputs, hops,
                                 {s.nodes.data(), nullptr, &s.overflow}, jgs::Executor{});
  for (size_t h = 0; h < num_hops; ++h) {
    *counts[h].num_targets = hops[h].num_targets;
    *counts[h].num_sources = hops[h].num_sources;
    *counts[h].num_edges = hops[h].num_edges;
    *counts[h].edges_needed = hops[h].edges_needed;
    *counts[h].sources_needed = hops[h].sources_needed;
  }
  return s;
}

int Fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  return 1;
}

// The number of samples that were equal, in each order; exits at the first that is not.
int CompareSamples(const jgs::GraphView& graph, const std::vector<int32_t>& seeds,
                   const std::vector<Case>& cases) {
  int equal = 0;
  for (const Case& with : cases) {
    const Sample want = Draw(graph, seeds, with, nullptr);
    for (Order order : kOrders) {
      jgs::Launcher launcher(order);
      if (!(Draw(graph, seeds, with, &launcher) == want)) {
        std::exit(Fail("case " + std::to_string(&with - cases.data()) + ", order " +
                       std::to_string(static_cast<int>(order)) + ": another sample"));
      }
      ++equal;
    }
  }
  return equal;
}

int Samples() {
  const Graph graph = RandomGraph(300, 12, 900), large = RandomGraph(20'000, 4, 900);
  std::vector<int32_t> seeds;
  for (int i = 0; i < 41; ++i) seeds.push_back(i % 9 == 4 ? 300 : i * 7 % 290);
  seeds.insert(seeds.end(), {0, 0, 7, 300});
  std::vector<Case> cases{{{3, 2}}, {{5, 40, 1}}, {{-1, 4}}, {{2, -1}}, {{3, 3}, true},
                          {{4, 3}, false, false}, {{40}, true, false}, {{-1}, false, false}};
  const size_t whole = cases.size();
  for (size_t i = 0; i < whole; ++i) {  // what does not fit
    for (int64_t most : {0, 90}) {
      cases.push_back(cases[i]);
      cases.back().most_edges = most;
    }
    for (int64_t most : {45, 60}) {
      cases.push_back(cases[i]);
      cases.back().most_sources = most;
    }
  }
  int equal = CompareSamples(graph.View(), seeds, cases);
  seeds.assign({5, 19'999, 0, 20'000, 3, 5});  // few of the nodes: they are hashed
  equal += CompareSamples(large.View(), seeds, {{{3, 2}}, {{40, -1}}, {{2, 2, 2}, true}});
  equal += CompareSamples(large.View(), {20'000, 20'000}, {{{3, 2}}});
  Graph room = graph;  // rows with room at their ends
  room.ends.assign(graph.indptr.begin() + 1, graph.indptr.end());
  for (size_t v = 0; v < room.ends.size(); v += 2) {
    if (room.ends[v] > room.indptr[v]) --room.ends[v];
  }
  equal += CompareSamples(room.View(), {1, 0, 2, 300}, {{{3, 2}}, {{-1}}});
  const Graph empty = RandomGraph(1, 0, 0);
  equal += CompareSamples(empty.View(), {0, 1}, {{{3, 2}}});

  // Edges beyond 2**31, in memory that is not there until it is written.
  const int64_t first = (int64_t{1} << 31) + 12'345, num = first + graph.indices.size();
  const size_t size = num * sizeof(int32_t);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Fail("no address space");
  Graph far = graph;
  for (int64_t& offset : far.indptr) offset += first;
  far.weight.clear();
  std::copy(graph.indices.begin(), graph.indices.end(), static_cast<int32_t*>(memory) + first);
  jgs::GraphView view = far.View();
  view.indices = static_cast<int32_t*>(memory);
  view.num_edges = num;
  view.edge_weight = nullptr;
  equal += CompareSamples(view, {0, 7, 9}, {{{3, 2}}, {{5, 4}, true}});
  munmap(memory, size);

  // A seed that is no node, where the CPU's kernel has an error.
  for (int32_t bad : {-1, 301}) {
    for (Order order : kOrders) {
      jgs::Launcher launcher(order);
      const Sample s = Draw(graph.View(), {1, bad, 2}, {{3, 2}}, &launcher);
      bool good = s.overflow && s.counts == std::vector<int32_t>(6, 0);
      for (int32_t needed : s.needed) good &= needed == -1;
      for (int32_t node : s.nodes) good &= node == 300;
      if (!good) return Fail("a bad seed gives a sample");
      ++equal;
    }
  }
  // A damaged graph: nothing is read out of bounds.
  Graph damaged = graph;
  damaged.indptr[3] = int64_t{1} << 40;
  damaged.indptr[8] = -5;
  for (size_t e = 0; e < damaged.indices.size(); e += 3) {
    damaged.indices[e] = e % 2 ? -7 : 1 << 30;
  }
  jgs::Launcher launcher;
  Draw(damaged.View(), {0, 1, 2, 3, 7, 8}, {{3, -1, 2}}, &launcher);
  return equal;
}

struct Sums {
  std::vector<float> out, grad_x, grad_weight;
  std::vector<int32_t> argmax;
};

bool Near(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-5f * (1 + std::abs(b[i])))) return false;
  }
  return a.size() == b.size();
}

// The block of `graph`'s rows, with room for 9 targets and 23 edges more, and its sums.
int CompareSums(const Graph& graph, jgs::Reduce reduce, bool weighted, int64_t heads) {
  const int64_t width = 6, rows = graph.indptr.size() - 1, edges = graph.indices.size();
  const bool max = reduce == jgs::Reduce::kMax;
  std::vector<int32_t> indptr(graph.indptr.begin(), graph.indptr.end());
  std::vector<int32_t> indices = graph.indices;
  std::fill_n(indices.begin() + 100, 700, 11);  // a source of many edges
  indptr.resize(rows + 10, static_cast<int32_t>(edges));
  indices.resize(edges + 23, 5);
  std::mt19937 random(5);
  const auto floats = [&](int64_t n) {
    std::vector<float> made(n);
    for (float& f : made) f = static_cast<int>(random() % 2001 - 1000) / 512.0f;
    return made;
  };
  const std::vector<float> weight = floats((edges + 23) * heads), x = floats(rows * width);
  const std::vector<float> grad = floats((rows + 9) * width);
  jgs::BlockView block;
  block.indptr = indptr.data();
  block.indices = indices.data();
  block.weight = weighted ? weight.data() : nullptr;
  block.target_capacity = rows + 9;
  block.edge_capacity = edges + 23;
  block.num_rows = block.num_targets = rows;
  block.num_edges = edges;
  block.num_heads = heads;
  const auto made = [&] {
    return Sums{std::vector<float>((rows + 9) * width), std::vector<float>(rows * width),
                std::vector<float>(weight.size()), std::vector<int32_t>((rows + 9) * width)};
  };
  const auto run = [&](Order order, const jgs::DeviceBlock& of, Sums& sums) {
    jgs::Launcher launcher(order);
    jgs::AggregateOnDevice(launcher, of, reduce, x.data(), width, sums.out.data(),
                           sums.argmax.data());
    jgs::AggregateGradOnDevice(launcher, of, reduce, grad.data(), sums.argmax.data(), width,
                               sums.grad_x.data());
    jgs::AggregateGradWeightOnDevice(launcher, of, reduce, grad.data(), sums.argmax.data(),
                                     x.data(), width, sums.grad_weight.data());
  };
  Sums want = made(), first = made();
  const jgs::Executor one;
  jgs::Aggregate(one, block, reduce, x.data(), width, want.out.data(),
                 max ? want.argmax.data() : nullptr);
  jgs::AggregateGrad(one, block, reduce, grad.data(), want.argmax.data(), width,
                     want.grad_x.data());
  jgs::AggregateGradWeight(one, block, reduce, grad.data(), want.argmax.data(), x.data(), width,
                           want.grad_weight.data());
  const int32_t num_targets = rows, num_edges = edges, lost = -2147483647 - 1;
  const jgs::DeviceBlock device{indptr.data(), indices.data(), block.weight, &num_targets,
                                &num_edges,    rows + 9,       edges + 23,   rows,
                                heads};
  run(Order::kForward, device, first);
  for (Order order : kOrders) {
    Sums got = made();
    run(order, device, got);
    // Rows 0 and 1, of more than kPiece edges, are summed in another order than on the CPU.
    const bool repeats = got.out == first.out && got.grad_x == first.grad_x;
    if (!repeats || got.argmax != want.argmax || got.grad_weight != want.grad_weight ||
        !Near(got.out, want.out) || !Near(got.grad_x, want.grad_x) ||
        !std::equal(got.out.begin() + 2 * width, got.out.end(), want.out.begin() + 2 * width)) {
      std::exit(Fail("other sums: reduce " + std::to_string(static_cast<int>(reduce))));
    }
    jgs::DeviceBlock wrong = device;
    wrong.num_edges = &lost;
    run(order, wrong, got);
    for (float f : got.out) {
      if (!std::isnan(f)) std::exit(Fail("a lost sample has a sum"));
    }
    // Arrays that break the rules: nothing is read out of bounds.
    std::vector<int32_t> falling = indptr, outside = indices;
    falling[4] = 1 << 30;
    falling[7] = -falling[4];
    outside[3] = -1;
    outside[5] = 1 << 30;
    wrong = device;
    wrong.indptr = falling.data();
    wrong.indices = outside.data();
    run(order, wrong, got);
    for (size_t t = 0; t < falling.size(); ++t) falling[t] = t % 2 == 0 ? 0 : num_edges;
    run(order, wrong, got);
  }
  return 4;
}

}  // namespace

int main() {
  int equal = Samples();
  const Graph graph = RandomGraph(60, 9, 700);
  for (auto reduce : {jgs::Reduce::kSum, jgs::Reduce::kMean, jgs::Reduce::kMax}) {
    for (bool weighted : {false, true}) equal += CompareSums(graph, reduce, weighted, 1);
    if (reduce != jgs::Reduce::kMax) equal += CompareSums(graph, reduce, true, 3);
  }
  std::printf("%d runs equal\n", equal);
}
