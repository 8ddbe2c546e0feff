// The XLA bindings of rows.h. Their Python side is jgs/dist/rows/picked.py.
#include <cstdint>
#include <string>

#include "ffi.h"
#include "rows.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Buffer<ffi::S32, 1>;
using Table = ffi::Buffer<ffi::S32, 2>;
using Flags = ffi::Buffer<ffi::PRED, 1>;
using Scalar = ffi::BufferR0<ffi::S32>;

constexpr char kShapes[] = "jgs: the buffers of a kernel must have matching shapes";

template <typename Buffer>
int64_t Size(const Buffer& buffer) {
  return static_cast<int64_t>(buffer.element_count());
}

ffi::Error Route(Ints nodes, Ints offsets, Flags held, Scalar rank,
                 ffi::Result<Ints> own, ffi::Result<Table> requests, ffi::Result<Ints> place) {
  return Guarded([&]() -> std::string {
    const Owners owners{offsets.typed_data(), Size(offsets) - 1, *rank.typed_data(),
                        held.typed_data(), Size(held)};
    const int64_t capacity = requests->dimensions()[1] - 1;
    const bool good = owners.num_ranks >= 1 && owners.rank >= 0 &&
                      owners.rank < owners.num_ranks && capacity >= 0 &&
                      owners.num_ranks * capacity <= INT32_MAX &&
                      requests->dimensions()[0] == owners.num_ranks &&
                      Size(*own) == Size(nodes) && Size(*place) == Size(nodes);
    if (!good) return kShapes;
    RouteRows(owners, nodes.typed_data(), Size(nodes), capacity, own->typed_data(),
              requests->typed_data(), place->typed_data());
    return "";
  });
}

ffi::Error Merge(Ints place, Ints own_indptr, Ints own_indices, Table replies,
                 ffi::Result<Ints> indptr, ffi::Result<Ints> neighbors, int64_t capacity,
                 int64_t num_nodes) {
  return Guarded([&]() -> std::string {
    Answers a{place.typed_data(),
              own_indptr.typed_data(),
              own_indices.typed_data(),
              Size(place),
              Size(own_indices),
              replies.typed_data(),
              replies.dimensions()[0],
              capacity,
              replies.dimensions()[1] - 2 - capacity,
              static_cast<int32_t>(num_nodes)};
    const bool good = capacity >= 1 && a.edge_capacity >= 0 &&
                      Size(own_indptr) == a.num_rows + 1 && Size(*indptr) == a.num_rows + 1;
    if (!good) return kShapes;
    AdviseHugePages(neighbors);
    return MergeRows(a, Size(*neighbors), indptr->typed_data(), neighbors->typed_data());
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsRouteRows, jgs::Route,
                              ffi::Ffi::Bind()
                                  .Arg<jgs::Ints>()    // nodes
                                  .Arg<jgs::Ints>()    // offsets
                                  .Arg<jgs::Flags>()   // held
                                  .Arg<jgs::Scalar>()  // rank
                                  .Ret<jgs::Ints>()    // own
                                  .Ret<jgs::Table>()   // requests
                                  .Ret<jgs::Ints>());  // place
XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsMergeRows, jgs::Merge,
                              ffi::Ffi::Bind()
                                  .Arg<jgs::Ints>()   // place
                                  .Arg<jgs::Ints>()   // own_indptr
                                  .Arg<jgs::Ints>()   // own_indices
                                  .Arg<jgs::Table>()  // replies
                                  .Ret<jgs::Ints>()   // indptr
                                  .Ret<jgs::Ints>()   // neighbors
                                  .Attr<int64_t>("capacity")
                                  .Attr<int64_t>("num_nodes"));
