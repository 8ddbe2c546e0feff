// Self-test of aggregate.h and gather.h without Python or XLA, for the sanitizers (ThreadSanitizer above
// all): random blocks against loops that read like the definition, on 1, 2 and 4 threads.
// Run by `make sanitize`.
#include "aggregate.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "feature_parts.h"
#include "gather.h"
#include "stored.h"

#include "threads.h"

extern "C" void JgsSetFeatureParts(int64_t parts);

namespace {

using jgs::BlockView;
using jgs::Reduce;

int failures = 0;

void Expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

struct RandomBlock {
  std::vector<int32_t> indptr, indices;
  std::vector<float> weight, x, grad_out;
  int64_t rows, sources, width, edges;

  RandomBlock(std::mt19937& random, int64_t rows, int64_t sources, int64_t width, int max_degree)
      : rows(rows), sources(sources), width(width) {
    std::normal_distribution<float> normal;
    indptr.push_back(0);
    const int64_t real_rows = rows - rows / 4;
    for (int64_t r = 0; r < rows; ++r) {
      const int degree =
          r < real_rows && sources > 0 ? static_cast<int>(random() % (max_degree + 1)) : 0;
      for (int i = 0; i < degree; ++i) {
        indices.push_back(static_cast<int32_t>(random() % sources));
      }
      indptr.push_back(static_cast<int32_t>(indices.size()));
    }
    edges = static_cast<int64_t>(indices.size());
    indices.resize(edges + 5, static_cast<int32_t>(sources));  // padding
    for (size_t e = 0; e < indices.size(); ++e) weight.push_back(normal(random));
    for (int64_t i = 0; i < sources * width; ++i) {
      // Few distinct values, so that maxima tie.
      x.push_back(std::round(2 * normal(random)) / 2);
    }
    for (int64_t i = 0; i < rows * width; ++i) grad_out.push_back(normal(random));
  }

  BlockView View(bool weighted) const {
    BlockView view;
    view.indptr = indptr.data();
    view.indices = indices.data();
    view.weight = weighted ? weight.data() : nullptr;
    view.target_capacity = rows;
    view.edge_capacity = static_cast<int64_t>(indices.size());
    view.num_rows = sources;
    view.num_targets = rows - rows / 4;
    view.num_edges = edges;
    return view;
  }
};

struct Results {
  std::vector<float> out, grad_x, grad_weight;
  std::vector<int32_t> argmax;
};

Results Run(const RandomBlock& b, bool weighted, Reduce reduce, int64_t num_threads) {
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  const BlockView view = b.View(weighted);
  const bool max = reduce == Reduce::kMax;
  // Everything is NaN first, so whatever is not written shows.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Results r;
  r.out.assign(b.rows * b.width, nan);
  r.grad_x.assign(b.sources * b.width, nan);
  r.grad_weight.assign(b.indices.size(), nan);
  r.argmax.assign(max ? b.rows * b.width : 0, -7);
  jgs::Aggregate(executor, view, reduce, b.x.data(), b.width, r.out.data(), r.argmax.data());
  jgs::AggregateGrad(executor, view, reduce, b.grad_out.data(), r.argmax.data(), b.width,
                     r.grad_x.data());
  jgs::AggregateGradWeight(executor, view, reduce, b.grad_out.data(), r.argmax.data(),
                           b.x.data(), b.width, r.grad_weight.data());
  return r;
}

Results Reference(const RandomBlock& b, bool weighted, Reduce reduce) {
  Results r;
  r.out.assign(b.rows * b.width, 0);
  r.argmax.assign(reduce == Reduce::kMax ? b.rows * b.width : 0, -1);
  std::vector<double> grad_x(b.sources * b.width, 0), grad_weight(b.indices.size(), 0);
  for (int64_t t = 0; t < b.rows; ++t) {
    const int64_t first = b.indptr[t], stop = b.indptr[t + 1];
    for (int64_t f = 0; first < stop && f < b.width; ++f) {
      const auto w = [&](int64_t e) { return weighted ? b.weight[e] : 1.0f; };
      const auto x = [&](int64_t e) { return b.x[b.indices[e] * b.width + f]; };
      const double g = b.grad_out[t * b.width + f];
      if (reduce == Reduce::kMax) {
        int64_t best = first;
        for (int64_t e = first; e < stop; ++e) {
          if (w(e) * x(e) > w(best) * x(best)) best = e;
        }
        r.out[t * b.width + f] = w(best) * x(best);
        r.argmax[t * b.width + f] = static_cast<int32_t>(best);
        grad_x[b.indices[best] * b.width + f] += g * w(best);
        grad_weight[best] += g * x(best);
        continue;
      }
      const double scale = reduce == Reduce::kMean ? 1.0 / static_cast<double>(stop - first) : 1;
      double sum = 0;
      for (int64_t e = first; e < stop; ++e) {
        sum += static_cast<double>(w(e)) * x(e);
        grad_x[b.indices[e] * b.width + f] += g * w(e) * scale;
        grad_weight[e] += g * x(e) * scale;
      }
      r.out[t * b.width + f] = static_cast<float>(sum * scale);
    }
  }
  r.grad_x.assign(grad_x.begin(), grad_x.end());
  r.grad_weight.assign(grad_weight.begin(), grad_weight.end());
  return r;
}

bool Close(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= 1e-4f * (1 + std::fabs(b[i])))) return false;
  }
  return true;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

