// The XLA bindings of rows.h. Their Python side is jgs/dist/batches/answers.py.
#include <cstdint>
#include <string>

#include "ffi.h"
#include "rows.h"

namespace jgs {
namespace {

std::string Route(Ints nodes, Ints offsets, Flags held, Int rank, ffi::Result<Ints> own,
                  ffi::Result<IntMatrix> requests, ffi::Result<Ints> place) {
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
}

std::string Merge(Ints place, Ints own_indptr, Ints own_indices, IntMatrix replies,
                  ffi::Result<Ints> indptr, ffi::Result<Ints> neighbors, int64_t capacity,
                  int64_t num_nodes) {
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
}

}  // namespace

JGS_HANDLER(JgsRouteRows, Route);
JGS_HANDLER(JgsMergeRows, Merge, "capacity", "num_nodes");

}  // namespace jgs
