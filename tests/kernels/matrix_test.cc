// Self-test of collective.h, extract.h, edge_sums.h and edge_inner.h without Python or XLA, for the sanitizers
// (ThreadSanitizer above all): a graph with a hub against plain loops, on 1, 2 and 4 threads.
// Run by `make sanitize`.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collective.h"
#include "edge_inner.h"
#include "edge_sums.h"
#include "extract.h"
#include "threads.h"

namespace {

constexpr int32_t kNodes = 3000, kRows = 200, kDrawn = 100, kWidth = 37;

struct Input {
  std::vector<int64_t> indptr{0}, excluded;
  std::vector<int32_t> indices, columns, rows, nodes, logarithms{1 << 30};
  std::vector<float> weight, by_row, by_column;
};

Input Make(bool excludes) {
  std::mt19937 random(1);
  Input in;
  for (int32_t v = 0; v < kNodes; ++v) {
    const int degree = v == 17 ? 40000 : random() % 30;
    for (int i = 0; i < degree; ++i) in.indices.push_back(random() % (kNodes / 2));
    in.indptr.push_back(static_cast<int64_t>(in.indices.size()));
    in.nodes.push_back(v);
    in.weight.push_back(random() % 5 == 0 ? 0 : random() % 1000 / 100.0f);
    in.by_row.push_back(0.5f + random() % 100 / 100.0f);
  }
  for (int i = 0; i < 500; ++i) in.columns.push_back(random() % (kNodes + 1));
  in.columns[3] = in.columns[9] = 17;
  in.columns[4] = 16;  // has no edges left
  const int64_t num_edges = in.indptr.back();
  for (int64_t e = 0; excludes && e < num_edges; ++e) {
    const bool whole = e >= in.indptr[16] && e < in.indptr[17];
    if (whole || random() % 3 == 0) in.excluded.push_back(e);
  }
  if (excludes) in.excluded.insert(in.excluded.end(), 5, num_edges);  // padding
  for (int i = 0; i < kRows; ++i) in.rows.push_back(random() % (kNodes + 1));
  in.by_column.assign(in.columns.size(), 3);
  for (double t = 0x1p-11; in.logarithms.size() < 1026; t += 0x1p-11) {
    in.logarithms.push_back(static_cast<int32_t>(std::lround(-std::log1p(-t) / t * 0x1p30)));
  }
  return in;
}

struct Result {
  std::vector<int32_t> slot, indptr, column, row, count, offsets, expanded, back_offsets, back_at,
      back_node;
  std::vector<int64_t> edge_id, at, back_id, running;
  std::vector<float> by_row, by_column, by_column_alone, sums, products;
  int64_t selected = 0;
  double least = 0;
  bool operator==(const Result& o) const {
    return slot == o.slot && indptr == o.indptr && column == o.column && row == o.row &&
           count == o.count && offsets == o.offsets && expanded == o.expanded &&
           edge_id == o.edge_id && at == o.at && least == o.least && by_row == o.by_row &&
           by_column == o.by_column && by_column_alone == o.by_column_alone && sums == o.sums &&
           selected == o.selected && back_offsets == o.back_offsets && back_at == o.back_at &&
           back_node == o.back_node && back_id == o.back_id && running == o.running &&
           products == o.products;
  }
};

Result Run(const Input& in, int64_t num_threads) {
  const int64_t columns = static_cast<int64_t>(in.columns.size()), room = 100000;
  std::string error;
  const jgs::Limits limits = jgs::LimitsOf(
      {nullptr, 0, nullptr, in.excluded.data(), static_cast<int64_t>(in.excluded.size())},
      nullptr, in.indptr.back(), nullptr, -1, error);
  const jgs::Slice slice(in.indptr.data(), in.indptr.data() + 1, kNodes, in.columns.data(), columns, limits);
  Result r;
  Threads threads;
  const jgs::Executor executor = threads.Get(num_threads);
  r.slot.resize(kDrawn);
  r.least = jgs::SmallestRanks({{{1, 2}}, in.nodes.data(), in.weight.data(), kNodes,
                                in.logarithms.data()},
                               kDrawn, r.slot.data(), executor);
  r.offsets.resize(columns + 1), r.expanded.resize(room), r.at.resize(room);
  jgs::Expand(slice, {room, r.offsets.data(), r.expanded.data(), r.at.data()}, executor);
  r.indptr.resize(columns + 1), r.column.resize(room), r.row.resize(room);
  r.edge_id.resize(room);
  jgs::Extracted part{room, room, kRows, static_cast<int64_t>(in.indices.size()),
                      r.indptr.data(), r.column.data(), r.row.data(), r.edge_id.data(), 0};
  jgs::ExtractRows(slice, in.indices.data(), in.rows.data(), kNodes, part, executor);
  r.selected = part.selected;
  std::vector<int32_t> slots;
  for (int32_t c = static_cast<int32_t>(columns); c >= -1; --c) slots.push_back(c);  // backwards
  const jgs::Slice back(r.indptr.data(), r.indptr.data() + 1, columns, slots.data(), columns + 2);
  r.back_offsets.resize(columns + 3), r.back_at.resize(room), r.back_node.resize(room);
  r.back_id.resize(room);
  jgs::Rearrange(back, r.row.data(), r.edge_id.data(), in.rows.data(), kRows,
                 {room, kNodes, part.no_edge, r.back_offsets.data(), r.back_at.data(),
                  r.back_node.data(), r.back_id.data()},
                 executor);
  using jgs::EdgeStep;
  const EdgeStep divide{jgs::Operation::kDiv, EdgeStep::kColumn, false, 0, in.by_column.data()};
  const EdgeStep times{jgs::Operation::kMul, EdgeStep::kRow, false, 0, in.by_row.data()};
  const EdgeStep square{jgs::Operation::kSquare, EdgeStep::kNumber, false, 2, nullptr};
  r.by_row.resize(kNodes), r.by_column.resize(columns), r.by_column_alone.resize(kNodes);
  jgs::EdgeChain chain{slice, in.indices.data(), nullptr, {times, square}};
  jgs::SumByRow(chain, kNodes, r.by_row.data(), executor);
  jgs::SumByColumn(chain, r.by_column.data(), executor);
  chain.steps = {divide, square};
  jgs::SumByRow(chain, kNodes, r.by_column_alone.data(), executor);
  r.count.resize(kNodes);
  jgs::CountByRow(slice, in.indices.data(), kNodes, r.count.data(), executor);
  std::vector<float> values;
  for (const int64_t id : r.at) values.push_back(in.by_row[in.indices[id]]);
  r.sums.resize(columns);
  jgs::ExactSums(values.data(), r.expanded.data(), room, 1, columns, r.sums.data(), executor);
  const int64_t edges = r.offsets.back();
  r.products.resize(edges * 2), r.running.resize(edges);
  std::vector<float> left, right;
  for (int64_t i = 0; i < kNodes * 2 * kWidth; ++i) left.push_back(static_cast<float>(i % 7) - 3);
  for (int64_t i = 0; i < columns * 2 * kWidth; ++i) right.push_back(static_cast<float>(i % 5));
  std::vector<int32_t> row;
  for (int64_t e = 0; e < edges; ++e) row.push_back(in.indices[r.at[e]]);
  jgs::EdgeInner({left.data(), right.data(), row.data(), r.expanded.data(), 2, kWidth}, edges,
                 r.products.data(), executor);
  std::vector<float> weight(values.begin(), values.begin() + edges);
  if (edges > 0) weight[0] = 0;
  const bool bad = jgs::RunningWeights(weight.data(), r.offsets.data(), columns,
                                       r.running.data(), executor);
  weight[edges / 2] = -1;
  std::vector<int64_t> other(edges);
  r.selected += bad;  // then it is not the number of edges
  r.selected += !jgs::RunningWeights(weight.data(), r.offsets.data(), columns, other.data(),
                                     executor);
  return r;
}

bool Near(float found, double wanted) { return std::abs(found - wanted) <= 1e-5 * wanted; }

int ByDefinition(const Input& in, const Result& r) {
  int failures = 0;
  int64_t edges = 0, kept = 0;
  std::vector<double> by_row(kNodes, 0), alone(kNodes, 0);
  std::vector<int32_t> count(kNodes, 0);
  for (size_t c = 0; c < in.columns.size(); ++c) {
    double squares = 0, plain = 0;
    const int32_t v = in.columns[c];
    for (int64_t e = v < kNodes ? in.indptr[v] : 0; v < kNodes && e < in.indptr[v + 1]; ++e) {
      if (std::binary_search(in.excluded.begin(), in.excluded.end(), e)) continue;
      const int32_t u = in.indices[e];
      const double value = in.by_row[u];
      plain += value, squares += value * value, by_row[u] += value * value;
      alone[u] += 1 / 9.0;
      ++count[u];
      failures += r.at[edges] != e;
      for (int64_t h = 0; h < 2; ++h) {
        int64_t product = 0;
        for (int64_t f = 0; f < kWidth; ++f) {
          const int64_t left = (int64_t{u} * 2 + h) * kWidth + f;
          const int64_t right = (static_cast<int64_t>(c) * 2 + h) * kWidth + f;
          product += (left % 7 - 3) * (right % 5);
        }
        failures += r.products[edges * 2 + h] != static_cast<float>(product);
      }
      const double before = edges > r.offsets[c] ? r.running[edges - 1] : 0;
      const double units = edges > 0 ? value * 0x1p30 : 0;  // of weights below 1
      const double found = r.running[edges] - before;
      failures += !(Near(found, units) || Near(found, units / 2));
      ++edges;
      const auto place = std::find(in.rows.begin(), in.rows.end(), u);
      if (place == in.rows.end()) continue;
      failures += r.edge_id[kept] != e || r.row[kept] != place - in.rows.begin() ||
                  r.column[kept] != static_cast<int32_t>(c);
      ++kept;
    }
    failures += r.offsets[c + 1] != edges || r.indptr[c + 1] != kept;
    failures += !Near(r.by_column[c], squares) + !Near(r.sums[c], plain);
  }
  failures += r.selected != kept || r.row[kept] != kRows || r.count != count;
  for (int32_t u = 0; u < kNodes; ++u) {
    failures += !Near(r.by_row[u], by_row[u]) + !Near(r.by_column_alone[u], alone[u]);
  }
  int64_t to = 0;
  for (int32_t c = static_cast<int32_t>(in.columns.size()) - 1; c >= 0; --c) {
    for (int32_t e = r.indptr[c]; e < r.indptr[c + 1]; ++e, ++to) {
      failures += r.back_at[to] != e || r.back_id[to] != r.edge_id[e] ||
                  r.back_node[to] != in.rows[r.row[e]];
    }
  }
  failures += to != kept || r.back_offsets.back() != kept || r.back_node[to] != kNodes;
  std::set<int32_t> drawn(r.slot.begin(), r.slot.end());
  failures += drawn.size() != kDrawn || !std::is_sorted(r.slot.begin(), r.slot.end());
  for (const int32_t node : drawn) failures += !(in.weight[node] > 0);
  return failures;
}

}  // namespace

int main() {
  std::atomic<int> failures{0};
  for (const bool excludes : {false, true}) {
    const Input in = Make(excludes);
    const Result one = Run(in, 1);
    failures += ByDefinition(in, one);
    for (const int64_t num_threads : {2, 4}) {
      std::thread beside([&] { failures += !(Run(in, num_threads) == one); });  // two at once
      failures += !(Run(in, num_threads) == one);
      beside.join();
    }
  }
  std::printf(failures == 0 ? "matrix_test: passed\n" : "matrix_test: %d failures\n",
              failures.load());
  return failures != 0;
}
