// What code is written in that runs on a host and on a GPU: steps, and the launchers that run
// them.
//
// A step is a functor, `void operator()(int64_t i) const`, marked JGS_BOTH. A launcher has
//   void For(int64_t n, const Step& step): calls step(i) for each i in [0, n), in any order and
//     several at once. The next loop begins when all have returned;
//   T* Take<T>(int64_t n): n numbers of scratch, which live as long as the launcher;
//   void Scan(T* values, int64_t n): makes each of the values the sum of those up to it;
//   const int32_t* Sort(int32_t* keys, int64_t n, int32_t most): sorts keys in [0, most], and
//     returns where each was before. Equal keys keep their order.
// Within a loop, a step writes what no other step of the loop reads or writes, or calls the
// functions below, whose outcome does not depend on the order. So results do not either.
#ifndef JGS_KERNELS_STEPS_H_
#define JGS_KERNELS_STEPS_H_

#include <cstdint>

#if defined(__CUDACC__)
#define JGS_BOTH __host__ __device__
#else
#define JGS_BOTH
#endif
#define JGS_ALWAYS __attribute__((always_inline))

namespace jgs {

// *at = min(*at, value), or max, while others do the same.
JGS_BOTH inline void AtomicMin(int32_t* at, int32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(at, value);
#else
  int32_t now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < now && !__atomic_compare_exchange_n(at, &now, value, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
#endif
}

JGS_BOTH inline void AtomicMax(int32_t* at, int32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMax(at, value);
#else
  int32_t now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value > now && !__atomic_compare_exchange_n(at, &now, value, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
#endif
}

// Puts `value` where `free` was. Returns what was there.
JGS_BOTH inline int32_t AtomicPut(int32_t* at, int32_t free, int32_t value) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(at, free, value);
#else
  __atomic_compare_exchange_n(at, &free, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return free;
#endif
}

template <typename T>
JGS_BOTH inline T Clamp(T value, T least, T most) {
  return value < least ? least : value > most ? most : value;
}

// The first of the `num` ascending values that is greater than `value`, or `num`.
template <typename T>
JGS_BOTH inline int64_t FirstAbove(const T* values, int64_t num, int64_t value) {
  int64_t low = 0, high = num;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (values[middle] > value) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace jgs

#endif  // JGS_KERNELS_STEPS_H_
