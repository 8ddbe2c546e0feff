// Labor's plain C++ layer on threads of its own, without XLA: for ThreadSanitizer. Every thread
// count must give the bytes that one thread gives, and every instruction set must take what a
// plain loop takes. Run by `make sanitize` and by test_isa.py.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "labor.h"
#include "labor_scan.h"
#include "labor_sieve.h"

namespace {

constexpr int kNodes = 2000, kHops = 2, kRoom = 60000;

struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::vector<int16_t> type;  // one of three, ascending in each row
  std::vector<int64_t> time;  // ascending for each type in each row, with ties
};

Graph RandomGraph() {
  std::mt19937 random(1);
  Graph graph;
  for (int v = 0; v < kNodes; ++v) {
    const int degree = v % 50 == 0 ? 1500 : random() % 60;
    for (int i = 0; i < degree; ++i) {
      graph.indices.push_back(random() % kNodes);
      graph.type.push_back(3 * i / degree);
      graph.time.push_back(i / 4);
    }
    graph.indptr.push_back(graph.indices.size());
  }
  return graph;
}

using Sample = std::tuple<std::vector<std::vector<int32_t>>, std::vector<std::vector<float>>,
                          std::vector<int32_t>, bool>;

// The edges of every 50th node, which has 1,500 neighbours, by source.
struct Hubs {
  std::vector<int32_t> nodes, indptr{0}, edges;

  explicit Hubs(const Graph& graph) {
    std::vector<std::vector<int32_t>> of(kNodes);
    int32_t edge = 0;
    for (int v = 0; v < kNodes; v += 50) {
      nodes.push_back(v);
      for (int64_t e = graph.indptr[v]; e < graph.indptr[v + 1]; ++e) {
        of[graph.indices[e]].push_back(edge++);
      }
    }
    for (const auto& some : of) {
      edges.insert(edges.end(), some.begin(), some.end());
      indptr.push_back(edges.size());
    }
  }

  jgs::HubIndex View() const {
    return {nodes.data(), static_cast<int64_t>(nodes.size()), indptr.data(), kNodes,
            edges.data(), static_cast<int64_t>(edges.size())};
  }
};

constexpr int64_t kFanouts[] = {4, 0, 2};  // by relation

Sample Run(const Graph& g, const jgs::HubIndex& hubs, jgs::LaborOptions options, uint32_t phase,
           int64_t room, int num_threads) {
  const jgs::GraphView view{g.indptr.data(), g.indptr.data() + 1, kNodes, g.indices.data(),
                            static_cast<int64_t>(g.indices.size()), nullptr, nullptr};
  const bool timed = options.edge_time != nullptr;
  const int64_t most = timed ? 9 * kNodes : kNodes + 300;  // nodes, with their cutoffs
  std::vector<int32_t> seeds, nodes(most, -7), counts;
  for (int i = 0; i < 300; ++i) seeds.push_back(i * 7 % (kNodes + 1));
  std::vector<std::vector<int32_t>> ints(2 * kHops);
  std::vector<std::vector<float>> weights(kHops);
  std::vector<jgs::Hop> hops;
  int64_t targets = 300;
  for (int h = 0; h < kHops; ++h) {
    ints[2 * h].assign(targets + 1, -7);
    ints[2 * h + 1].assign(room, -7);
    weights[h].assign(room, -7);
    jgs::Hop hop{};
    hop.key = {{1, static_cast<uint32_t>(h)}};
    hop.next_key = {{2, static_cast<uint32_t>(h)}};
    hop.phase = phase;
    hop.fanout = 6;
    hop.target_capacity = targets;
    hop.edge_capacity = room;
    hop.source_capacity = targets = most;
    hop.indptr = ints[2 * h].data();
    hop.indices = ints[2 * h + 1].data();
    hop.edge_weight = weights[h].data();
    if (options.relations.num > 0) hop.relation_fanout = kFanouts;
    hops.push_back(hop);
  }
  std::vector<std::thread> threads;
  jgs::Executor executor{num_threads, [&](std::function<void()> task) {
                           threads.emplace_back(std::move(task));
                         }};
  bool overflow = false;
  std::vector<int64_t> times, cutoff(most);
  for (int i = 0; i < 300; ++i) times.push_back(i % 9 * 40);
  const jgs::Seeds of{seeds.data(), 300, timed ? times.data() : nullptr};
  const std::string error =
      jgs::SampleLabor(view, hubs, of, options, true, hops,
                       {nodes.data(), timed ? cutoff.data() : nullptr, &overflow}, executor);
  for (auto& thread : threads) thread.join();
  if (!error.empty()) std::printf("%s\n", error.c_str());
  nodes.insert(nodes.end(), cutoff.begin(), cutoff.end());
  nodes.insert(nodes.end(), {hops[0].edges_needed, hops[1].edges_needed, hops[1].num_sources});
  return {ints, weights, nodes, overflow};
}

