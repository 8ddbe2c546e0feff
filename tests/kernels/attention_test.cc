// Self-test of edge_softmax.h, edge_scores.h and of aggregate.h with several heads, without
// Python or XLA, for the sanitizers (ThreadSanitizer above all): random blocks against loops
// that read like the definition, on 1, 2 and 4 threads. Run by `make sanitize`.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "aggregate.h"
#include "edge_scores.h"
#include "edge_softmax.h"

#include "threads.h"

namespace {

using Values = std::vector<float>;

int failures = 0;

void Expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

constexpr int64_t kPadding = 5;  // additional targets and edges
constexpr float kSlope = 0.2f;

struct Case {
  std::vector<int32_t> indptr{0}, indices;
  int64_t targets, sources, edges, heads, width;
  Values logits, own, x, y, attention, grad_edges, grad_own, grad_out;

  Case(std::mt19937& random, int64_t targets, int64_t sources, int64_t heads, int64_t width)
      : targets(targets), sources(sources), heads(heads), width(width) {
    for (int64_t t = 0; t < targets; ++t) {
      for (int64_t i = random() % 8; i > 0; --i) {
        indices.push_back(static_cast<int32_t>(random() % sources));
      }
      indptr.push_back(static_cast<int32_t>(indices.size()));
    }
    edges = static_cast<int64_t>(indices.size());
    indices.resize(edges + kPadding, static_cast<int32_t>(sources));
    indptr.resize(targets + kPadding + 1, static_cast<int32_t>(edges));
    const auto normal = [&](int64_t rows, int64_t real, int64_t columns) {
      std::normal_distribution<float> distribution;
      Values values(rows * columns, std::numeric_limits<float>::quiet_NaN());
      for (int64_t i = 0; i < real * columns; ++i) values[i] = distribution(random);
      return values;
    };
    const int64_t all_edges = edges + kPadding, all_targets = targets + kPadding;
    logits = normal(all_edges, edges, heads), grad_edges = normal(all_edges, edges, heads);
    own = normal(all_targets, targets, heads), grad_own = normal(all_targets, targets, heads);
    x = normal(sources, sources, heads * width), attention = normal(heads, heads, width);
    y = normal(all_targets, targets, heads * width);
    grad_out = normal(all_targets, targets, heads * width);
  }

