// The sampler's plain C++ layer on threads of its own, without XLA: for ThreadSanitizer.
// Every thread count must give the bytes that one thread gives. A sample whose inputs are not
// relabelled must equal the relabelled one but for names, and one by relation is the same with an
// index and without. Every instruction set must draw
// what a plain loop draws. Run by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "draw_weighted.h"
#include "sample.h"
#include "sample_runs.h"

namespace {

struct Sample {
  std::vector<std::vector<int32_t>> indptr, indices;
  std::vector<std::vector<int64_t>> edge_id;
  std::vector<std::vector<float>> edge_weight;
  std::vector<std::vector<int16_t>> edge_type;
  std::vector<int32_t> nodes, counts;
  std::vector<int64_t> cutoff;
  bool overflow = false;
  std::string error;

  bool operator==(const Sample& o) const {
    return indptr == o.indptr && indices == o.indices && edge_id == o.edge_id &&
           edge_weight == o.edge_weight && edge_type == o.edge_type && nodes == o.nodes && counts == o.counts &&
           cutoff == o.cutoff && overflow == o.overflow && error == o.error;
  }
};

struct Graph {
  std::vector<int64_t> indptr{0}, prefix;
  std::vector<int32_t> indices;
  std::vector<float> weight;
  std::vector<int64_t> time, excluded;  // 20 times in each row; a third of the edges, and padding
  std::vector<int16_t> type;            // one of kRelations
  std::vector<int64_t> run_indptr{0}, runs;
  std::vector<int64_t> sums;  // of jgs::Recency, for runs; half-lives are kHalfLife
};

// What limits the rows of a batch: see jgs::Limits. By relation, the fanouts are FanoutsOf.
struct Limited {
  bool holes = false, timed = false, latest = false, by_relation = false, indexed = false;
  bool recent = false;  // by relation only
};
constexpr int kRelations = 4;

std::vector<int64_t> FanoutsOf(int64_t fanout) { return {fanout, 0, 1, fanout}; }

constexpr int64_t kWindow = 12, kHalfLife = 3;

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
      graph.time.push_back(20 * i / degree);
      const int16_t type = kRelations * i / degree;
      const bool begins = i == 0 || type != graph.type.back();
      const int64_t octave = graph.time.back() / kHalfLife;
      const int64_t before = begins ? 0 : graph.time[graph.time.size() - 2] / kHalfLife;
      const int64_t carry = begins ? 0 : graph.sums.back() >> (octave - before);
      graph.sums.push_back(carry + (int64_t{1} << 31) + random() % 1000);
      if (begins) {
        const int64_t edge = graph.type.size();
        graph.runs.push_back(edge << jgs::kRelationBits | type);
      }
      graph.type.push_back(type);
    }
    graph.run_indptr.push_back(graph.runs.size());
    graph.indptr.push_back(graph.indices.size());
  }
  const int64_t num_edges = graph.indices.size();
  graph.runs.push_back(num_edges << jgs::kRelationBits);
  for (int64_t e = 0; e < num_edges; ++e) {
    if (random() % 3 == 0) graph.excluded.push_back(e);
  }
  graph.excluded.insert(graph.excluded.end(), 5, num_edges);
  return graph;
}

