// The XLA binding of Route. Its Python side is jgs/dist/rows/owners.py.
#include <string>

#include "ffi.h"
#include "route.h"

namespace jgs {
namespace {

std::string RouteFfi(Ints nodes, Ints offsets, Ints cache_slot, Int rank, Int round,
                     ffi::Result<IntMatrix> requests, ffi::Result<Ints> place, int64_t num_own,
                     int64_t num_cached) {
  Routing routing;
  routing.offsets = offsets.typed_data();
  routing.num_ranks = Size(offsets) - 1;
  routing.rank = *rank.typed_data();
  routing.cache_slot = cache_slot.typed_data();
  routing.num_slots = Size(cache_slot);
  routing.num_own = num_own;
  routing.num_cached = num_cached;
  routing.capacity = requests->dimensions()[1] - 1;
  routing.round = *round.typed_data();
  const bool shapes = routing.num_ranks >= 1 && routing.capacity >= 0 && routing.round >= 0 &&
                      requests->dimensions()[0] == routing.num_ranks &&
                      Size(*place) == Size(nodes);
  if (!shapes) return kShapes;
  Route(routing, nodes.typed_data(), Size(nodes), requests->typed_data(), place->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsRoute, RouteFfi, "num_own", "num_cached");

}  // namespace jgs
