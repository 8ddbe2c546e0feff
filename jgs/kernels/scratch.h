// Memory that a call needs and the next one uses again. It is uninitialised, and on huge pages
// if the system provides them.
#ifndef JGS_KERNELS_SCRATCH_H_
#define JGS_KERNELS_SCRATCH_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "huge_pages.h"

namespace jgs {

template <typename T>
class Scratch {
  static_assert(std::is_trivially_copyable<T>::value, "holds plain data");

 public:
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

  // Makes room for `size` elements. Contents are kept only if there was room already.
  void Reserve(int64_t size) {
    if (size <= size_) return;
    size_t bytes = static_cast<size_t>(size + size / 8) * sizeof(T);
    bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = std::aligned_alloc(bytes >= 2 * kHugePage ? kHugePage : 64, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    AdviseHugePages(memory, bytes);
    data_.reset(static_cast<T*>(memory));
    size_ = static_cast<int64_t>(bytes / sizeof(T));
  }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> data_;
  int64_t size_ = 0;
};

}  // namespace jgs

#endif  // JGS_KERNELS_SCRATCH_H_
