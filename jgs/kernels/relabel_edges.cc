#include "relabel_edges.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "workspace.h"

namespace jgs {
namespace {

constexpr int64_t kFewest = 1 << 11, kMost = 1 << 15;  // edges that a thread takes at a time
constexpr int64_t kAhead = 2 * Relabeler::kMost;       // edges ahead whose entries are prefetched

// Copies the neighbours of the edges [begin, end) and inserts them; false if one is not a node.
bool Insert(Relabeler& relabeler, const EdgeList& edges, int64_t chunk, int64_t begin,
            int64_t end, int32_t* indices, std::atomic<bool>& full) {
  int32_t lowest = 0;
  for (int64_t at = begin; at < end; at += Relabeler::kMost) {
    for (int64_t i = at + kAhead; i < std::min(at + kAhead + Relabeler::kMost, end); ++i) {
      relabeler.Prefetch(edges.neighbors[i]);
    }
    const int count = static_cast<int>(std::min<int64_t>(Relabeler::kMost, end - at));
    for (int i = 0; i < count; ++i) {
      indices[at + i] = edges.neighbors[at + i];
      lowest = std::min(lowest, indices[at + i]);
    }
    if (lowest < 0) return false;
    if (full.load(std::memory_order_relaxed)) return true;
    if (!relabeler.Insert(chunk, at, indices + at, nullptr, count)) full.store(true);
  }
  if (!relabeler.EndChunk(chunk)) full.store(true);
  return true;
}

}  // namespace

std::string RelabelEdges(const EdgeList& edges, Sources& s, const Executor& executor) {
  const char* const negative = "the targets and neighbours to relabel must be node ids";
  if (edges.num_targets > 0 &&
      *std::min_element(edges.targets, edges.targets + edges.num_targets) < 0) {
    return negative;
  }
  int64_t num_known = -1;
  std::atomic<bool> bad{false}, full{edges.num_targets > s.capacity};
  Team team(executor);
  if (!full.load()) {
    auto work = Pool().Take();
    Relabeler& relabeler = work->relabeler;
    const int64_t share = edges.num_edges / (4 * team.num_threads()) + 1;
    const int64_t size = std::clamp(share, kFewest, kMost);
    const int64_t num_chunks = (edges.num_edges + size - 1) / size;
    std::vector<int64_t> starts(num_chunks + 1);
    for (int64_t c = 0; c <= num_chunks; ++c) starts[c] = std::min(c * size, edges.num_edges);
    team.For(relabeler.Reset(s.capacity, 0, team.num_threads()),
             [&](int64_t piece) { relabeler.Clear(piece); });
    relabeler.AddTargets(edges.targets, nullptr, edges.num_targets);
    relabeler.Begin(starts, s.capacity);
    team.For(num_chunks, [&](int64_t chunk) {
      if (!Insert(relabeler, edges, chunk, starts[chunk], starts[chunk + 1], s.indices, full)) {
        bad.store(true);
      }
    });
    if (!bad.load() && !full.load()) num_known = relabeler.Number();
    if (num_known >= 0) {
      std::copy_n(edges.targets, edges.num_targets, s.nodes);
      team.For(num_chunks, [&](int64_t chunk) { relabeler.Label(chunk, s.nodes, nullptr); });
      team.For(num_chunks, [&](int64_t chunk) {
        relabeler.Resolve(s.indices + starts[chunk], starts[chunk + 1] - starts[chunk]);
      });
    }
    Pool().Give(std::move(work));
  }
  if (bad.load()) return negative;
  s.count = num_known < 0 ? s.capacity + 1 : num_known;
  std::fill(s.nodes + std::max<int64_t>(num_known, 0), s.nodes + s.capacity, s.padding);
  std::fill(s.indices + (num_known < 0 ? 0 : edges.num_edges), s.indices + s.edge_capacity,
            static_cast<int32_t>(s.capacity));
  return "";
}

}  // namespace jgs
