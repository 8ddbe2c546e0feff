// The XLA binding of InducedBlock. Its Python side is jgs/sampling/edges/induced.py.
#include <cstdint>
#include <string>

#include "induced.h"
#include "sample_call.h"

namespace jgs {
namespace {

// For nodes [..., R] and groups [..., G+1]: indptr, indices, edge ids and edge weights of the
// block, and the number of edges needed, with the same leading axes. There may be S times as
// many results, for nodes [..., S, R]: then those of the first of S batches come first, then
// those of the second, and so on.
std::string InducedCall(ffi::ThreadPool pool, AnyLongs indptr, AnyInts indices,
                        AnyFloats weight, ffi::Buffer<ffi::PRED> sorted, AnyInts groups,
                        AnyInts nodes, ffi::RemainingRets rets, bool by_row,
                        int64_t num_threads) {
  constexpr int64_t kResults = 5;
  GraphView graph = ViewGraph(indptr, indices);
  graph.edge_weight = weight.typed_data();
  if (nodes.dimensions().size() == 0 || groups.dimensions().size() == 0) {
    return "jgs_induced: nodes and groups must be arrays";
  }
  const int64_t num_rows = nodes.dimensions().back(), bounds = groups.dimensions().back();
  const int64_t batches = Size(groups) / std::max<int64_t>(bounds, 1);
  const int64_t apart = std::max<int64_t>(1, static_cast<int64_t>(rets.size()) / kResults);
  if (graph.num_nodes < 0 || bounds < 1 || sorted.element_count() != 1 ||
      Size(nodes) != batches * num_rows ||
      batches % apart != 0 || batches < 1) {
    return "jgs_induced: arguments do not have the expected sizes";
  }
  const auto one = [&](int64_t batch, const Executor& executor) -> std::string {
    Results results(rets, batch % apart * kResults, batch / apart, batches / apart);
    Induced block{};
    block.nodes = nodes.typed_data() + batch * num_rows;
    block.num_rows = num_rows;
    block.groups = groups.typed_data() + batch * bounds;
    block.num_groups = bounds - 1;
    block.sorted = sorted.typed_data()[0];
    block.by_row = by_row;
    int64_t rows, room, ids, weights;
    block.indptr = results.Next<ffi::S32>(&rows);
    block.indices = results.Next<ffi::S32>(&room);
    block.edge_id = results.Next<ffi::S64>(&ids);
    block.edge_weight = results.Next<ffi::F32>(&weights);
    int64_t* needed = results.Next<ffi::S64>();
    block.room = room;
    if (!results.good() || rows != num_rows + 1 || needed == nullptr ||
        (ids != 0 && ids != room) || (weights != 0 && weights != room) ||
        (weights != 0 && weight.element_count() != indices.element_count())) {
      return "jgs_induced: results do not have the expected sizes";
    }
    AdviseHugePages(block.indices, static_cast<size_t>(room) * sizeof(int32_t));
    AdviseHugePages(block.edge_id, static_cast<size_t>(ids) * sizeof(int64_t));
    AdviseHugePages(block.edge_weight, static_cast<size_t>(weights) * sizeof(float));
    const std::string error = InducedBlock(graph, block, executor);
    *needed = block.needed;
    return error;
  };
  return ForBatches(PoolExecutor(pool, num_threads), batches, one);
}

}  // namespace

JGS_HANDLER(JgsInduced, InducedCall, "by_row", "num_threads");

}  // namespace jgs
