// What the bindings of aggregate.h and gather.h share: buffers, and blocks made of them.
#ifndef JGS_KERNELS_AGGREGATE_FFI_H_
#define JGS_KERNELS_AGGREGATE_FFI_H_

#include <string>

#include "aggregate.h"
#include "ffi.h"

namespace jgs {

using Matrix = xla::ffi::Buffer<xla::ffi::F32, 2>;
using EdgeMatrix = xla::ffi::Buffer<xla::ffi::S32, 2>;  // edge positions
using Ints = xla::ffi::Buffer<xla::ffi::S32, 1>;
using Longs = xla::ffi::Buffer<xla::ffi::S64, 1>;
using Floats = xla::ffi::Buffer<xla::ffi::F32, 1>;
using Count = xla::ffi::BufferR0<xla::ffi::S32>;

inline BlockView View(const Ints& indptr, const Ints& indices, const Count& num_targets,
                      const Count& num_edges, int64_t num_rows) {
  BlockView block;
  block.indptr = indptr.typed_data();
  block.indices = indices.typed_data();
  block.target_capacity = static_cast<int64_t>(indptr.element_count()) - 1;
  block.edge_capacity = static_cast<int64_t>(indices.element_count());
  block.num_rows = num_rows;
  block.num_targets = *num_targets.typed_data();
  block.num_edges = *num_edges.typed_data();
  return block;
}

// A block without weights has a `weight` of length 0, and one with several heads num_heads for
// each edge.
inline BlockView View(const Floats& weight, const Ints& indptr, const Ints& indices,
                      const Count& num_targets, const Count& num_edges, int64_t num_rows) {
  BlockView block = View(indptr, indices, num_targets, num_edges, num_rows);
  block.weight = weight.element_count() > 0 ? weight.typed_data() : nullptr;
  if (block.weight != nullptr && block.edge_capacity > 0) {
    block.num_heads = static_cast<int64_t>(weight.element_count()) / block.edge_capacity;
  }
  return block;
}

template <typename Buffer>
bool HasShape(Buffer& buffer, int64_t rows, int64_t columns) {
  return buffer.dimensions()[0] == rows && buffer.dimensions()[1] == columns;
}

// Only a mistake in jgs/ops can cause this error.
constexpr char kShapes[] = "jgs: the buffers of a kernel must have matching shapes";

inline std::string CheckShapes(const BlockView& block, const Floats& weight, bool others) {
  const int64_t weights = static_cast<int64_t>(weight.element_count());
  const bool good = others && block.target_capacity >= 0 && block.num_heads > 0 &&
                    (weights == 0 || weights == block.edge_capacity * block.num_heads);
  return good ? "" : kShapes;
}

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_FFI_H_
