// What the bindings of aggregate.h and gather.h share: blocks made of buffers.
#ifndef JGS_KERNELS_AGGREGATE_FFI_H_
#define JGS_KERNELS_AGGREGATE_FFI_H_

#include <algorithm>
#include <limits>
#include <string>

#include "aggregate.h"
#include "ffi.h"

namespace jgs {

// The rows of a block, for kernels that need no indices.
inline BlockView ViewRows(const Ints& indptr, const Int& num_targets, const Int& num_edges,
                          int64_t edge_capacity) {
  BlockView block;
  block.indptr = indptr.typed_data();
  block.target_capacity = Size(indptr) - 1;
  block.edge_capacity = edge_capacity;
  block.num_targets = *num_targets.typed_data();
  block.num_edges = *num_edges.typed_data();
  return block;
}

inline BlockView View(const Ints& indptr, const Ints& indices, const Int& num_targets,
                      const Int& num_edges, int64_t num_rows) {
  BlockView block = ViewRows(indptr, num_targets, num_edges, Size(indices));
  block.indices = indices.typed_data();
  block.num_rows = num_rows;
  return block;
}

// A block without weights has a `weight` of length 0, and one with several heads num_heads for
// each edge.
inline BlockView View(const Floats& weight, const Ints& indptr, const Ints& indices,
                      const Int& num_targets, const Int& num_edges, int64_t num_rows) {
  BlockView block = View(indptr, indices, num_targets, num_edges, num_rows);
  block.weight = weight.element_count() > 0 ? weight.typed_data() : nullptr;
  if (block.weight != nullptr && block.edge_capacity > 0) {
    block.num_heads = Size(weight) / block.edge_capacity;
  }
  return block;
}

// Instead of a number of edges: the sample of the block has overflowed (`LOST` in
// jgs/ops/checks.py). What is aggregated over such a block is NaN.
inline bool IsLost(const BlockView& block) {
  return block.num_edges == std::numeric_limits<int32_t>::min();
}

inline std::string FillLost(ffi::Result<Matrix> out) {
  std::fill_n(out->typed_data(), out->element_count(),
              std::numeric_limits<float>::quiet_NaN());
  return "";
}

inline std::string CheckShapes(const BlockView& block, const Floats& weight, bool others) {
  const int64_t weights = Size(weight);
  const bool good = others && block.target_capacity >= 0 && block.num_heads > 0 &&
                    (weights == 0 || weights == block.edge_capacity * block.num_heads);
  return good ? "" : kShapes;
}

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_FFI_H_
