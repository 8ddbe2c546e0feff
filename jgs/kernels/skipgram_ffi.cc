// The XLA binding of skipgram.h: it turns buffers into plain arguments.
#include "skipgram.h"

#include "ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

using Rows = ffi::Buffer<ffi::F32, 2>;
using Places = ffi::Buffer<ffi::S32, 2>;
using Scalar = ffi::BufferR0<ffi::F32>;

ffi::Error SkipgramFfi(ffi::ThreadPool pool, Rows rows, Places nodes, Places windows,
                       Scalar rate, ffi::Result<Rows> gradient, ffi::Result<Rows> sums,
                       int64_t num_runs, int64_t num_nodes, float weight,
                       int64_t num_threads) {
  return Guarded([&]() -> std::string {
    WalkPairs p;
    p.num_walks = nodes.dimensions()[0];
    p.num_places = nodes.dimensions()[1];
    p.num_runs = num_runs;
    const int64_t others = rows.dimensions()[0] - 2 * p.num_walks * p.num_places;
    p.num_negatives = p.num_walks > 0 && num_runs > 0 ? others / (p.num_walks * num_runs) : 0;
    p.width = rows.dimensions()[1] - 1;
    p.num_nodes = static_cast<int32_t>(num_nodes);
    p.weight = weight;
    p.rate = *rate.typed_data();
    const bool good = nodes.dimensions() == windows.dimensions() &&
                      rows.dimensions() == gradient->dimensions() && p.num_places > 0 &&
                      p.width > 0 && p.num_negatives > 0 &&
                      others == p.num_walks * num_runs * p.num_negatives &&
                      sums->dimensions()[0] == p.num_walks && sums->dimensions()[1] == 2;
    if (!good) return "jgs: the buffers of a kernel must have matching shapes";
    p.nodes = nodes.typed_data();
    p.windows = windows.typed_data();
    p.rows = rows.typed_data();
    Skipgram(PoolExecutor(pool, num_threads), p, gradient->typed_data(), sums->typed_data());
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
                                  .Arg<jgs::Places>()
                                  .Arg<jgs::Places>()
                                  .Arg<jgs::Scalar>()
                                  .Ret<jgs::Rows>()
                                  .Ret<jgs::Rows>()
                                  .Attr<int64_t>("num_runs")
                                  .Attr<int64_t>("num_nodes")
                                  .Attr<float>("weight")
                                  .Attr<int64_t>("num_threads"));
