// The XLA binding of RelabelEdges. Its Python side is jgs/sampling/edges/relabel.py.
#include <algorithm>
#include <string>

#include "ffi.h"
#include "relabel_edges.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Buffer<ffi::S32, 1>;
using Scalar = ffi::BufferR0<ffi::S32>;

ffi::Error Relabel(ffi::ThreadPool pool, Ints targets, Scalar num_targets, Ints neighbors,
                   Scalar num_edges, ffi::Result<Ints> nodes, ffi::Result<Scalar> count,
                   ffi::Result<Ints> indices, int64_t padding, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const auto within = [](Scalar some, Ints all) {
      return std::clamp<int64_t>(*some.typed_data(), 0, all.element_count());
    };
    if (indices->element_count() != neighbors.element_count()) {
      return "jgs_relabel: the buffers must have matching shapes";
    }
    const EdgeList edges{targets.typed_data(), within(num_targets, targets),
                         neighbors.typed_data(), within(num_edges, neighbors)};
    Sources sources{static_cast<int64_t>(nodes->element_count()),
                    static_cast<int64_t>(indices->element_count()),
                    static_cast<int32_t>(padding),
                    nodes->typed_data(),
                    indices->typed_data(),
                    0};
    const std::string error = RelabelEdges(edges, sources, PoolExecutor(pool, num_threads));
    *count->typed_data() = static_cast<int32_t>(sources.count);
    return error;
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsRelabel, jgs::Relabel,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<jgs::Ints>()    // targets
                                  .Arg<jgs::Scalar>()  // num_targets
                                  .Arg<jgs::Ints>()    // neighbors
                                  .Arg<jgs::Scalar>()  // num_edges
                                  .Ret<jgs::Ints>()    // nodes
                                  .Ret<jgs::Scalar>()  // count
                                  .Ret<jgs::Ints>()    // indices
                                  .Attr<int64_t>("padding")
                                  .Attr<int64_t>("num_threads"));
