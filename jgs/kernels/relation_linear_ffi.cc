// XLA bindings of relation_linear.h. Their Python side is jgs/ops/relation_runs.py.
#include <algorithm>
#include <string>

#include "aggregate_ffi.h"
#include "relation_linear.h"

namespace jgs {
namespace {

using Weights = ffi::Buffer<ffi::F32, 4>;  // [relations, blocks, in, out]

// False if the buffers have no tiles of one size, or do not fit the matrices.
bool Describe(const Int& num_rows, const Ints& relation, const Matrix& x, const Matrix& y,
              const Weights& w, Tiles& tiles) {
  const int64_t capacity = x.dimensions()[0], num = relation.element_count();
  tiles.relation = relation.typed_data();
  tiles.capacity = capacity;
  tiles.tile = num > 0 ? capacity / num : 1;
  tiles.num_rows = std::clamp<int64_t>(*num_rows.typed_data(), 0, capacity);
  tiles.num_relations = w.dimensions()[0];
  tiles.num_blocks = w.dimensions()[1];
  tiles.in = w.dimensions()[2];
  tiles.out = w.dimensions()[3];
  return tiles.tile > 0 && tiles.tile * num == capacity &&
         HasShape(x, capacity, tiles.num_blocks * tiles.in) &&
         HasShape(y, capacity, tiles.num_blocks * tiles.out);
}

std::string RelationLinearFfi(ffi::ThreadPool pool, Int num_rows, Ints relation, Matrix x,
                              Weights w, ffi::Result<Matrix> y, int64_t num_threads) {
  Tiles tiles;
  if (!Describe(num_rows, relation, x, *y, w, tiles)) return kShapes;
  if (std::string error = CheckTiles(tiles); !error.empty()) return error;
  AdviseHugePages(y);
  RelationLinear(PoolExecutor(pool, num_threads), tiles, x.typed_data(), w.typed_data(),
                 y->typed_data());
  return "";
}

std::string RelationLinearGradFfi(ffi::ThreadPool pool, Int num_rows, Ints relation, Matrix x,
                                  Matrix grad, ffi::Result<Weights> grad_w,
                                  int64_t num_threads) {
  Tiles tiles;
  if (!Describe(num_rows, relation, x, grad, *grad_w, tiles)) return kShapes;
  if (std::string error = CheckTiles(tiles); !error.empty()) return error;
  RelationLinearGrad(PoolExecutor(pool, num_threads), tiles, x.typed_data(),
                     grad.typed_data(), grad_w->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsRelationLinear, RelationLinearFfi, "num_threads");
JGS_HANDLER(JgsRelationLinearGrad, RelationLinearGradFfi, "num_threads");

}  // namespace jgs