Sample Run(const Graph& g, int batch, const std::vector<int64_t>& fanouts, bool replace,
           bool weighted, bool relabel_inputs, int64_t edge_limit, int num_threads,
           const Limited& limited = {}) {
  const int64_t num_nodes = g.indptr.size() - 1;
  const jgs::GraphView view{g.indptr.data(), g.indptr.data() + 1, num_nodes, g.indices.data(),
                            static_cast<int64_t>(g.indices.size()), g.prefix.data(),
                            g.weight.data()};
  std::vector<int32_t> seeds;
  for (int i = 0; i < batch; ++i) seeds.push_back((i * 7) % (num_nodes + 1));
  std::vector<int64_t> time;  // a node may have a row for each of four cutoffs
  for (int i = 0; limited.timed && i < batch; ++i) time.push_back(5 + i % 4 * 5);
  const int64_t copies = limited.timed ? 4 : 1;
  Sample s;
  std::vector<jgs::Hop> hops;
  std::vector<std::vector<int64_t>> of_relations;
  int64_t targets = batch;
  for (int64_t fanout : fanouts) of_relations.push_back(FanoutsOf(fanout));
  for (size_t h = 0; h < fanouts.size(); ++h) {
    const int64_t most = limited.by_relation ? 2 * fanouts[h] + 1 : fanouts[h];
    const int64_t edges = std::min(
        edge_limit, fanouts[h] < 0 ? 2 * static_cast<int64_t>(g.indices.size()) : targets * most);
    const int64_t sources = std::min(targets + edges, copies * num_nodes + batch);
    s.indptr.emplace_back(targets + 1, -7);
    s.indices.emplace_back(edges, -7);
    s.edge_id.emplace_back(edges, -7);
    s.edge_weight.emplace_back(edges, -7);
    s.edge_type.emplace_back(limited.by_relation ? edges : 0, -7);
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
    if (limited.by_relation) {
      hop.relation_fanout = of_relations[h].data();
      hop.edge_type = s.edge_type.back().data();
    }
    hops.push_back(hop);
    targets = sources;
  }
  s.nodes.assign(relabel_inputs ? targets : hops.back().target_capacity, -7);
  s.cutoff.assign(limited.timed ? s.nodes.size() : 0, -7);
  std::vector<std::thread> threads;
  jgs::Executor executor{num_threads, [&](std::function<void()> task) {
                           threads.emplace_back(std::move(task));
                         }};
  jgs::NeighborOptions options{replace, weighted, limited.latest, limited.timed ? kWindow : -1,
                               limited.timed ? g.time.data() : nullptr, {}, {}};
  if (limited.recent) options.recency = {kHalfLife, g.sums.data(), g.time.data()};
  if (limited.by_relation) options.relations = {kRelations, g.type.data(), {}};
  if (limited.indexed) {
    options.relations.index = {g.run_indptr.data(), g.run_indptr.data() + 1, g.runs.data(),
                               static_cast<int64_t>(g.runs.size()) - 1};
  }
  const jgs::Seeds of{seeds.data(), batch, limited.timed ? time.data() : nullptr,
                      g.excluded.data(),
                      limited.holes ? static_cast<int64_t>(g.excluded.size()) : 0};
  s.error = jgs::SampleNeighbors(view, of, options, relabel_inputs, hops,
                                 {s.nodes.data(), limited.timed ? s.cutoff.data() : nullptr,
                                  &s.overflow},
                                 executor);
  for (auto& thread : threads) thread.join();
  for (const auto& hop : hops) {
    s.counts.insert(s.counts.end(), {hop.num_targets, hop.num_sources, hop.num_edges});
  }
  return s;
}

// The sample `relabelled` as it is where inputs are not relabelled.
Sample WithoutInputs(Sample relabelled, int32_t num_nodes) {
  Sample& s = relabelled;
  int32_t* counts = &s.counts[s.counts.size() - 3];
  auto& indices = s.indices.back();
  for (int32_t& i : indices) i = &i - indices.data() < counts[2] ? s.nodes[i] : num_nodes;
  s.nodes.resize(s.indptr.back().size() - 1);
  std::fill(s.nodes.begin() + counts[0], s.nodes.end(), num_nodes);
  if (!s.overflow) counts[1] = num_nodes;
  if (!s.cutoff.empty()) {
    s.cutoff.resize(s.nodes.size());
    std::fill(s.cutoff.begin() + counts[0], s.cutoff.end(), 0);
  }
  return relabelled;
}

