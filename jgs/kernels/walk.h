// Random walks, many at a time. The meaning is jgs/sampling/walks.py and the walkers in
// jgs/sampling/algorithms/; this is their speed, equal bit for bit.
#ifndef JGS_KERNELS_WALK_H_
#define JGS_KERNELS_WALK_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"
#include "threefry.h"

namespace jgs {

// Limits are numbers that a random 32-bit word is below, up to 2**32 for certain.
struct SecondOrder {
  uint64_t back, near, far;  // with which a candidate is accepted, by where it is
  // Whether steps back are drawn apart; then in which proportion to the others, a unit of
  // weight each, up to 2**31.
  bool apart;
  uint64_t area_back, area_on;
};

struct WalkOptions {
  int64_t length;
  uint64_t restart, stop;      // limits
  // The parts of rows that steps draw from, [.., num_nodes, 2]: of each relation and node the
  // first of its edges, and how many there are. Null: they draw from whole rows.
  const int64_t* stretches;
  const int64_t* relations;    // of the steps, over and over: which of these
  int64_t num_relations;
  const SecondOrder* second;   // null: a step depends on where the walk is alone
};

// Walks from `roots` ([num_roots], num_nodes for padding) by weight if the graph has
// weight_prefix: nodes [num_roots, length + 1] and lengths [num_roots]. Returns what is wrong
// with the input, or "".
std::string SampleWalks(const GraphView& graph, Key key, const int32_t* roots, int64_t num_roots,
                        const WalkOptions& options, int32_t* nodes, int32_t* lengths,
                        const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_WALK_H_
