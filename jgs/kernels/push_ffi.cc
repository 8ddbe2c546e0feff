// The XLA binding of PushContexts. Its Python side is jgs/sampling/contexts/pagerank.py.
#include <cstdint>
#include <string>

#include "push.h"
#include "sample_call.h"

namespace jgs {
namespace {

using LongMatrix = ffi::Buffer<ffi::S64, 2>;

// `edge_type` and `edge_time` are empty where they are not read, `time` where there are no
// cutoffs.
std::string PushSeeds(ffi::ThreadPool pool, AnyLongs indptr, Ints indices, Shorts edge_type,
                      Longs edge_time, Ints nodes, Longs time, Longs excluded,
                      ffi::Result<IntMatrix> found, ffi::Result<IntMatrix> hop,
                      ffi::Result<IntMatrix> parent, ffi::Result<LongMatrix> edge,
                      ffi::Result<LongMatrix> score, int64_t restart, int64_t least,
                      Numbers weights, int64_t num_threads) {
  const GraphView graph = ViewGraph(indptr, indices);
  const int64_t num = Size(nodes), num_edges = graph.num_edges;
  const int64_t size = found->dimensions()[1];
  const bool typed = Size(edge_type) > 0, timed = Size(time) > 0;
  const auto fits = [&](auto& result) { return HasShape(*result, num, size); };
  if (graph.num_nodes < 0 || (typed && Size(edge_type) != num_edges) ||
      (timed && (Size(time) != num || Size(edge_time) != num_edges)) || restart < 0 ||
      restart > int64_t{1} << 31 || least < 1 || size < 1 ||
      !(fits(found) && fits(hop) && fits(parent) && fits(edge) && fits(score))) {
    return "jgs_push: arguments do not have the expected sizes";
  }
  const Seeds seeds{nodes.typed_data(), num, timed ? time.typed_data() : nullptr,
                    excluded.typed_data(), Size(excluded)};
  std::string error;
  const Limits limits = LimitsOf(seeds, edge_time.typed_data(), num_edges, nullptr, -1, error);
  if (!error.empty()) return error;
  const PushOptions options{restart,
                            least,
                            typed ? edge_type.typed_data() : nullptr,
                            weights.begin(),
                            static_cast<int64_t>(weights.size()),
                            limits};
  const PushedContexts contexts{size,
                                found->typed_data(),
                                hop->typed_data(),
                                parent->typed_data(),
                                edge->typed_data(),
                                score->typed_data()};
  return PushContexts(graph, seeds, options, contexts, PoolExecutor(pool, num_threads));
}

}  // namespace

JGS_HANDLER(JgsPush, PushSeeds, "restart", "least", "weights", "num_threads");

}  // namespace jgs
