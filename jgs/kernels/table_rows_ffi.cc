// The XLA bindings of table_rows.h: they turn buffers into plain arguments.
#include "table_rows.h"

#include <algorithm>

#include "ffi.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

using Ints = ffi::Buffer<ffi::S32, 1>;
using Rows = ffi::Buffer<ffi::F32, 2>;
using Count = ffi::BufferR0<ffi::S32>;

ffi::Error EqualRowsFfi(ffi::ThreadPool pool, Ints ids, Rows rows, Ints slots,
                        ffi::Result<Ints> touched, ffi::Result<Rows> total,
                        ffi::Result<Count> num, ffi::Result<Ints> changed,
                        int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_slots = static_cast<int64_t>(slots.element_count());
    const EqualRows equal{rows.dimensions()[0], rows.dimensions()[1], num_slots,
                          total->dimensions()[0], ids.typed_data(), rows.typed_data()};
    const bool good = static_cast<int64_t>(ids.element_count()) == equal.num_rows &&
                      touched->dimensions()[0] == equal.capacity &&
                      total->dimensions()[1] == equal.width &&
                      equal.capacity >= equal.num_rows &&
                      changed->dimensions() == slots.dimensions();
    if (!good) return "jgs: the buffers of a kernel must have matching shapes";
    int32_t* const own = changed->typed_data();
    if (own != slots.typed_data()) std::copy_n(slots.typed_data(), num_slots, own);
    *num->typed_data() = AddEqualRows(PoolExecutor(pool, num_threads), equal, own,
                                      touched->typed_data(), total->typed_data());
    return "";
  });
}

ffi::Error PutRowsFfi(ffi::ThreadPool pool, Rows table, Ints ids, Rows rows,
                      ffi::Result<Rows> changed, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_slots = table.dimensions()[0], width = table.dimensions()[1];
    const int64_t count = static_cast<int64_t>(ids.element_count());
    const bool good = rows.dimensions()[0] == count && rows.dimensions()[1] == width &&
                      changed->dimensions() == table.dimensions();
    if (!good) return "jgs: the buffers of a kernel must have matching shapes";
    float* const own = changed->typed_data();
    if (own != table.typed_data()) std::copy_n(table.typed_data(), num_slots * width, own);
    PutRows(PoolExecutor(pool, num_threads), rows.typed_data(), ids.typed_data(), count, width,
            own, num_slots);
    return "";
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsEqualRows, jgs::EqualRowsFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Rows>()
                                  .Arg<jgs::Ints>()
                                  .Ret<jgs::Ints>()
                                  .Ret<jgs::Rows>()
                                  .Ret<jgs::Count>()
                                  .Ret<jgs::Ints>()
                                  .Attr<int64_t>("num_threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsPutRows, jgs::PutRowsFfi,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jgs::Rows>()
                                  .Arg<jgs::Ints>()
                                  .Arg<jgs::Rows>()
                                  .Ret<jgs::Rows>()
                                  .Attr<int64_t>("num_threads"));