// Whether every drawn edge is eligible for its target, and neighbours have its cutoff. A row
// that must draw `fanout` distinct edges has as many as it can.
bool IsEligible(const Graph& g, const Sample& s, const Limited& limited, int64_t fanout,
                bool full) {
  for (size_t h = 0; h < s.indptr.size(); ++h) {
    const int32_t num_targets = s.counts[3 * h];
    for (int32_t t = 0; t < num_targets; ++t) {
      const int32_t node = s.nodes[t];
      if (node + 1 == static_cast<int32_t>(g.indptr.size())) continue;  // padding among seeds
      const auto left = [&](int64_t e) {
        const int64_t age = limited.timed ? s.cutoff[t] - g.time[e] : 1;
        const bool hole = std::binary_search(g.excluded.begin(), g.excluded.end(), e);
        return age > 0 && age <= kWindow && !(limited.holes && hole);
      };
      std::vector<int64_t> most(kRelations, 0), fanouts{fanout, 0, 0, 0};
      if (limited.by_relation) fanouts = FanoutsOf(fanout);
      for (int64_t e = g.indptr[node]; full && h == 0 && e < g.indptr[node + 1]; ++e) {
        most[limited.by_relation ? g.type[e] : 0] += left(e);
      }
      int64_t wanted = 0;
      for (int r = 0; r < kRelations; ++r) {
        wanted += fanouts[r] < 0 ? most[r] : std::min(most[r], fanouts[r]);
      }
      const int32_t begin = s.indptr[h][t], end = s.indptr[h][t + 1];
      if (full && h == 0 && end - begin != wanted) return false;
      for (int32_t i = begin; i < end; ++i) {
        const int64_t e = s.edge_id[h][i];
        if (e < g.indptr[node] || e >= g.indptr[node + 1] || !left(e)) return false;
        if (limited.by_relation && (s.edge_type[h][i] != g.type[e] || g.type[e] == 1)) return false;
        if (limited.timed && s.cutoff[s.indices[h][i]] != s.cutoff[t]) return false;
      }
    }
  }
  return true;
}

// The 64 bits of one random draw of a row.
uint64_t PlainBits(jgs::Key key, uint32_t node, int64_t draw) {
  uint32_t x0 = node, x1 = static_cast<uint32_t>(draw);
  jgs::Threefry(key, x0, x1);
  return static_cast<uint64_t>(x0) << 32 | x1;
}

// Floyd's algorithm, or uniform draws with replacement.
std::vector<int32_t> PlainUniform(jgs::Key key, uint32_t node, int64_t degree, int64_t fanout,
                                  bool replace) {
  std::vector<int32_t> drawn;
  for (int64_t i = 0; i < fanout; ++i) {
    const int64_t n = replace ? degree : degree - fanout + i + 1;
    int32_t at = jgs::Below(PlainBits(key, node, i), n);
    if (!replace && std::count(drawn.begin(), drawn.end(), at) > 0) at = n - 1;
    drawn.push_back(at);
  }
  return drawn;
}

// Successive draws by weight. Without replacement a drawn neighbour has no weight afterwards.
std::vector<int32_t> PlainWeighted(jgs::Key key, uint32_t node, std::vector<int64_t> weight,
                                   int64_t fanout, bool replace) {
  std::vector<int32_t> drawn;
  for (int64_t i = 0; i < fanout; ++i) {
    int64_t left = 0;
    for (int64_t w : weight) left += w;
    if (left == 0) break;
    int64_t point = jgs::Below(PlainBits(key, node, i), left);
    int32_t at = 0;
    while (point >= weight[at]) point -= weight[at++];
    drawn.push_back(at);
    if (!replace) weight[at] = 0;
  }
  return drawn;
}

bool Equal(const std::vector<int32_t>& plain, const jgs::Draws& draws, int row, int64_t count) {
  if (static_cast<int64_t>(plain.size()) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (plain[i] != draws.position[i * jgs::kLanes + row]) return false;
  }
  return true;
}

