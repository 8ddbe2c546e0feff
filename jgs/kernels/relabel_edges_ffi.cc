// The XLA binding of RelabelEdges. Its Python side is jgs/sampling/edges/slots.py.
#include <algorithm>
#include <string>

#include "ffi.h"
#include "relabel_edges.h"

namespace jgs {
namespace {

std::string Relabel(ffi::ThreadPool pool, Ints targets, Int num_targets, Ints neighbors,
                    Int num_edges, ffi::Result<Ints> nodes, ffi::Result<Int> count,
                    ffi::Result<Ints> indices, int64_t padding, int64_t num_threads) {
  const auto within = [](Int some, Ints all) {
    return std::clamp<int64_t>(*some.typed_data(), 0, all.element_count());
  };
  if (indices->element_count() != neighbors.element_count()) {
    return "jgs_relabel: the buffers must have matching shapes";
  }
  const EdgeList edges{targets.typed_data(), within(num_targets, targets),
                       neighbors.typed_data(), within(num_edges, neighbors)};
  Sources sources{Size(*nodes),
                  Size(*indices),
                  static_cast<int32_t>(padding),
                  nodes->typed_data(),
                  indices->typed_data(),
                  0};
  const std::string error = RelabelEdges(edges, sources, PoolExecutor(pool, num_threads));
  *count->typed_data() = static_cast<int32_t>(sources.count);
  return error;
}

}  // namespace

JGS_HANDLER(JgsRelabel, Relabel, "padding", "num_threads");

}  // namespace jgs