void TestAggregate() {
  std::mt19937 random(20240501);
  // The last two have work for several threads: one its edges, the other its results.
  const int64_t shapes[][3] = {{0, 0, 3},      {1, 1, 1},       {5, 3, 7},
                               {40, 60, 16},   {9, 0, 4},       {300, 500, 33},
                               {900, 700, 100}, {9000, 700, 20}, {100, 90000, 96}};
  for (const auto& [rows, sources, width] : shapes) {
    const RandomBlock block(random, rows, sources, width, 11);
    for (const bool weighted : {false, true}) {
      Expect(jgs::CheckBlock(block.View(weighted), "x").empty(), "a good block is refused");
      for (const Reduce reduce : {Reduce::kSum, Reduce::kMean, Reduce::kMax}) {
        const std::string name = "rows " + std::to_string(rows) + ", weighted " +
                                 std::to_string(weighted) + ", reduce " +
                                 std::to_string(static_cast<int64_t>(reduce));
        const Results wanted = Reference(block, weighted, reduce);
        const Results one = Run(block, weighted, reduce, 1);
        Expect(Close(one.out, wanted.out), name + ": out");
        Expect(SameBits(one.argmax, wanted.argmax), name + ": argmax");
        Expect(Close(one.grad_x, wanted.grad_x), name + ": grad_x");
        Expect(Close(one.grad_weight, wanted.grad_weight), name + ": grad_weight");
        for (const int64_t num_threads : {2, 4}) {
          const Results many = Run(block, weighted, reduce, num_threads);
          Expect(SameBits(one.out, many.out) && SameBits(one.argmax, many.argmax) &&
                     SameBits(one.grad_x, many.grad_x) &&
                     SameBits(one.grad_weight, many.grad_weight),
                 name + ": other bits on " + std::to_string(num_threads) + " threads");
        }
      }
    }
  }
}

// Parts of the features, one after the other, give the bits of one part: parts of equal and of
// unequal widths, and more than there is width for.
void TestFeatureParts() {
  std::mt19937 random(3);
  const int64_t shapes[][3] = {{300, 200, 256}, {40, 60, 133}, {9, 0, 128}, {3, 4, 20}};
  for (const auto& [rows, sources, width] : shapes) {
    const RandomBlock block(random, rows, sources, width, 11);
    for (const bool weighted : {false, true}) {
      for (const Reduce reduce : {Reduce::kSum, Reduce::kMean}) {
        const Results one = Run(block, weighted, reduce, 1);
        for (const int64_t parts : {2, 3, 100}) {
          for (const int64_t num_threads : {1, 4}) {
            JgsSetFeatureParts(parts);
            const Results many = Run(block, weighted, reduce, num_threads);
            JgsSetFeatureParts(0);
            Expect(SameBits(one.out, many.out) && SameBits(one.grad_x, many.grad_x),
                   "other bits in " + std::to_string(parts) + " parts of " +
                       std::to_string(width));
          }
        }
      }
    }
  }
}

// The rule: rows of so many bytes, edges and features are split only where that pays.
void TestPartsForACache() {
  const int64_t cache = 32 << 20;
  const int64_t cases[][4] = {
      // rows, edges of a row, features, parts
      {1000, 64, 1024, 1},     // all rows fit the cache
      {16000, 16, 1024, 4},    // 62 MiB: parts of half the cache
      {32000, 16, 1024, 8},    // 125 MiB
      {32000, 15, 1024, 1},    // read too few times
      {64000, 16, 256, 1},     // too narrow
      {100000, 16, 512, 8},    // eight parts of 64 features are the most
      {1000000, 64, 1024, 1},  // one part would be 7 times the cache
      {100000, 64, 48, 1},     // narrower than a part
  };
  for (const auto& [rows, degree, width, parts] : cases) {
    Expect(jgs::FeaturePartsFor(rows, rows * degree, width, cache) == parts,
           "other parts for " + std::to_string(rows) + " rows of " + std::to_string(width));
  }
}

