// XLA binding of skipgram.h: buffers to plain arguments, and nothing else.
#include "skipgram.h"

#include "ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

using Rows = ffi::Buffer<ffi::F32, 3>;
using Places = ffi::Buffer<ffi::S32, 2>;
using Sums = ffi::Buffer<ffi::F32, 2>;

ffi::Error SkipgramFfi(ffi::ThreadPool pool, Rows rows, Rows negatives, Places nodes,
                       Places windows, ffi::Result<Rows> grad_rows,
                       ffi::Result<Rows> grad_negatives, ffi::Result<Sums> sums,
                       int64_t num_nodes, float weight, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    WalkPairs pairs;
    pairs.num_walks = nodes.dimensions()[0];
    pairs.num_places = nodes.dimensions()[1];
    pairs.num_negatives = negatives.dimensions()[1];
    pairs.width = rows.dimensions()[2] / 2 - 1;
    pairs.num_nodes = static_cast<int32_t>(num_nodes);
    pairs.weight = weight;
    const auto shaped = [](const auto& a, const auto& b) {
      return a.dimensions() == b.dimensions();
    };
    const bool good = shaped(nodes, windows) && shaped(rows, *grad_rows) &&
                      shaped(negatives, *grad_negatives) && pairs.num_negatives > 0 &&
                      pairs.num_places > 0 && pairs.width > 0 &&
                      rows.dimensions()[0] == pairs.num_walks &&
                      rows.dimensions()[1] == pairs.num_places &&
                      negatives.dimensions()[0] == pairs.num_walks &&
                      negatives.dimensions()[2] == rows.dimensions()[2];
    if (!good) return "jgs: the buffers of a kernel must have matching shapes";
    pairs.nodes = nodes.typed_data();
    pairs.windows = windows.typed_data();
    pairs.rows = rows.typed_data();
    pairs.negatives = negatives.typed_data();
    Skipgram(PoolExecutor(pool, num_threads), pairs, grad_rows->typed_data(),
             grad_negatives->typed_data(), sums->typed_data());
    return "";
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsSkipgram, jgs::SkipgramFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Rows>()
                                  .Arg<jgs::Rows>()
                                  .Arg<jgs::Places>()
                                  .Arg<jgs::Places>()
                                  .Ret<jgs::Rows>()
                                  .Ret<jgs::Rows>()
                                  .Ret<jgs::Sums>()
                                  .Attr<int64_t>("num_nodes")
                                  .Attr<float>("weight")
                                  .Attr<int64_t>("num_threads"));