// There is no sieve where `exponent` is 0. With `strangers` some neighbours are no nodes.
template <bool dependent>
bool TakesRight(jgs::Isa isa, uint32_t phase, int count, int exponent, bool strangers) {
  constexpr int64_t kMany = 100001;
  std::mt19937 random(count);
  std::vector<int32_t> neighbors;
  for (int i = 0; i < count; ++i) {
    neighbors.push_back(random() % kMany);
    if (strangers && i % 90 == 7) neighbors[i] = -1 - i;
    if (strangers && i % 90 == 8) neighbors[i] = 2000000 + i;
  }
  jgs::Hop hop{};
  hop.key = {{3, 4}};
  hop.next_key = {{5, 6}};
  hop.phase = phase;
  const uint64_t limit = ~uint64_t{0} / 7;
  jgs::Piece piece;
  piece.neighbors = neighbors.data();
  piece.count = piece.ahead = count;
  std::vector<int32_t> taken, plain;
  if (exponent == 0) {
    jgs::RunOn(isa, jgs::TakeBelow<dependent>{hop, limit, piece});
    taken.assign(piece.position, piece.position + piece.num_taken);
  } else {
    const int64_t num_words = jgs::Sieve::WordsOf(kMany);
    std::vector<uint32_t> words(num_words + 1, ~0u);
    jgs::RunOn(isa, jgs::FillSieve<dependent>{hop, exponent, 0, 7, words.data()});
    jgs::RunOn(isa, jgs::FillSieve<dependent>{hop, exponent, 7, num_words, words.data()});
    const jgs::Sieve sieve{words.data(), static_cast<uint32_t>(num_words), exponent};
    jgs::Sifted sifted;
    jgs::RunOn(isa, jgs::Sift{sieve, piece, sifted});
    if (count > 900 && sifted.count > count * 2 / 3) return false;
    jgs::Piece rest;
    rest.neighbors = sifted.node;
    rest.count = rest.ahead = sifted.count;
    jgs::RunOn(isa, jgs::TakeBelow<dependent>{hop, limit, rest});
    for (int i = 0; i < rest.num_taken; ++i) {
      taken.push_back(sifted.position[rest.position[i]]);
    }
  }
  for (int i = 0; i < count; ++i) {
    uint32_t when = neighbors[i], x1 = 1;
    jgs::Threefry(hop.key, when, x1);
    uint32_t high = neighbors[i], low = 0;
    jgs::Threefry(when < phase ? hop.next_key : hop.key, high, low);
    if ((static_cast<uint64_t>(high) << 32 | low) < limit) plain.push_back(i);
  }
  return taken == plain;
}

// A sieve costs one number for each node. It pays for rows much longer than the fanout.
bool SievesWhereItPays() {
  const auto best = [](int64_t rows, int64_t degree, int64_t num_nodes) {
    jgs::Candidates candidates;
    for (int64_t i = 0; i < rows; ++i) candidates.Add(10, degree);
    return candidates.BestExponent(num_nodes, 1);
  };
  const int exponent = best(100, 10000, 100000);
  jgs::Candidates of_hubs;
  of_hubs.AddHub(1000000);
  return of_hubs.BestExponent(900000, 1) > 0 && of_hubs.BestExponent(1100000, 1) == 0 &&
         best(100, 10000, 2000000) == 0 && best(1000, 15, 1000) == 0 && exponent > 0 &&
         jgs::Sieve{nullptr, 0, exponent}.Serves(10, 10000) &&
         !jgs::Sieve{nullptr, 0, 3}.Serves(10, 79) && jgs::Sieve{nullptr, 0, 3}.Serves(10, 80);
}

}  // namespace

int main() {
  if (!SievesWhereItPays()) {
    std::printf("a sieve where it does not pay, or none where it does\n");
    return 1;
  }
  for (int isa = 0; isa <= static_cast<int>(jgs::BestIsa()); ++isa) {
    for (int count : {1, 31, 32, 33, 1000, jgs::Piece::kPiece}) {
      for (int exponent : {0, 1, 2}) {
        for (bool strangers : {false, true}) {
          const auto set = static_cast<jgs::Isa>(isa);
          if (!TakesRight<false>(set, 0, count, exponent, strangers) ||
              !TakesRight<true>(set, 1u << 30, count, exponent, strangers)) {
            std::printf("instruction set %d takes others of %d by sieve %d\n", isa, count,
                        exponent);
            return 1;
          }
        }
      }
    }
  }
  const Graph graph = RandomGraph();
  const Hubs hubs(graph);
  int runs = 0;
  for (int64_t importance : {0, 1, -1}) {
    for (uint32_t phase : {0u, 1u << 31}) {
      for (int64_t room : {int64_t{kRoom}, int64_t{3000}}) {
        const jgs::LaborOptions options{importance, phase != 0};
        const Sample one = Run(graph, {}, options, phase, room, 1);
        for (int threads : {1, 2, 5}) {
          if (Run(graph, {}, options, phase, room, threads) != one ||
              Run(graph, hubs.View(), options, phase, room, threads) != one) {
            std::printf("%d threads draw otherwise, importance %d\n", threads,
                        static_cast<int>(importance));
            return 1;
          }
          ++runs;
        }
      }
    }
  }
  for (int64_t importance : {0, 1, -1}) {
    const jgs::LaborOptions options{importance, false, {3, graph.type.data(), {}}};
    const Sample one = Run(graph, {}, options, 0, kRoom, 1);
    for (int threads : {2, 5}) {
      if (Run(graph, {}, options, 0, kRoom, threads) != one) {
        std::printf("by relation, %d threads draw otherwise\n", threads);
        return 1;
      }
      ++runs;
    }
  }
  for (int64_t importance : {0, 1, -1}) {
    for (bool by_relation : {false, true}) {
      jgs::LaborOptions options{importance, false, {}, graph.time.data(), by_relation ? 100 : -1};
      if (by_relation) options.relations = {3, graph.type.data(), {}};
      const Sample one = Run(graph, {}, options, 1u << 31, kRoom, 1);
      if (std::get<3>(one)) {
        std::printf("too little room for draws under cutoffs\n");
        return 1;
      }
      for (int threads : {2, 5}) {
        if (Run(graph, hubs.View(), options, 1u << 31, kRoom, threads) != one) {
          std::printf("under cutoffs, %d threads draw otherwise\n", threads);
          return 1;
        }
        ++runs;
      }
    }
  }
  std::printf("%d runs equal\n", runs);
}
