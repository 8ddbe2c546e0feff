// The edges of a few nodes with many neighbours, by source. A hop draws every node's number
// once. The few nodes whose number is small enough for a hub then say which of its edges are
// taken, and nobody reads its row. Included by labor.cc.
#ifndef JGS_KERNELS_LABOR_HUBS_H_
#define JGS_KERNELS_LABOR_HUBS_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "labor.h"
#include "labor_scan.h"
#include "workspace.h"

namespace jgs {

// k / degree in units of 2**-64, rounded down; k is less than the degree.
inline uint64_t Fraction(int64_t k, int64_t degree) {
  const uint64_t d = static_cast<uint64_t>(degree), upper = static_cast<uint64_t>(k) << 32;
  return upper / d << 32 | (upper % d << 32) / d;
}

inline int64_t DegreeOf(const GraphView& graph, int32_t node) {
  if (node < 0 || node >= graph.num_nodes) return 0;
  return graph.ends[node] - graph.indptr[node];
}

// What is wrong with an index of this graph, or "". Its edges are looked at when they are used.
inline std::string CheckHubs(const HubIndex& index, const GraphView& graph) {
  int64_t num_edges = 0;
  bool good = index.num_nodes == 0 || index.num_sources == graph.num_nodes;
  for (int64_t h = 0; h < index.num_nodes; ++h) {
    const int64_t degree = DegreeOf(graph, index.nodes[h]);
    num_edges += degree;
    good &= degree > 0;
  }
  if (good && num_edges == index.num_edges) return "";
  return "the state must be what Labor.init returned for this graph. Call it again";
}

// A HubIndex with what its lookups need, and the edges that a hop takes from the hubs.
class Hubs {
 public:
  Hubs(const HubIndex& index, const GraphView& graph, const Limits& limits, HubScratch& scratch)
      : index_(index), s_(scratch) {
    s_.begin.assign(1, 0);
    s_.holes.assign(limits.any() ? index.num_nodes : 0, 0);
    least_ = index.num_edges;
    for (int64_t h = 0; h < index.num_nodes; ++h) {
      const int64_t degree = DegreeOf(graph, index.nodes[h]);
      least_ = std::min(least_, degree);
      s_.begin.push_back(s_.begin.back() + degree);
      if (limits.any()) s_.holes[h] = limits.In(graph.indptr[index.nodes[h]], degree).num;
    }
    if (!any()) return;
    // No hub has fewer than 2**shift edges, so 2**shift edges belong to two hubs at most.
    shift_ = 63 - __builtin_clzll(static_cast<uint64_t>(least_));
    s_.first.clear();
    for (int64_t h = 0, edge = 0; edge < index.num_edges; edge += int64_t{1} << shift_) {
      while (s_.begin[h + 1] <= edge) ++h;
      s_.first.push_back(static_cast<int32_t>(h));
    }
  }

  bool any() const { return index_.num_nodes > 0; }
  bool good() const { return good_; }  // whether every edge was in range

  // The number of the hub `node`, which has so many neighbours; -1 if it is no hub.
  int64_t Find(int32_t node, int64_t degree) const {
    if (!any() || degree < least_) return -1;
    const int32_t* const end = index_.nodes + index_.num_nodes;
    const int32_t* const at = std::lower_bound(index_.nodes, end, node);
    return at != end && *at == node ? at - index_.nodes : -1;
  }

  // Begins a hop of which each hub takes the nodes whose number is below its limit. Returns the
  // upper half of the largest limit.
  uint32_t Begin(int64_t fanout) {
    s_.taken.clear();
    s_.limit.resize(index_.num_nodes);
    uint64_t most = 0;
    for (int64_t h = 0; h < index_.num_nodes; ++h) {
      int64_t degree = s_.begin[h + 1] - s_.begin[h];
      if (!s_.holes.empty()) degree -= s_.holes[h];
      s_.limit[h] = fanout < degree ? Fraction(fanout, degree) : 0;  // else it is taken whole
      most = std::max(most, s_.limit[h]);
    }
    return static_cast<uint32_t>(most >> 32);
  }

  // Takes the edges of the nodes first + i for which bit i of `passed` is 1; any thread.
  template <bool dependent>
  void Take(const Hop& hop, int64_t first, const std::vector<uint32_t>& passed) {
    const Numbers<dependent> numbers(hop);
    std::vector<int32_t> nodes, taken;
    for (size_t word = 0; word < passed.size(); ++word) {
      for (uint32_t bits = passed[word]; bits != 0; bits &= bits - 1) {
        const int64_t node = first + 32 * static_cast<int64_t>(word) + __builtin_ctz(bits);
        if (node < index_.num_sources) nodes.push_back(static_cast<int32_t>(node));
      }
    }
    bool good = true;
    for (size_t i = 0; i < nodes.size(); ++i) {
      constexpr size_t kEdgesAhead = 4, kNodesAhead = 8;
      if (i + kNodesAhead < nodes.size()) {
        __builtin_prefetch(index_.indptr + nodes[i + kNodesAhead]);
      }
      if (i + kEdgesAhead < nodes.size()) {
        __builtin_prefetch(index_.edges + index_.indptr[nodes[i + kEdgesAhead]]);
      }
      const int32_t node = nodes[i], begin = index_.indptr[node];
      const int32_t end = index_.indptr[node + 1];
      if (begin < 0 || end > index_.num_edges) {
        good = false;
        break;
      }
      const uint64_t number = numbers.Of(static_cast<uint32_t>(node));
      for (int32_t e = begin; e < end; ++e) {
        const int32_t edge = index_.edges[e];
        if (edge < 0 || edge >= index_.num_edges) {
          good = false;
          break;
        }
        if (number < s_.limit[HubOf(edge)]) taken.push_back(edge);
      }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    good_ &= good;
    s_.taken.insert(s_.taken.end(), taken.begin(), taken.end());
  }

  // Ends the taking: puts the edges in order.
  void End() {
    std::sort(s_.taken.begin(), s_.taken.end());
    s_.end.assign(index_.num_nodes + 1, 0);
    for (const int32_t edge : s_.taken) ++s_.end[HubOf(edge) + 1];
    for (int64_t h = 0; h < index_.num_nodes; ++h) s_.end[h + 1] += s_.end[h];
  }

  // Appends the positions in the hub's row of the edges that it takes, ascending. Returns their
  // number.
  int64_t Append(int64_t hub, std::vector<int32_t>& positions) const {
    const int64_t first = s_.end[hub], last = s_.end[hub + 1];
    for (int64_t i = first; i < last; ++i) {
      positions.push_back(static_cast<int32_t>(s_.taken[i] - s_.begin[hub]));
    }
    return last - first;
  }

 private:
  int64_t HubOf(int32_t edge) const {
    const int64_t hub = s_.first[edge >> shift_];
    return hub + (edge >= s_.begin[hub + 1] ? 1 : 0);
  }

  const HubIndex index_;
  HubScratch& s_;
  std::mutex mutex_;
  bool good_ = true;
  int64_t least_ = 0;  // the smallest number of neighbours of a hub
  int shift_ = 0;
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_HUBS_H_
