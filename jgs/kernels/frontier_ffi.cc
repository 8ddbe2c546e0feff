// The XLA binding of SampleFrontiers. Its Python side is
// jgs/sampling/algorithms/frontier.py.
#include <cmath>
#include <cstdint>
#include <string>

#include "frontier.h"
#include "sample_call.h"

namespace jgs {
namespace {

std::string Frontier(ffi::ThreadPool pool, ffi::BufferR2<ffi::U32> keys, AnyLongs indptr,
                     Ints indices, ffi::Result<IntMatrix> nodes, ffi::Result<Ints> counts,
                     int64_t size, int64_t pops, int64_t degree_cap, double enlargement,
                     int64_t num_threads) {
  const GraphView graph = ViewGraph(indptr, indices);
  const int64_t num_subgraphs = keys.dimensions()[0], room = nodes->dimensions()[1];
  if (graph.num_nodes < 1 || keys.dimensions()[1] != 2 ||
      nodes->dimensions()[0] != num_subgraphs ||
      Size(*counts) != num_subgraphs ||
      !(std::abs(enlargement) < 4294967296.0)) {
    return "jgs_frontier: arguments do not have the expected sizes";
  }
  const FrontierOptions options{size, pops, degree_cap, std::llround(enlargement * 1024)};
  const std::string error = CheckFrontier(options);
  if (!error.empty()) return error;
  return SampleFrontiers(graph, keys.typed_data(), num_subgraphs, options, room,
                         nodes->typed_data(), counts->typed_data(),
                         PoolExecutor(pool, num_threads));
}

}  // namespace

JGS_HANDLER(JgsFrontier, Frontier, "size", "pops", "degree_cap", "enlargement", "num_threads");

}  // namespace jgs
