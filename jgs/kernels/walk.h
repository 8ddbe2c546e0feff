// Random walks, many at a time. jgs/sampling/walks.py and the walkers in
// jgs/sampling/algorithms/ define the results; this is faster and equal bit for bit.
#ifndef JGS_KERNELS_WALK_H_
#define JGS_KERNELS_WALK_H_

#include <cstdint>
#include <string>

#include "parallel.h"
#include "sample.h"
#include "threefry.h"

namespace jgs {

// A limit L stands for the probability L / 2**32, that of a random 32-bit word below L.
struct SecondOrder {
  uint64_t back, near, far;  // limits for accepting a candidate, depending on where it is
  // Whether steps back are drawn separately. If so, the next two are the factors of the weight
  // of a step back and of the weight of the others, at most 2**31.
  bool apart;
  uint64_t area_back, area_on;
};

// The row of a node: where it begins times 2**24 plus its number of edges, in which kMany stands
// for as many or more; and the time of its latest edge. They lie in one line of memory. Entry
// `num_nodes` begins where the last row ends. See VisitState in jgs/sampling/contexts/visits.py.
struct RowTime {
  static constexpr int kCountBits = 24;
  static constexpr int64_t kMany = (int64_t{1} << kCountBits) - 1;

  int64_t packed, latest;

  int64_t start() const { return packed >> kCountBits; }
  int64_t count() const { return packed & kMany; }
};

struct WalkOptions {
  int64_t length;
  uint64_t restart, stop;      // limits
  // The parts of rows that steps draw from, [.., num_nodes, 2]: for each relation and node the
  // first of its edges, and their number. Null: steps draw from whole rows.
  const int64_t* stretches;
  const int64_t* relations;    // each step's index in `stretches`, repeated for longer walks
  int64_t num_relations;
  const SecondOrder* second;   // null: a step depends only on where the walk is
  int64_t latest;              // steps draw from so many latest edges; -1: from all
  Limits limits;
  // Whether a step's cutoff is the time of the edge before. Roots have cutoffs then.
  bool causal = false;
  Recency recency = {};        // if steps draw by recency; roots have cutoffs then
  // [num_edges] for steps of second order: BySource in
  // jgs/sampling/algorithms/node2vec.py. Null: rows are sorted by source.
  const int64_t* by_source = nullptr;
  const int64_t* weight_by_source = nullptr;  // [num_edges], or null
  // If rows are sorted by relation first, and there are cutoffs; otherwise without `indptr`.
  RelationIndex index = {};
  const RowTime* rows = nullptr;  // [num_nodes + 1] where there are cutoffs and no window, or null
};

// Walks from the seeds (num_nodes for padding), by weight if the graph has
// weight_prefix: nodes [num_roots, length + 1] and lengths [num_roots]. Returns what is wrong
// with the input, or "".
std::string SampleWalks(const GraphView& graph, Key key, const Seeds& seeds,
                        const WalkOptions& options, int32_t* nodes, int32_t* lengths,
                        const Executor& executor);

}  // namespace jgs

#endif  // JGS_KERNELS_WALK_H_
