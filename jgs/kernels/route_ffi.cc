// The XLA binding of Route. Its Python side is jgs/dist/rows/route.py.
#include <string>

#include "ffi.h"
#include "route.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Buffer<ffi::S32, 1>;
using Scalar = ffi::BufferR0<ffi::S32>;
using Requests = ffi::Buffer<ffi::S32, 2>;

ffi::Error RouteFfi(Ints nodes, Ints offsets, Ints cache_slot, Scalar rank, Scalar round,
                    ffi::Result<Requests> requests, ffi::Result<Ints> place,
                    int64_t num_own, int64_t num_cached) {
  return Guarded([&]() -> std::string {
    Routing routing;
    routing.offsets = offsets.typed_data();
    routing.num_ranks = static_cast<int64_t>(offsets.element_count()) - 1;
    routing.rank = *rank.typed_data();
    routing.cache_slot = cache_slot.typed_data();
    routing.num_slots = static_cast<int64_t>(cache_slot.element_count());
    routing.num_own = num_own;
    routing.num_cached = num_cached;
    routing.capacity = requests->dimensions()[1] - 1;
    routing.round = *round.typed_data();
    const bool shapes = routing.num_ranks >= 1 && requests->dimensions()[0] == routing.num_ranks &&
                        routing.capacity >= 0 && routing.round >= 0 &&
                        place->element_count() == nodes.element_count();
    if (!shapes) return "jgs: the buffers of a kernel must have matching shapes";
    Route(routing, nodes.typed_data(), static_cast<int64_t>(nodes.element_count()),
          requests->typed_data(), place->typed_data());
    return "";
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsRoute, jgs::RouteFfi,
                              ffi::Ffi::Bind()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Scalar>()
                                  .Arg<jgs::Scalar>()
                                  .Ret<jgs::Requests>()
                                  .Ret<jgs::Ints>()
                                  .Attr<int64_t>("num_own")
                                  .Attr<int64_t>("num_cached"));