  jgs::BlockView View(const Values& weight) const {
    jgs::BlockView view;
    view.indptr = indptr.data(), view.indices = indices.data(), view.weight = weight.data();
    view.target_capacity = targets + kPadding, view.edge_capacity = edges + kPadding;
    view.num_rows = sources, view.num_targets = targets, view.num_edges = edges;
    view.num_heads = heads;
    return view;
  }
};

// Every result, in the order of kNames.
const char* const kNames[] = {
    "softmax",  "own softmax", "softmax grad", "own softmax grad", "softmax alone", "sum",
    "sum grad", "weight grad", "scores",       "scores grad x",    "scores grad y", "scores grad a",
};

std::vector<Values> Run(const Case& c, int64_t num_threads) {
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  const int64_t all_edges = c.edges + kPadding, all_targets = c.targets + kPadding;
  const int64_t features = c.heads * c.width;
  const auto unwritten = [](int64_t size) {
    return Values(size, std::numeric_limits<float>::quiet_NaN());  // what is not written shows
  };
  Values weights = unwritten(all_edges * c.heads), own = unwritten(all_targets * c.heads);
  Values grad = weights, grad_own = own, alone = weights, grad_weight = weights;
  Values scores = weights, sum = unwritten(all_targets * features), grad_y = sum, share = sum;
  Values grad_x = unwritten(c.sources * features), scores_grad_x = grad_x;
  const jgs::BlockView by_logits = c.View(c.logits), by_grad = c.View(c.grad_edges);
  jgs::EdgeSoftmax(executor, by_logits, c.heads, {c.logits.data(), c.own.data()},
                   {weights.data(), own.data()});
  jgs::EdgeSoftmaxGrad(executor, by_logits, c.heads, {weights.data(), own.data()},
                       {c.grad_edges.data(), c.grad_own.data()},
                       {grad.data(), grad_own.data()});
  jgs::EdgeSoftmax(executor, by_logits, c.heads, {c.logits.data(), nullptr},
                   {alone.data(), nullptr});
  jgs::Aggregate(executor, by_logits, jgs::Reduce::kMean, c.x.data(), features, sum.data(),
                 nullptr);
  jgs::AggregateGrad(executor, by_logits, jgs::Reduce::kMean, c.grad_out.data(), nullptr,
                     features, grad_x.data());
  jgs::AggregateGradWeight(executor, by_logits, jgs::Reduce::kMean, c.grad_out.data(), nullptr,
                           c.x.data(), features, grad_weight.data());
  const jgs::AdditiveAttention attention{c.attention.data(), features, c.heads, kSlope};
  jgs::EdgeScores(executor, by_logits, attention, c.x.data(), c.y.data(), scores.data());
  jgs::EdgeScoresGrad(executor, by_grad, attention, c.x.data(), c.y.data(),
                      scores_grad_x.data(), grad_y.data(), share.data());
  return {weights, own,    grad,        grad_own, alone,         sum,
          grad_x,  grad_weight, scores, scores_grad_x, grad_y, share};
}

std::vector<Values> Reference(const Case& c) {
  const int64_t all_edges = c.edges + kPadding, all_targets = c.targets + kPadding;
  const int64_t features = c.heads * c.width;
  using Wide = std::vector<double>;
  Wide weights(all_edges * c.heads), own(all_targets * c.heads), sum(all_targets * features);
  Wide grad = weights, grad_own = own, alone = weights, grad_weight = weights;
  Wide scores = weights, grad_y = sum, share = sum;
  Wide grad_x(c.sources * features), scores_grad_x = grad_x;
  for (int64_t t = 0; t < c.targets; ++t) {
    const int64_t first = c.indptr[t], stop = c.indptr[t + 1];
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t th = t * c.heads + h;
      double of_edges = 0, all = std::exp(c.own[th]), product = 0;
      for (int64_t e = first; e < stop; ++e) of_edges += std::exp(c.logits[e * c.heads + h]);
      all += of_edges;
      own[th] = std::exp(c.own[th]) / all;
      product += own[th] * c.grad_own[th];
      for (int64_t e = first; e < stop; ++e) {
        const int64_t eh = e * c.heads + h;
        weights[eh] = std::exp(c.logits[eh]) / all;
        alone[eh] = std::exp(c.logits[eh]) / of_edges;
        product += weights[eh] * c.grad_edges[eh];
      }
      grad_own[th] = own[th] * (c.grad_own[th] - product);
      for (int64_t e = first; e < stop; ++e) {
        const int64_t eh = e * c.heads + h;
        grad[eh] = weights[eh] * (c.grad_edges[eh] - product);
        for (int64_t f = h * c.width; f < (h + 1) * c.width; ++f) {
          const int64_t sf = c.indices[e] * features + f, tf = t * features + f;
          const double scale = 1.0 / static_cast<double>(stop - first);
          sum[tf] += scale * c.logits[eh] * c.x[sf];
          grad_x[sf] += scale * c.logits[eh] * c.grad_out[tf];
          grad_weight[eh] += scale * c.x[sf] * c.grad_out[tf];
          const double v = c.x[sf] + c.y[tf], slope = v >= 0 ? 1 : kSlope;
          scores[eh] += c.attention[f] * slope * v;
          scores_grad_x[sf] += c.grad_edges[eh] * c.attention[f] * slope;
          grad_y[tf] += c.grad_edges[eh] * c.attention[f] * slope;
          share[tf] += c.grad_edges[eh] * slope * v;
        }
      }
    }
  }
  std::vector<Values> results;
  for (const Wide& a : {weights, own, grad, grad_own, alone, sum, grad_x, grad_weight, scores,
                        scores_grad_x, grad_y, share}) {
    results.emplace_back(a.begin(), a.end());
  }
  return results;
}

bool Close(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= 1e-4f * (1 + std::fabs(b[i])))) return false;
  }
  return a.size() == b.size();
}

}  // namespace

int main() {
  std::mt19937 random(20240501);
  // Targets, sources, heads, width. The last shapes have work for several threads.
  const int64_t shapes[][4] = {{1, 1, 1, 1},  {7, 9, 1, 5},      {7, 9, 3, 7},   {30, 40, 4, 16},
                               {30, 40, 8, 8}, {2000, 900, 4, 9}, {9000, 500, 8, 1}};
  for (const auto& [targets, sources, heads, width] : shapes) {
    const Case c(random, targets, sources, heads, width);
    const std::string sizes = std::to_string(targets) + " targets, " + std::to_string(heads) +
                              " heads of " + std::to_string(width) + ": ";
    const std::vector<Values> wanted = Reference(c), one = Run(c, 1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      Expect(Close(one[i], wanted[i]), sizes + kNames[i]);
    }
    for (const int64_t num_threads : {2, 4}) {
      const std::vector<Values> many = Run(c, num_threads);
      for (size_t i = 0; i < many.size(); ++i) {
        Expect(std::memcmp(one[i].data(), many[i].data(), one[i].size() * sizeof(float)) == 0,
               sizes + kNames[i] + " on " + std::to_string(num_threads) + " threads");
      }
    }
  }
  if (failures == 0) std::puts("attention_test: passed");
  return failures == 0 ? 0 : 1;
}
