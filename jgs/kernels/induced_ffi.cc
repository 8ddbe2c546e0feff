// The XLA binding of InducedBlock. Its Python side is jgs/sampling/edges/induced.py.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "induced.h"
#include "sample_call.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// For nodes [..., R] and groups [..., G+1]: indptr, indices, edge ids and edge weights of the
// block, and the number of edges needed, with the same leading axes. There may be S times as
// many results, for nodes [..., S, R]: then those of the first of S batches come first, then
// those of the second, and so on.
ffi::Error InducedCall(ffi::ThreadPool pool, ffi::Buffer<ffi::S64> indptr,
                       ffi::Buffer<ffi::S32> indices, ffi::Buffer<ffi::F32> weight,
                       ffi::Buffer<ffi::PRED> sorted, ffi::Buffer<ffi::S32> groups,
                       ffi::Buffer<ffi::S32> nodes, ffi::RemainingRets rets, bool by_row,
                       int64_t num_threads) {
  return Guarded([&]() -> std::string {
    constexpr int64_t kResults = 5;
    GraphView graph{};
    graph.indptr = indptr.typed_data();
    graph.num_nodes = static_cast<int64_t>(indptr.element_count()) - 1;
    graph.indices = indices.typed_data();
    graph.num_edges = static_cast<int64_t>(indices.element_count());
    graph.edge_weight = weight.typed_data();
    if (nodes.dimensions().size() == 0 || groups.dimensions().size() == 0) {
      return "jgs_induced: nodes and groups must be arrays";
    }
    const int64_t num_rows = nodes.dimensions().back(), bounds = groups.dimensions().back();
    const int64_t batches = static_cast<int64_t>(groups.element_count()) / std::max<int64_t>(bounds, 1);
    const int64_t apart = std::max<int64_t>(1, static_cast<int64_t>(rets.size()) / kResults);
    if (graph.num_nodes < 0 || bounds < 1 || sorted.element_count() != 1 ||
        static_cast<int64_t>(nodes.element_count()) != batches * num_rows ||
        batches % apart != 0 || batches < 1) {
      return "jgs_induced: arguments do not have the expected sizes";
    }
    std::vector<std::string> errors(batches);
    const auto one = [&](int64_t batch, const Executor& executor) {
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
        errors[batch] = "jgs_induced: results do not have the expected sizes";
        return;
      }
      AdviseHugePages(block.indices, static_cast<size_t>(room) * sizeof(int32_t));
      AdviseHugePages(block.edge_id, static_cast<size_t>(ids) * sizeof(int64_t));
      AdviseHugePages(block.edge_weight, static_cast<size_t>(weights) * sizeof(float));
      errors[batch] = InducedBlock(graph, block, executor);
      *needed = block.needed;
    };
    const Executor executor = PoolExecutor(pool, num_threads);
    if (batches >= executor.num_threads) {  // a thread for each batch: none waits
      ParallelFor(executor, batches, [&](int64_t batch) { one(batch, Executor{}); });
    } else {
      for (int64_t batch = 0; batch < batches; ++batch) one(batch, executor);
    }
    const auto is_error = [](const std::string& error) { return !error.empty(); };
    const auto first = std::find_if(errors.begin(), errors.end(), is_error);
    return first == errors.end() ? "" : *first;
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsInduced, jgs::InducedCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()   // indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()   // indices
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()   // weight
                                  .Arg<xla::ffi::Buffer<xla::ffi::PRED>>()  // sorted
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()   // groups
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()   // nodes
                                  .RemainingRets()
                                  .Attr<bool>("by_row")
                                  .Attr<int64_t>("num_threads"));
