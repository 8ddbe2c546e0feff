// The launcher of NVIDIA GPUs: see steps.h. Only device_ffi.cu includes this.
#ifndef JGS_KERNELS_CUDA_LAUNCHER_H_
#define JGS_KERNELS_CUDA_LAUNCHER_H_

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "steps.h"
#include "xla/ffi/api/ffi.h"

namespace jgs {

constexpr int kBlockThreads = 256;

template <typename Step>
__global__ void __launch_bounds__(kBlockThreads) RunSteps(Step step, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < n;
       i += stride) {
    step(i);
  }
}

struct NumberStep {
  int32_t* numbers;
  JGS_BOTH void operator()(int64_t i) const { numbers[i] = static_cast<int32_t>(i); }
};

// Loops on a stream of XLA, with scratch of XLA's allocator.
class Launcher {
 public:
  Launcher(cudaStream_t stream, xla::ffi::ScratchAllocator scratch)
      : stream_(stream), scratch_(std::move(scratch)) {}

  template <typename Step>
  void For(int64_t n, const Step& step) {
    if (n <= 0) return;
    const int64_t blocks = std::min<int64_t>((n + kBlockThreads - 1) / kBlockThreads, 1 << 20);
    RunSteps<<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream_>>>(step, n);
    Check(cudaGetLastError());
  }

  template <typename T>
  T* Take(int64_t n) {
    const std::optional<void*> room = scratch_.Allocate(std::max<int64_t>(n, 1) * sizeof(T));
    if (!room.has_value()) throw std::bad_alloc();
    return static_cast<T*>(*room);
  }

  template <typename T>
  void Scan(T* values, int64_t n) {
    if (n <= 0) return;
    WithRoom([&](void* room, size_t& size) {
      return cub::DeviceScan::InclusiveSum(room, size, values, values, n, stream_);
    });
  }

  const int32_t* Sort(int32_t* keys, int64_t n, int32_t most) {
    auto* order = Take<int32_t>(n);
    auto *other_keys = Take<int32_t>(n), *other_order = Take<int32_t>(n);
    if (n <= 0) return order;
    For(n, NumberStep{order});
    int bits = 1;
    while (bits < 31 && most >> bits != 0) ++bits;
    WithRoom([&](void* room, size_t& size) {
      return cub::DeviceRadixSort::SortPairs(room, size, keys, other_keys, order, other_order,
                                             n, 0, bits, stream_);
    });
    Check(cudaMemcpyAsync(keys, other_keys, n * sizeof(int32_t), cudaMemcpyDeviceToDevice,
                          stream_));
    return other_order;
  }

 private:
  // Calls one of CUB's functions with the room that it asks for.
  template <typename Call>
  void WithRoom(const Call& call) {
    size_t size = 0;
    Check(call(nullptr, size));
    Check(call(Take<char>(static_cast<int64_t>(size)), size));
  }

  static void Check(cudaError_t error) {
    if (error != cudaSuccess) {
      throw std::runtime_error(std::string("jgs: CUDA says: ") + cudaGetErrorString(error));
    }
  }

  cudaStream_t stream_;
  xla::ffi::ScratchAllocator scratch_;
};

}  // namespace jgs

// A handler may have a Launcher as a parameter.
template <>
struct xla::ffi::CtxDecoding<jgs::Launcher> {
  using Type = jgs::Launcher;

  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    auto stream = CtxDecoding<PlatformStream<cudaStream_t>>::Decode(api, context, diagnostic);
    auto scratch = CtxDecoding<ScratchAllocator>::Decode(api, context, diagnostic);
    if (!stream.has_value() || !scratch.has_value()) return std::nullopt;
    return jgs::Launcher(*stream, *std::move(scratch));
  }
};

#endif  // JGS_KERNELS_CUDA_LAUNCHER_H_
