// The XLA bindings of contexts.h. Their Python side is jgs/sampling/contexts/hops.py and
// jgs/sampling/algorithms/context.py.
#include <cstdint>
#include <string>

#include "contexts.h"
#include "sample_call.h"

namespace jgs {
namespace {

using LongMatrix = ffi::Buffer<ffi::S64, 2>;

std::string ByHops(ffi::ThreadPool pool, Words key, AnyLongs indptr, Ints indices,
                   Longs weight_prefix, Longs recency, Longs edge_time, Shorts edge_type,
                   AnyLongs runs_indptr, Longs runs, Ints nodes, Longs time, Longs excluded,
                   ffi::Result<IntMatrix> out_nodes, ffi::Result<IntMatrix> out_hop,
                   ffi::Result<IntMatrix> out_parent, ffi::Result<LongMatrix> out_edge,
                   Numbers draws, Numbers relation_draws, Numbers widths, int64_t room,
                   bool replace, bool weighted, bool latest, bool by_age, int64_t window,
                   int64_t half_life, int64_t num_threads) {
  const GraphView view = ViewGraph(indptr, indices);
  const int64_t num = Size(nodes), size = out_nodes->dimensions()[1];
  const auto edges = [&](const auto& array) { return Size(array) == view.num_edges; };
  const bool timed = Size(time) > 0;
  const size_t num_hops = draws.size();
  bool good = num > 0 && room >= 1 && view.num_nodes >= 0 && Size(key) == 2 &&
              widths.size() == num_hops && num_hops > 0 && relation_draws.size() % num_hops == 0;
  for (const auto& result : {&out_nodes, &out_hop, &out_parent}) {
    good = good && HasShape(**result, num, size);
  }
  good = good && HasShape(*out_edge, num, size) && (!timed || Size(time) == num) &&
         (!timed || edges(edge_time)) && (timed || (!by_age && half_life == 0)) &&
         (!weighted || edges(weight_prefix)) && (half_life == 0 || edges(recency)) &&
         (relation_draws.size() == 0 || edges(edge_type));
  if (!good) return kShapes;
  if (!FitsIndex(runs_indptr, runs, view)) return kOtherIndex;
  GraphView graph = view;
  graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
  NeighborOptions options{replace, weighted, latest, window, edge_time.typed_data(), {}, {}};
  options.recency = {half_life, recency.typed_data(), edge_time.typed_data()};
  options.relations.num = static_cast<int64_t>(relation_draws.size() / num_hops);
  options.relations.edge_type = edge_type.typed_data();
  options.relations.index = ViewIndex(runs_indptr, runs);
  ContextHops by{std::vector<Hop>(num_hops), widths.begin(), room, by_age};
  for (size_t h = 0; h < num_hops; ++h) {
    by.hops[h].key = HopKey(key.typed_data(), static_cast<int64_t>(h));
    by.hops[h].fanout = draws[h];
    if (draws[h] == 0 && options.relations.num > 0) {
      by.hops[h].relation_fanout = &relation_draws[h * options.relations.num];
    }
  }
  const Seeds seeds{nodes.typed_data(), num, timed ? time.typed_data() : nullptr,
                    excluded.typed_data(), Size(excluded)};
  const FoundContexts found{size, out_nodes->typed_data(), out_hop->typed_data(),
                            out_parent->typed_data(), out_edge->typed_data()};
  return FindByHops(graph, seeds, options, by, found, PoolExecutor(pool, num_threads));
}

std::string Tree(ffi::ThreadPool pool, IntMatrix nodes, IntMatrix parent,
                 ffi::Result<IntMatrix> place, ffi::Result<Ints> indptr,
                 ffi::Result<Ints> children, int64_t num_nodes, int64_t num_threads) {
  const int64_t num = nodes.dimensions()[0], size = nodes.dimensions()[1];
  const bool good = HasShape(parent, num, size) && HasShape(*place, num, size) &&
                    num * size <= INT32_MAX && Size(*indptr) == num * size + 1 &&
                    Size(*children) == num * size;
  if (!good) return kShapes;
  ContextTrees(nodes.typed_data(), parent.typed_data(), num, size, num_nodes,
               place->typed_data(), indptr->typed_data(), children->typed_data(),
               PoolExecutor(pool, num_threads));
  return "";
}

}  // namespace

JGS_HANDLER(JgsContextHops, ByHops, "draws", "relation_draws", "widths", "room", "replace",
            "weighted", "latest", "by_age", "window", "half_life", "num_threads");
JGS_HANDLER(JgsContextTree, Tree, "num_nodes", "num_threads");

}  // namespace jgs
