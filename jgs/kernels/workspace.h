// The memory that sampling keeps between calls.
#ifndef JGS_KERNELS_WORKSPACE_H_
#define JGS_KERNELS_WORKSPACE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "eligible.h"
#include "relabel.h"
#include "scratch.h"

namespace jgs {

// What Labor stores about hubs, see labor_hubs.h.
struct HubScratch {
  std::vector<int64_t> begin;  // [hubs + 1] where each hub's edges begin among those of all
  std::vector<int32_t> first;  // the hub of each 2**shift-th edge
  std::vector<int32_t> holes;  // [hubs] the excluded edges of each; empty if there are none
  std::vector<uint64_t> limit;  // [hubs] below which a hop takes a node
  std::vector<int32_t> taken;   // the edges that a hop takes
  std::vector<int64_t> end;     // [hubs + 1] where each hub's end among them
};

// For every node 1 / pi, and the least rate of its targets in this round. While nobody uses them
// they are 1 and infinity.
struct Rarities {
  std::vector<float> rarity, least;
};

// What Labor stores about a hop.
struct LaborScratch {
  struct Chunk {
    // The positions that its rows drew, one row after the other, none for rows taken whole; and
    // one over their probabilities, if these are wanted.
    std::vector<int32_t> position;
    std::vector<float> inverse;
  };
  std::vector<Chunk> chunks;
  // A row that draws by relation: a target's eligible edges of one relation, or of all (-1).
  struct Row {
    int64_t start, fanout, target;
    Holes holes;
    int32_t degree, relation;
  };
  std::vector<std::vector<Row>> found;  // the rows of each chunk of targets
  Scratch<Row> rows;                    // those of all chunks
  std::vector<int64_t> row_begin;       // [chunks + 1]
  Scratch<int32_t> count;  // [rows] the number of neighbours that each draws
  // If importances are those of each cutoff: the rows by cutoff, where those of each cutoff begin,
  // and where what each row drew begins. The chunks are then those of the cutoffs.
  Scratch<int64_t> by_era, first;     // [rows]
  std::vector<int64_t> era_begin;     // [eras + 1]
  Scratch<float> rate;     // [rows] 1 / c
  Scratch<uint32_t> sieve;  // a bit for every node, and a word; see Sieve
  HubScratch hubs;
  std::vector<std::unique_ptr<Rarities>> rarities;  // one for each thread that needed one
};

// What a chunk of a slice keeps about its edges.
struct KeptEdges {
  int64_t num;                   // the number of edges
  std::vector<int32_t> row;      // [num or more]
  std::vector<int64_t> edge_id;  // [num or more]
  std::vector<std::pair<int32_t, int32_t>> columns;  // a column and the number of its edges
};

// The accumulators of sums over edges, for every slot.
struct SumScratch {
  Scratch<uint8_t> largest;
  Scratch<uint32_t> count;
  Scratch<uint64_t> total;
};

// The runs that a chunk of targets draws from, one target after the other. See sample_runs.h.
struct FoundRuns {
  struct Run {
    int64_t run;     // as in RelationIndex: the first edge times 2**15, plus the relation
    int32_t length;  // the number of edges, the excluded ones too
    int32_t target;
  };
  std::vector<Run> runs;         // never shrinks, so that its memory is reused
  int64_t num = 0;
  std::vector<int32_t> skipped;  // edges of each run before its first, or empty: none
  std::vector<int64_t> before;   // for each target, the most edges that those before it draw

  void Room(int64_t more) {
    const size_t needed = static_cast<size_t>(num + more);
    if (runs.size() < needed) runs.resize(2 * needed);
  }
};

// Memory that a call needs and the next call can use again.
struct Workspace {
  Scratch<int64_t> row_start;  // [targets] first edge of each target's row or stretch of it
  Scratch<int32_t> degree;     // [targets] the number of eligible edges there
  Scratch<Holes> holes;        // [targets] the excluded edges there; only if there are Limits
  Scratch<int32_t> era;        // [targets] the number of its cutoff; only if there are cutoffs
  std::vector<int64_t> cutoffs;  // [eras] ascending
  std::vector<int64_t> bound;  // [chunks + 1] where each chunk's sample begins at the latest
  std::vector<int64_t> begin;  // [chunks + 1] where each chunk's sample begins
  RelabelerOf<int32_t> relabeler;
  RelabelerOf<int64_t> wide_relabeler;
  LaborScratch labor;
  SumScratch sums;
  std::vector<KeptEdges> kept;
  std::vector<FoundRuns> found;  // of each chunk; only in draws by relation
};

template <typename Id>
auto& RelabelerIn(Workspace& work) {
  if constexpr (sizeof(Id) == 8) {
    return work.wide_relabeler;
  } else {
    return work.relabeler;
  }
}

// Workspaces wait here between calls. There are as many as calls have ever run at the same
// time.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void Give(std::unique_ptr<Workspace> workspace) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

inline WorkspacePool& Pool() {
  static auto* pool = new WorkspacePool;  // never destroyed, because calls may outlive main
  return *pool;
}

}  // namespace jgs

#endif  // JGS_KERNELS_WORKSPACE_H_