// Each change breaks one rule of jgs.Block. It must be noticed before a read depends on it.
void TestBrokenBlocks() {
  std::mt19937 random(7);
  const RandomBlock good(random, 20, 30, 4, 5);
  const auto refused = [&](const std::string& rule,
                           const std::function<void(RandomBlock&, BlockView&)>& change) {
    RandomBlock copy = good;
    BlockView view = copy.View(false);
    change(copy, view);
    const std::string message = jgs::CheckBlock(view, "x");
    Expect(message.find(rule) != std::string::npos, rule + ": got '" + message + "'");
  };
  refused("block.indptr", [](RandomBlock& b, BlockView&) { b.indptr[0] = 1; });
  refused("block.indptr", [](RandomBlock& b, BlockView&) { b.indptr[3] = 1 << 30; });
  refused("block.indptr", [](RandomBlock& b, BlockView&) { b.indptr[3] = -5; });
  refused("block.indptr", [](RandomBlock&, BlockView& v) { v.num_edges -= 1; });
  refused("block.num_edges", [](RandomBlock&, BlockView& v) { v.num_edges = 1 << 20; });
  refused("block.num_edges", [](RandomBlock&, BlockView& v) { v.num_edges = -1; });
  refused("block.num_targets", [](RandomBlock&, BlockView& v) { v.num_targets = 21; });
  refused("must be empty", [](RandomBlock&, BlockView& v) { v.num_targets = 0; });
  refused("block.indices", [](RandomBlock& b, BlockView&) { b.indices[2] = -1; });
  refused("block.indices", [](RandomBlock& b, BlockView&) { b.indices[2] = 30; });
  refused("block.indices", [](RandomBlock&, BlockView& v) { v.num_rows = 0; });
}

void TestGatherSparse() {
  const std::vector<int64_t> indptr = {0, 2, 2, 3};
  std::vector<int32_t> indices = {0, 2, 1};
  const std::vector<float> values = {1, 2, 3};
  jgs::SparseRows rows{indptr.data(), indices.data(), values.data(), 3, 3, 3};
  const std::vector<int32_t> ids = {2, 0, 3, -1, 1, 0};
  std::vector<float> out(ids.size() * 3, -1);
  const std::vector<float> wanted = {0, 3, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2};
  Threads threads;
  Expect(jgs::GatherSparse(threads.Get(2), rows, ids.data(), 6, out.data()).empty() &&
             out == wanted,
         "GatherSparse");
  // Enough rows for threads to share.
  std::vector<int32_t> many(100000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = ids[i % 6];
  std::vector<float> large(many.size() * 3, -1);
  Expect(jgs::GatherSparse(threads.Get(4), rows, many.data(), 100000, large.data()).empty(),
         "GatherSparse of many rows");
  bool same = true;
  for (size_t i = 0; i < large.size(); ++i) same &= large[i] == wanted[i % wanted.size()];
  Expect(same, "GatherSparse of many rows: values");
  indices[2] = 3;
  Expect(!jgs::GatherSparse(threads.Get(4), rows, many.data(), 100000, large.data()).empty(),
         "a column out of range is accepted");
  rows.num_entries = 1;
  Expect(!jgs::GatherSparse(threads.Get(1), rows, ids.data(), 6, out.data()).empty(),
         "entries out of range are accepted");
}

void TestGather() {
  const std::vector<float> features = {1, 2, 3, 4, 5, 6};
  const std::vector<float> wanted = {5, 6, 0, 0, 1, 2, 0, 0};
  const std::vector<int32_t> ids = {2, 3, 0, -1};
  std::vector<int32_t> many(100000);  // enough for threads to share
  for (size_t i = 0; i < many.size(); ++i) many[i] = ids[i % 4];
  for (const int64_t num_threads : {1, 2, 4}) {
    Threads threads;
    std::vector<float> out(many.size() * 2, -1);
    jgs::StoredRows rows;
    rows.tables = {{features.data(), 2}, {features.data() + 4, 1}};
    rows.num_features = 2;
    jgs::Gather(threads.Get(num_threads), rows, many.data(), 100000, out.data());
    bool same = true;
    for (size_t i = 0; i < out.size(); ++i) same &= out[i] == wanted[i % wanted.size()];
    Expect(same, "Gather");
  }
}

// Sums of halves and of codes, whose places may name no row, on several threads.
void TestGatherAggregateStored() {
  constexpr int64_t kWidth = 100, kRows = 300;
  std::vector<jgs::Half> halves(kRows * kWidth);
  std::vector<int8_t> codes(kRows * kWidth);
  for (size_t i = 0; i < codes.size(); ++i) {
    halves[i] = {static_cast<uint16_t>(0x3c00 + i % 1024)};  // from 1 to 2
    codes[i] = static_cast<int8_t>(i % 255 - 127);
  }
  const std::vector<float> scale(kWidth, 0.5f), offset(kWidth, 3.0f);
  std::vector<int32_t> place(kRows);
  for (int64_t i = 0; i < kRows; ++i) place[i] = static_cast<int32_t>(i % 7 == 0 ? -1 : i);
  for (const bool is_code : {false, true}) {
    jgs::StoredRows rows;
    rows.num_features = kWidth;
    rows.element = is_code ? jgs::Element::kCode : jgs::Element::kHalf;
    const void* matrix = is_code ? static_cast<const void*>(codes.data()) : halves.data();
    rows.tables = {jgs::Table{matrix, kRows}};
    if (is_code) rows.scale = scale.data(), rows.offset = offset.data();
    std::vector<int32_t> indptr = {0, 300, 303, 303}, indices(303);  // 300: more than 16 bits hold
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i % kRows);
    jgs::BlockView block;
    block.indptr = indptr.data(), block.indices = indices.data();
    block.target_capacity = block.num_targets = 3;
    block.edge_capacity = block.num_edges = 303, block.num_rows = kRows;
    std::vector<float> wanted(3 * kWidth, 0.0f);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t e = indptr[t]; e < indptr[t + 1]; ++e) {
        for (int64_t f = 0; place[indices[e]] >= 0 && f < kWidth; ++f) {
          const int64_t i = place[indices[e]] * kWidth + f;
          const float half = 1.0f + static_cast<float>(i % 1024) / 1024.0f;
          wanted[t * kWidth + f] += is_code ? 0.5f * codes[i] + 3.0f : half;
        }
      }
    }
    for (const int64_t num_threads : {1, 4}) {
      Threads threads;
      std::vector<float> out(3 * kWidth, -1);
      jgs::GatherAggregate(threads.Get(num_threads), rows, place.data(), block, Reduce::kSum,
                           out.data());
      bool same = true;
      for (size_t i = 0; i < out.size(); ++i) same &= std::abs(out[i] - wanted[i]) < 0.01f;
      Expect(same, is_code ? "GatherAggregate of codes" : "GatherAggregate of halves");
    }
  }
}

