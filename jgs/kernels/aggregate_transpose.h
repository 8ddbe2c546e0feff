// The edges of a block by source, which the derivative of a sum reads.
#ifndef JGS_KERNELS_AGGREGATE_TRANSPOSE_H_
#define JGS_KERNELS_AGGREGATE_TRANSPOSE_H_

#include "aggregate_rows.h"

namespace jgs {

class Transpose {
 public:
  // Row s has the edges out of source s, in edge order. Each edge reads its target's row of a
  // gradient, times the edge's weights, divided by the target's degree if `mean`. It is a
  // counting sort with the same order for any number of threads. Its memory belongs to the
  // thread and is valid until the thread's next Transpose.
  Transpose(const Executor& executor, const BlockView& block, bool mean);

  EdgeRows Rows() const { return rows_; }

 private:
  void Fill(const BlockView& block, bool mean, int64_t begin, int64_t end, int32_t* next,
            int32_t* target, float* coefficient);

  EdgeRows rows_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_AGGREGATE_TRANSPOSE_H_
