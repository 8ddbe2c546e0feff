// The XLA binding of FindRuns. Its Python side is jgs/ops/relations.py.
#include <string>

#include "aggregate_ffi.h"
#include "runs.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;
using Shorts = ffi::Buffer<ffi::S16, 1>;

template <typename Buffer>
int64_t Size(const Buffer& buffer) {
  return static_cast<int64_t>(buffer.element_count());
}

ffi::Error Runs(Ints indptr, Ints indices, Shorts type, Count num_targets, Count num_edges,
                ffi::Result<Ints> run_indptr, ffi::Result<Ints> run_indices,
                ffi::Result<Ints> order, ffi::Result<Ints> place, ffi::Result<Ints> relation,
                ffi::Result<Ints> target, ffi::Result<Ints> sum_indptr,
                ffi::Result<Ints> sum_indices, ffi::Result<Count> num_slots,
                ffi::Result<Count> num_runs, int64_t num_sources, int64_t num_relations,
                int64_t tile, int64_t num_threads) {
  return Guarded([&]() -> std::string {
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
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsRuns, jgs::Runs,
                              ffi::Ffi::Bind()
                                  .Arg<jgs::Ints>()      // indptr
                                  .Arg<jgs::Ints>()      // indices
                                  .Arg<jgs::Shorts>()    // edge_type
                                  .Arg<jgs::Count>()     // num_targets
                                  .Arg<jgs::Count>()     // num_edges
                                  .Ret<jgs::Ints>()      // the runs' indptr
                                  .Ret<jgs::Ints>()      // the runs' indices
                                  .Ret<jgs::Ints>()      // order
                                  .Ret<jgs::Ints>()      // place
                                  .Ret<jgs::Ints>()      // relation
                                  .Ret<jgs::Ints>()      // target
                                  .Ret<jgs::Ints>()      // the sums' indptr
                                  .Ret<jgs::Ints>()      // the sums' indices
                                  .Ret<jgs::Count>()     // num_slots
                                  .Ret<jgs::Count>()     // num_runs
                                  .Attr<int64_t>("num_sources")
                                  .Attr<int64_t>("num_relations")
                                  .Attr<int64_t>("tile")
                                  .Attr<int64_t>("num_threads"));
