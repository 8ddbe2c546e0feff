// Products of rows with a matrix of each tile's relation, and their derivative by the matrices.
#ifndef JGS_KERNELS_RELATION_LINEAR_H_
#define JGS_KERNELS_RELATION_LINEAR_H_

#include <cstdint>
#include <string>

#include "parallel.h"

namespace jgs {

// Rows in tiles of one relation each; the relations of the tiles ascend. A matrix is block
// diagonal: num_blocks blocks [in, out], so that x has num_blocks * in columns.
struct Tiles {
  const int32_t* relation;  // [capacity / tile]
  int64_t tile, capacity;
  int64_t num_rows;  // rows from here on are padding
  int64_t num_relations, num_blocks, in, out;
};

// The rule that the tiles break, or "".
std::string CheckTiles(const Tiles& tiles);

// y[i] = x[i] w[relation of i's tile], and 0 in padding. x: [capacity, num_blocks * in]; w:
// [num_relations, num_blocks, in, out]; y: [capacity, num_blocks * out].
void RelationLinear(const Executor& executor, const Tiles& tiles, const float* x,
                    const float* w, float* y);

// grad_w, from x and the gradient of y. The division of the rows depends on the tiles alone,
// and so does every sum.
void RelationLinearGrad(const Executor& executor, const Tiles& tiles, const float* x,
                        const float* grad, float* grad_w);

}  // namespace jgs

#endif  // JGS_KERNELS_RELATION_LINEAR_H_