// Sparse rows against the dense matrix that they represent.
void TestGatherAggregateSparse() {
  std::mt19937 random(5);
  RandomBlock block(random, 900, 500, 33, 11);
  std::vector<int64_t> indptr = {0};
  std::vector<int32_t> indices;
  std::vector<float> values;
  for (int64_t s = 0; s < block.sources; ++s) {
    for (int64_t f = 0; f < block.width; ++f) {
      float& x = block.x[s * block.width + f];
      if (random() % 4 != 0) x = 0;
      if (x == 0) continue;
      indices.push_back(static_cast<int32_t>(f));
      values.push_back(x);
    }
    indptr.push_back(static_cast<int64_t>(indices.size()));
  }
  const jgs::SparseRows rows{indptr.data(),
                             indices.data(),
                             values.data(),
                             block.sources,
                             static_cast<int64_t>(indices.size()),
                             block.width};
  for (const bool weighted : {false, true}) {
    for (const Reduce reduce : {Reduce::kSum, Reduce::kMean, Reduce::kMax}) {
      const Results wanted = Reference(block, weighted, reduce);
      std::vector<float> one;
      for (const int64_t num_threads : {1, 2, 4}) {
        Threads threads;
        std::vector<float> out(block.rows * block.width, -1);
        Expect(jgs::GatherAggregateSparse(threads.Get(num_threads), rows, block.View(weighted),
                                          reduce, out.data())
                       .empty() &&
                   Close(out, wanted.out),
               "GatherAggregateSparse");
        if (one.empty()) one = out;
        Expect(SameBits(one, out), "GatherAggregateSparse: other bits on other threads");
      }
    }
  }
  indices[0] = 33;
  Threads threads;
  std::vector<float> out(block.rows * block.width);
  Expect(!jgs::GatherAggregateSparse(threads.Get(4), rows, block.View(false), Reduce::kSum,
                                     out.data())
              .empty(),
         "a column out of range is accepted in GatherAggregateSparse");
}

}  // namespace

int main() {
  TestAggregate();
  TestFeatureParts();
  TestPartsForACache();
  TestBrokenBlocks();
  TestGather();
  TestGatherAggregateStored();
  TestGatherSparse();
  TestGatherAggregateSparse();
  std::printf(failures == 0 ? "aggregate_test: passed\n" : "aggregate_test: %d failures\n",
              failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