// Whether every instruction set draws the same as the plain loops, for rows of all sizes.
bool DrawsAreRight(jgs::Isa isa, int64_t fanout, bool replace, int num_rows) {
  std::mt19937_64 random(fanout);
  const jgs::Key key{{7, static_cast<uint32_t>(fanout)}};
  jgs::Draws draws(fanout);
  draws.MakeRoom();
  draws.num_rows = num_rows;
  jgs::WeightedDraws<false, false> by_weight(draws, replace);
  std::vector<std::vector<int64_t>> weight(num_rows), prefix(num_rows);
  for (int r = 0; r < num_rows; ++r) {
    draws.node[r] = random() % 1000;
    draws.degree[r] = fanout + 1 + random() % (r % 3 == 0 ? 3000 : 30);
    int64_t sum = 0;
    for (uint32_t i = 0; i < draws.degree[r]; ++i) {
      // Weights are even, skewed over many powers of two, mostly 0, or all 0.
      const int64_t even = random() % 100;
      const int64_t w[] = {even, int64_t{1} << (random() % 45), even == 0 ? 1 : 0, 0};
      weight[r].push_back(w[r % 9 == 8 ? 3 : r % 3]);
      prefix[r].push_back(sum += weight[r].back());
    }
    by_weight.prefix[r] = prefix[r].data();
  }
  if (replace) {
    jgs::RunOn(isa, jgs::DrawRows<jgs::Mode::kRepeated, false>{key, draws});
  } else {
    jgs::RunOn(isa, jgs::DrawRows<jgs::Mode::kDistinct, false>{key, draws});
  }
  for (int r = 0; r < num_rows; ++r) {
    const auto plain = PlainUniform(key, draws.node[r], draws.degree[r], fanout, replace);
    if (!Equal(plain, draws, r, fanout)) return false;
  }
  by_weight.Draw(key, isa);
  for (int r = 0; r < num_rows; ++r) {
    const auto plain = PlainWeighted(key, draws.node[r], weight[r], fanout, replace);
    if (!Equal(plain, draws, r, by_weight.count[r])) return false;
  }
  return true;
}

// XLA's pool runs a task at once, on the thread that schedules it, when its queue is full.
bool AHelperRunAtOnceDoesNotWait() {
  const jgs::Executor executor{4, [](std::function<void()> task) { task(); }};
  jgs::Team team(executor);
  int64_t sum = 0;
  for (int loop = 0; loop < 3; ++loop) team.For(10, [&](int64_t chunk) { sum += chunk; });
  return sum == 3 * 45;
}

}  // namespace

// With an argument only the instruction sets are tried.
int main(int argc, char**) {
  if (!AHelperRunAtOnceDoesNotWait()) {
    std::printf("a team whose helpers run at once lost a chunk\n");
    return 1;
  }
  for (int isa = 0; isa <= static_cast<int>(jgs::BestIsa()); ++isa) {
    for (int64_t fanout : {1, 5, 40}) {
      for (int mode = 0; mode < 4; ++mode) {
        if (!DrawsAreRight(static_cast<jgs::Isa>(isa), fanout, mode & 1, mode & 2 ? 64 : 37)) {
          std::printf("instruction set %d, fanout %d, mode %d: another draw\n", isa,
                      static_cast<int>(fanout), mode);
          return EXIT_FAILURE;
        }
      }
    }
  }
  if (argc > 1) {
    std::printf("sample_test: runs equal\n");
    return EXIT_SUCCESS;
  }
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
  // Rows with holes, cutoffs and windows, and by relation. A node has a row for each cutoff.
  for (const auto& fanouts : std::vector<std::vector<int64_t>>{{5, 6}, {-1, 2}, {100}}) {
    for (int mode = 0; mode < 4; ++mode) {
      for (const Limited& limited : std::vector<Limited>{
               {true, false, false}, {false, true, false}, {true, true, mode == 0},
               {false, false, false, true}, {false, true, false, true},
               {true, true, mode == 0, true},
               {true, true, false, true, false, true}}) {
        const bool weighted = (mode & 2) && !limited.recent;
        const auto run = [&](bool relabel_inputs, int threads) {
          Limited own = limited;
          own.indexed = own.by_relation && threads > 2;
          return Run(graph, 1000, fanouts, mode & 1, weighted, relabel_inputs, int64_t{1} << 40,
                     threads, own);
        };
        const Sample one = run(true, 1), other = WithoutInputs(one, 20000);
        if (!one.error.empty() || one.overflow ||
            !IsEligible(graph, one, limited, fanouts[0], mode == 0)) {
          std::printf("limits, mode %d: %s, overflow %d\n", mode, one.error.c_str(), one.overflow);
          return EXIT_FAILURE;
        }
        for (int threads : {2, 3, 8}) {
          runs += 2;
          if (!(run(true, threads) == one) || !(run(false, threads) == other)) {
            std::printf("limits, mode %d, %d threads: another sample\n", mode, threads);
            return EXIT_FAILURE;
          }
        }
      }
    }
  }
  std::printf("sample_test: %d runs equal, instruction sets up to %d\n", runs,
              static_cast<int>(jgs::BestIsa()));
  return EXIT_SUCCESS;
}
