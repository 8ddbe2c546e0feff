// The XLA bindings of table_rows.h: they turn buffers into plain arguments.
#include "table_rows.h"

#include <algorithm>

#include "ffi.h"

namespace jgs {
namespace {

std::string EqualRowsFfi(ffi::ThreadPool pool, Ints ids, Matrix rows, Ints slots,
                         ffi::Result<Ints> touched, ffi::Result<Matrix> total,
                         ffi::Result<Int> num, ffi::Result<Ints> changed, int64_t num_threads) {
  const int64_t num_slots = Size(slots);
  const EqualRows equal{rows.dimensions()[0], rows.dimensions()[1], num_slots,
                        total->dimensions()[0], ids.typed_data(), rows.typed_data()};
  const bool good = Size(ids) == equal.num_rows &&
                    touched->dimensions()[0] == equal.capacity &&
                    total->dimensions()[1] == equal.width &&
                    equal.capacity >= equal.num_rows &&
                    changed->dimensions() == slots.dimensions();
  if (!good) return kShapes;
  int32_t* const own = changed->typed_data();
  if (own != slots.typed_data()) std::copy_n(slots.typed_data(), num_slots, own);
  *num->typed_data() = AddEqualRows(PoolExecutor(pool, num_threads), equal, own,
                                    touched->typed_data(), total->typed_data());
  return "";
}

std::string PutRowsFfi(ffi::ThreadPool pool, Matrix table, Ints ids, Matrix rows,
                       ffi::Result<Matrix> changed, int64_t num_threads) {
  const int64_t num_slots = table.dimensions()[0], width = table.dimensions()[1];
  const int64_t count = Size(ids);
  const bool good = rows.dimensions()[0] == count && rows.dimensions()[1] == width &&
                    changed->dimensions() == table.dimensions();
  if (!good) return kShapes;
  float* const own = changed->typed_data();
  if (own != table.typed_data()) std::copy_n(table.typed_data(), num_slots * width, own);
  PutRows(PoolExecutor(pool, num_threads), rows.typed_data(), ids.typed_data(), count, width,
          own, num_slots);
  return "";
}

}  // namespace

JGS_HANDLER(JgsEqualRows, EqualRowsFfi, "num_threads");
JGS_HANDLER(JgsPutRows, PutRowsFfi, "num_threads");

}  // namespace jgs
