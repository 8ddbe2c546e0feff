// What all XLA bindings share: buffers, the pool as an Executor, and how a function becomes a
// handler.
#ifndef JGS_KERNELS_FFI_H_
#define JGS_KERNELS_FFI_H_

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "huge_pages.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace jgs {

namespace ffi = xla::ffi;

using Flags = ffi::Buffer<ffi::PRED, 1>;
using Shorts = ffi::Buffer<ffi::S16, 1>;
using Ints = ffi::Buffer<ffi::S32, 1>;
using Longs = ffi::Buffer<ffi::S64, 1>;
using Words = ffi::Buffer<ffi::U32, 1>;
using Floats = ffi::Buffer<ffi::F32, 1>;
using IntMatrix = ffi::Buffer<ffi::S32, 2>;
using Matrix = ffi::Buffer<ffi::F32, 2>;
using Int = ffi::BufferR0<ffi::S32>;  // a single number
using Long = ffi::BufferR0<ffi::S64>;
using Float = ffi::BufferR0<ffi::F32>;
using Double = ffi::BufferR0<ffi::F64>;

template <typename Buffer>
int64_t Size(const Buffer& buffer) {
  return static_cast<int64_t>(buffer.element_count());
}

template <typename Buffer>
bool HasShape(const Buffer& buffer, int64_t rows, int64_t columns) {
  return buffer.dimensions()[0] == rows && buffer.dimensions()[1] == columns;
}

// Only a mistake in a kernel's Python side can cause this error.
constexpr char kShapes[] = "jgs: the buffers of a kernel must have matching shapes";

// XLA's thread pool, limited to max_threads (0: no limit). The pool must outlive the Executor.
inline Executor PoolExecutor(ffi::ThreadPool& pool, int64_t max_threads) {
  const int64_t size = std::max<int64_t>(1, pool.num_threads());
  return {max_threads > 0 ? max_threads : size,
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

// Advises huge pages for the buffer of a result that is about to be written.
template <typename Result>
void AdviseHugePages(Result& result) {
  AdviseHugePages(result->untyped_data(), result->size_bytes());
}

// Runs `body`, which returns an error message or "", and catches every exception.
template <typename Body>
ffi::Error Guarded(const Body& body) {
  try {
    const std::string message = body();
    if (message.empty()) return ffi::Error::Success();
    return ffi::Error::InvalidArgument(message);
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "jgs: out of memory in a kernel");
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

template <typename T>
constexpr bool kIsArgument = !std::is_void_v<typename ffi::ArgBinding<T>::Arg>;
template <typename T>
constexpr bool kIsResult = !std::is_void_v<typename ffi::RetBinding<T>::Ret>;
template <typename T>
constexpr bool kIsContext = std::is_same_v<T, ffi::ThreadPool>;
template <typename T>
constexpr bool kIsAttribute =
    !(kIsArgument<T> || kIsResult<T> || kIsContext<T> ||
      std::is_same_v<T, ffi::RemainingArgs> || std::is_same_v<T, ffi::RemainingRets>);

// `binding` with one more parameter of this type. An attribute takes the next name.
template <typename Param, typename Binding>
auto With(Binding&& binding, const char* const*& names) {
  if constexpr (kIsArgument<Param>) {
    return std::move(binding).template Arg<typename ffi::ArgBinding<Param>::Arg>();
  } else if constexpr (kIsResult<Param>) {
    return std::move(binding).template Ret<typename ffi::RetBinding<Param>::Ret>();
  } else if constexpr (std::is_same_v<Param, ffi::RemainingArgs>) {
    return std::move(binding).RemainingArgs();
  } else if constexpr (std::is_same_v<Param, ffi::RemainingRets>) {
    return std::move(binding).RemainingRets();
  } else if constexpr (kIsAttribute<Param>) {
    return std::move(binding).template Attr<Param>(*names++);
  } else {
    return std::move(binding).template Ctx<Param>();
  }
}

template <typename Param, typename... Rest, typename Binding>
auto WithAll(Binding&& binding, const char* const*& names) {
  if constexpr (sizeof...(Rest) == 0) {
    return With<Param>(std::move(binding), names);
  } else {
    return WithAll<Rest...>(With<Param>(std::move(binding), names), names);
  }
}

template <auto function>
struct Handler;

// What XLA calls for a function that returns an error message or "".
template <typename... Params, std::string (*function)(Params...)>
struct Handler<function> {
  static ffi::Error Call(Params... params) {
    return Guarded([&] { return function(std::move(params)...); });
  }

  template <typename... Names>
  static auto Binding(Names... names) {
    static_assert((0 + ... + kIsAttribute<Params>) == sizeof...(Names), "name all attributes");
    const char* const all[] = {names..., nullptr};
    const char* const* next = all;
    return WithAll<Params...>(ffi::Ffi::Bind(), next);
  }
};

// Exports `function` as the handler `symbol`. The types of its parameters say what XLA passes;
// the names are those of its attributes, in order.
#define JGS_HANDLER(symbol, function, ...)                            \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(symbol, jgs::Handler<function>::Call, \
                                jgs::Handler<function>::Binding(__VA_ARGS__))

}  // namespace jgs

#endif  // JGS_KERNELS_FFI_H_
