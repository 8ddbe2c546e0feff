// The XLA binding of SampleFrontiers. Its Python side is
// jgs/sampling/algorithms/subgraphs/frontier.py.
#include <cmath>
#include <cstdint>
#include <string>

#include "ffi.h"
#include "frontier.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

ffi::Error Frontier(ffi::ThreadPool pool, ffi::BufferR2<ffi::U32> keys,
                    ffi::BufferR1<ffi::S64> indptr, ffi::BufferR1<ffi::S32> indices,
                    ffi::ResultBufferR2<ffi::S32> nodes, ffi::ResultBufferR1<ffi::S32> counts,
                    int64_t size, int64_t pops, int64_t degree_cap, double enlargement,
                    int64_t num_threads) {
  return Guarded([&]() -> std::string {
    GraphView graph{};
    graph.indptr = indptr.typed_data();
    graph.num_nodes = static_cast<int64_t>(indptr.element_count()) - 1;
    graph.indices = indices.typed_data();
    graph.num_edges = static_cast<int64_t>(indices.element_count());
    const int64_t num_subgraphs = keys.dimensions()[0], room = nodes->dimensions()[1];
    if (graph.num_nodes < 1 || keys.dimensions()[1] != 2 ||
        nodes->dimensions()[0] != num_subgraphs ||
        static_cast<int64_t>(counts->element_count()) != num_subgraphs ||
        !(std::abs(enlargement) < 4294967296.0)) {
      return "jgs_frontier: arguments do not have the expected sizes";
    }
    const FrontierOptions options{size, pops, degree_cap, std::llround(enlargement * 1024)};
    const std::string error = CheckFrontier(options);
    if (!error.empty()) return error;
    return SampleFrontiers(graph, keys.typed_data(), num_subgraphs, options, room,
                           nodes->typed_data(), counts->typed_data(),
                           PoolExecutor(pool, num_threads));
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsFrontier, jgs::Frontier,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::BufferR2<ffi::U32>>()  // keys
                                  .Arg<ffi::BufferR1<ffi::S64>>()  // indptr
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // indices
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // nodes
                                  .Ret<ffi::BufferR1<ffi::S32>>()  // counts
                                  .Attr<int64_t>("size")
                                  .Attr<int64_t>("pops")
                                  .Attr<int64_t>("degree_cap")
                                  .Attr<double>("enlargement")
                                  .Attr<int64_t>("num_threads"));
