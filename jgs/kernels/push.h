// Personalised PageRank by push, for many seeds. jgs/sampling/contexts/pagerank.py defines the
// results; this is faster and equal bit for bit.
#ifndef JGS_KERNELS_PUSH_H_
#define JGS_KERNELS_PUSH_H_

#include <cstdint>
#include <string>

#include "eligible.h"
#include "parallel.h"
#include "sample.h"

namespace jgs {

struct PushOptions {
  int64_t restart;           // the part of a mass that stops, times 2^31
  int64_t least;             // a node pushes from so much mass for each of its edges on; positive
  const int16_t* edge_type;  // [num_edges], rows ascending; null if rows are not read by type
  const int64_t* weight;     // [num_weights] of each type, below 2^16; none: all weigh 1
  int64_t num_weights;
  Limits limits;
};

// The contexts of the seeds, each [num_seeds, size].
struct PushedContexts {
  int64_t size;
  int32_t *nodes, *hop, *parent;
  int64_t *edge, *score;
};

// Finds the contexts of `seeds` (num_nodes for padding). Returns what is wrong with the input,
// or "". Each thread needs up to 350 bytes for every node that its largest search reaches.
std::string PushContexts(const GraphView& graph, const Seeds& seeds, const PushOptions& options,
                         const PushedContexts& contexts, const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_PUSH_H_
