// The XLA binding of FindRuns. Its Python side is jgs/ops/relation_runs.py.
#include <string>

#include "aggregate_ffi.h"
#include "runs.h"

namespace jgs {
namespace {

std::string Runs(Ints indptr, Ints indices, Shorts type, Int num_targets, Int num_edges,
                 ffi::Result<Ints> run_indptr, ffi::Result<Ints> run_indices,
                 ffi::Result<Ints> order, ffi::Result<Ints> place, ffi::Result<Ints> relation,
                 ffi::Result<Ints> target, ffi::Result<Ints> sum_indptr,
                 ffi::Result<Ints> sum_indices, ffi::Result<Int> num_slots,
                 ffi::Result<Int> num_runs, int64_t num_sources, int64_t num_relations,
                 int64_t tile, int64_t num_threads) {
  static_cast<void>(num_threads);  // it runs on the calling thread
  TypedEdges edges{View(indptr, indices, num_targets, num_edges, num_sources),
                   type.typed_data(), num_relations};
  const int64_t slots = Size(*target), num = edges.block.edge_capacity;
  if (edges.block.target_capacity < 0 || tile < 1 || num_relations < 0 ||
      slots % tile != 0 || Size(type) != num || Size(*run_indptr) != slots + 1 ||
      Size(*run_indices) != num || Size(*order) != num || Size(*place) != num ||
      Size(*relation) != slots / tile || Size(*sum_indptr) != Size(indptr)) {
    return kShapes;
  }
  RunsOut out{tile,
              Size(*sum_indices),
              slots,
              run_indptr->typed_data(),
              run_indices->typed_data(),
              order->typed_data(),
              place->typed_data(),
              relation->typed_data(),
              target->typed_data(),
              sum_indptr->typed_data(),
              sum_indices->typed_data(),
              0,
              0};
  const std::string error = FindRuns(edges, out);
  *num_slots->typed_data() = static_cast<int32_t>(out.num_slots);
  *num_runs->typed_data() = static_cast<int32_t>(out.num_runs);
  return error;
}

}  // namespace

JGS_HANDLER(JgsRuns, Runs, "num_sources", "num_relations", "tile", "num_threads");

}  // namespace jgs
