// Uniform neighbour sampling in steps (steps.h), for GPUs. It draws what SampleNeighbors
// (sample.h) draws where draws have no weights, relations, cutoffs or excluded edges.
//
// A hop is two sums and four loops: over targets to find their rows, over rows to draw, over
// slots to find each first slot of a new source, and over slots to number them. A table has the
// place of each source, or the first slot of a node that has no place yet. Counts stay on the
// device: loops go over capacities, and nothing waits for the host.
#ifndef JGS_KERNELS_DEVICE_SAMPLE_H_
#define JGS_KERNELS_DEVICE_SAMPLE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "draw_row.h"
#include "sample.h"
#include "steps.h"

namespace jgs {

constexpr int32_t kNoPlace = std::numeric_limits<int32_t>::max();
constexpr int64_t kDenseNodes = 4;  // nodes for each slot, up to which a table has all nodes
constexpr int64_t kFewDraws = 32;   // draws whose positions a thread keeps

// Before each hop, in the device's memory.
struct Progress {
  int32_t num_targets;
  int32_t lost;  // whether a seed was no node, or a hop before did not fit
};

// A number for each node: the smallest that was put. Nodes are hashed unless `keys` is null.
struct PlaceTable {
  int32_t* keys;    // [size], -1: free; or null
  int32_t* places;  // [size], kNoPlace: none
  int64_t size;     // a power of two if nodes are hashed, and more than there are nodes

  JGS_BOTH void Clear(int64_t i) const {
    if (keys != nullptr) keys[i] = -1;
    places[i] = kNoPlace;
  }

  // Puts a number, and returns the node's cell. Where a node lies depends on the order of
  // calls, what lies there does not.
  JGS_BOTH int32_t Put(int32_t node, int32_t place) const {
    int32_t cell = node;
    if (keys != nullptr) {
      uint32_t mixed = static_cast<uint32_t>(node);
      mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6Bu;
      mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35u;
      const uint32_t mask = static_cast<uint32_t>(size - 1);
      for (cell = (mixed ^ (mixed >> 16)) & mask;; cell = (cell + 1) & mask) {
        const int32_t holder = AtomicPut(&keys[cell], -1, node);
        if (holder == -1 || holder == node) break;
      }
    }
    AtomicMin(&places[cell], place);
    return cell;
  }
};

// What the steps of a hop share.
struct DeviceHop {
  GraphView graph;
  PlaceTable table;
  Progress* progress;  // [2], before this hop and before the next one
  int32_t* nodes;      // the sources so far
  Key* key;
  int64_t fanout;  // -1: all neighbours
  bool replace, relabel;
  int64_t target_capacity, edge_capacity, source_capacity;
  int64_t* ends;  // [target_capacity], where the slots of each target end
  int32_t* cell;  // [edge_capacity], of the node in each slot; -1: it is no node
  int32_t* rank;  // [edge_capacity], the number of new sources up to each slot
  int32_t *indptr, *indices;
  int64_t* edge_id;    // or null
  float* edge_weight;  // or null
  int32_t *num_targets, *num_sources, *num_edges, *edges_needed, *sources_needed;

  JGS_BOTH bool Lost() const { return progress->lost != 0; }

  JGS_BOTH int64_t Total() const {
    return target_capacity == 0 ? 0 : ends[target_capacity - 1];
  }

  // The number of edges that are drawn: none where they do not fit.
  JGS_BOTH int64_t Drawn() const {
    const int64_t total = Total();
    return total <= edge_capacity ? total : 0;
  }

  // Where the row of a node begins, and its number of edges. A damaged row is empty.
  JGS_BOTH int64_t Row(int32_t node, int64_t* degree) const {
    *degree = 0;
    if (node < 0 || node >= graph.num_nodes) return 0;
    const int64_t start = graph.indptr[node], length = graph.ends[node] - start;
    if (start < 0 || start > graph.num_edges || length < 0 ||
        length > graph.num_edges - start || length > std::numeric_limits<int32_t>::max()) {
      return 0;
    }
    *degree = length;
    return start;
  }

  JGS_BOTH int64_t Begin(int64_t t) const { return t == 0 ? 0 : ends[t - 1]; }

  // A slot draws an edge.
  JGS_BOTH void Put(int64_t slot, int64_t edge) const {
    const int32_t node = graph.indices[edge];
    indices[slot] = node;
    if (edge_id != nullptr) edge_id[slot] = edge;
    if (edge_weight != nullptr) edge_weight[slot] = graph.edge_weight[edge];
    if (!relabel) return;
    const bool real = node >= 0 && node < graph.num_nodes;
    const int32_t place = progress->num_targets + static_cast<int32_t>(slot);
    cell[slot] = real ? table.Put(node, place) : -1;
  }

  // The first slot of the node in this one, or its place if it had one before the hop. Both are
  // numbers as in Put.
  JGS_BOTH int32_t First(int64_t slot) const {
    return cell[slot] >= 0 ? table.places[cell[slot]]
                           : progress->num_targets + static_cast<int32_t>(slot);
  }
};

// i: a cell of the table, a hop, or a seed. Clears what the sample counts in.
struct ClearStep {
  PlaceTable table;
  Progress* progress;
  int64_t num_hops;
  Key* keys;
  const uint32_t* key;
  int64_t first_hop;

  JGS_BOTH void operator()(int64_t i) const {
    if (i < table.size) table.Clear(i);
    if (i <= num_hops) progress[i] = {0, 0};
    if (i < num_hops) keys[i] = Fold({{key[0], key[1]}}, static_cast<uint32_t>(first_hop + i));
  }
};

// i: a seed.
struct SeedStep {
  const int32_t* seeds;
  int64_t num_nodes;
  int32_t* nodes;
  Progress* progress;

  JGS_BOTH void operator()(int64_t i) const {
    const int32_t seed = seeds[i];
    nodes[i] = seed;
    if (seed < 0 || seed > num_nodes) AtomicMax(&progress->lost, 1);
    if (seed < num_nodes) AtomicMax(&progress->num_targets, static_cast<int32_t>(i) + 1);
  }
};

// i: a target. Leaves the number of its edges in `ends`.
struct RowStep {
  DeviceHop hop;

  JGS_BOTH void operator()(int64_t i) const {
    hop.ends[i] = 0;
    if (hop.Lost() || i >= hop.progress->num_targets) return;
    const int32_t node = hop.nodes[i];
    if (node < 0 || node >= hop.graph.num_nodes) return;  // padding
    int64_t degree;
    hop.Row(node, &degree);
    const bool all = hop.fanout == -1 || (!hop.replace && degree <= hop.fanout);
    hop.ends[i] = all || degree == 0 ? degree : hop.fanout;
    if (hop.relabel) hop.table.Put(node, static_cast<int32_t>(i));
  }
};

// i: a target, which draws.
struct DrawStep {
  DeviceHop hop;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t begin = hop.Begin(i), num = hop.ends[i] - begin;
    if (num == 0 || hop.Drawn() == 0) return;
    const int32_t node = hop.nodes[i];
    int64_t degree;
    const int64_t start = hop.Row(node, &degree);
    const uint32_t length = static_cast<uint32_t>(degree);
    if (hop.replace) {
      for (int64_t j = 0; j < num; ++j) {
        hop.Put(begin + j, start + DrawBelow(*hop.key, node, j, length));
      }
    } else if (degree <= num) {
      for (int64_t j = 0; j < num; ++j) hop.Put(begin + j, start + j);
    } else {
      int32_t few[kFewDraws];
      int32_t* position = num <= kFewDraws ? few : hop.indices + begin;
      DrawDistinct(*hop.key, node, length, num, position);
      for (int64_t j = 0; j < num; ++j) hop.Put(begin + j, start + position[j]);
    }
  }
};

// i: a slot of a hop that takes all neighbours.
struct TakeStep {
  DeviceHop hop;

  JGS_BOTH void operator()(int64_t i) const {
    if (i >= hop.Drawn()) return;
    const int64_t t = FirstAbove(hop.ends, hop.target_capacity, i);
    int64_t degree;
    hop.Put(i, hop.Row(hop.nodes[t], &degree) + i - hop.Begin(t));
  }
};

// i: a slot. Says in `rank` whether it is the first one of a new source.
struct FirstStep {
  DeviceHop hop;

  JGS_BOTH void operator()(int64_t i) const {
    const bool drawn = i < hop.Drawn();
    hop.rank[i] = drawn && hop.First(i) == hop.progress->num_targets + i ? 1 : 0;
  }
};

// i: a slot, or a target and the end of `indptr`. Numbers the sources, and writes the block.
struct BlockStep {
  DeviceHop hop;

  JGS_BOTH void operator()(int64_t i) const {
    const int64_t drawn = hop.Drawn();
    const int32_t targets = hop.progress->num_targets;
    if (i <= hop.target_capacity) {
      hop.indptr[i] = static_cast<int32_t>(drawn == 0 ? 0 : hop.Begin(i));
    }
    if (i < hop.edge_capacity) {
      const bool real = i < drawn;
      if (!real && hop.edge_id != nullptr) hop.edge_id[i] = hop.graph.num_edges;
      if (!real && hop.edge_weight != nullptr) hop.edge_weight[i] = 0.0f;
      if (!hop.relabel) {
        if (!real) hop.indices[i] = static_cast<int32_t>(hop.graph.num_nodes);
      } else if (!real) {
        hop.indices[i] = static_cast<int32_t>(hop.source_capacity);
      } else {
        const int32_t first = hop.First(i);
        const int32_t place = first < targets ? first : targets + hop.rank[first - targets] - 1;
        if (first == targets + i && place < hop.source_capacity) {
          hop.nodes[place] = hop.indices[i];
        }
        hop.indices[i] = place;
      }
    }
    if (i == 0) Count(drawn, targets);
  }

  JGS_BOTH void Count(int64_t drawn, int32_t targets) const {
    const int64_t total = hop.Total(), most = std::numeric_limits<int32_t>::max();
    const bool fits = total <= hop.edge_capacity, lost = hop.Lost();
    const bool some = hop.relabel && hop.edge_capacity > 0 && fits;
    const int64_t sources = targets + (some ? hop.rank[hop.edge_capacity - 1] : 0);
    const bool sources_fit = !hop.relabel || sources <= hop.source_capacity;
    *hop.num_targets = targets;
    *hop.num_edges = static_cast<int32_t>(drawn);
    *hop.num_sources = static_cast<int32_t>(hop.relabel ? sources : hop.graph.num_nodes);
    *hop.edges_needed = static_cast<int32_t>(Clamp<int64_t>(total, 0, lost ? 0 : most));
    const int64_t needed = sources_fit ? sources : hop.source_capacity + 1;
    *hop.sources_needed = static_cast<int32_t>(lost || !fits || !hop.relabel ? 0 : needed);
    hop.progress[1] = {static_cast<int32_t>(sources), lost || !fits || !sources_fit ? 1 : 0};
  }
};

// i: a slot, or a target and the end of `indptr`. Empties the block if the sample has
// overflowed.
struct EmptyStep {
  DeviceHop hop;
  const Progress *first, *last;

  JGS_BOTH void operator()(int64_t i) const {
    if (last->lost == 0) return;
    if (i <= hop.target_capacity) hop.indptr[i] = 0;
    if (i < hop.edge_capacity) {
      const int64_t padding = hop.relabel ? hop.source_capacity : hop.graph.num_nodes;
      hop.indices[i] = static_cast<int32_t>(padding);
      if (hop.edge_id != nullptr) hop.edge_id[i] = hop.graph.num_edges;
      if (hop.edge_weight != nullptr) hop.edge_weight[i] = 0.0f;
    }
    if (i != 0) return;
    *hop.num_targets = *hop.num_sources = *hop.num_edges = 0;
    if (first->lost != 0) *hop.edges_needed = *hop.sources_needed = -1;
  }
};

// i: an input node.
struct NodeStep {
  const int32_t* nodes;
  const Progress *inputs, *last;  // `inputs` counts them
  int64_t num_nodes;
  int32_t* out;
  bool* overflow;

  JGS_BOTH void operator()(int64_t i) const {
    const bool real = last->lost == 0 && i < inputs->num_targets;
    out[i] = static_cast<int32_t>(real ? nodes[i] : num_nodes);
    if (i == 0) *overflow = last->lost != 0;
  }
};

// Where the counts of a hop go.
struct HopCounts {
  int32_t *num_targets, *num_sources, *num_edges, *edges_needed, *sources_needed;
};

// What a sample is drawn with. All pointers are to the device's memory.
struct DeviceSample {
  GraphView graph;
  const uint32_t* key;  // [2]
  int64_t first_hop;
  Seeds seeds;  // their nodes
  bool replace, relabel_inputs;
  const std::vector<Hop>& hops;  // of each, the fanout, the capacities and the arrays
  const std::vector<HopCounts>& counts;
  int32_t* nodes;  // as in SampledNodes
  int64_t num_inputs;
  bool* overflow;
};

// Writes every result of `sample`, with padding, in loops of the launcher. A seed that is no
// node is an overflow, and what the hops needed is then -1. A hop must have fewer than 2**30
// targets and slots.
template <typename Launcher>
void SampleOnDevice(Launcher& launcher, const DeviceSample& sample) {
  const int64_t num_hops = static_cast<int64_t>(sample.hops.size());
  int64_t slots = sample.seeds.num, targets = sample.seeds.num, edges = 0, known = targets;
  for (const Hop& hop : sample.hops) {
    slots = std::max(slots, hop.target_capacity + hop.edge_capacity);
    targets = std::max(targets, hop.target_capacity);
    known = std::max({known, hop.target_capacity, hop.source_capacity});
    edges = std::max(edges, hop.edge_capacity);
  }
  PlaceTable table{nullptr, nullptr, sample.graph.num_nodes};
  if (sample.graph.num_nodes > kDenseNodes * slots) {
    for (table.size = 2; table.size < 2 * slots;) table.size *= 2;
    table.keys = launcher.template Take<int32_t>(table.size);
  }
  table.places = launcher.template Take<int32_t>(table.size);
  auto* progress = launcher.template Take<Progress>(num_hops + 1);
  auto* keys = launcher.template Take<Key>(num_hops);
  auto* nodes = launcher.template Take<int32_t>(known);
  auto* ends = launcher.template Take<int64_t>(targets);
  auto* cell = launcher.template Take<int32_t>(edges);
  auto* rank = launcher.template Take<int32_t>(edges);
  launcher.For(std::max(table.size, num_hops + 1),
               ClearStep{table, progress, num_hops, keys, sample.key, sample.first_hop});
  launcher.For(sample.seeds.num,
               SeedStep{sample.seeds.nodes, sample.graph.num_nodes, nodes, progress});
  std::vector<DeviceHop> hops;
  for (int64_t h = 0; h < num_hops; ++h) {
    const Hop& of = sample.hops[h];
    const HopCounts& to = sample.counts[h];
    const bool relabel = sample.relabel_inputs || h + 1 < num_hops;
    const DeviceHop hop{sample.graph, table, progress + h, nodes, keys + h, of.fanout,
                        sample.replace, relabel, of.target_capacity, of.edge_capacity,
                        of.source_capacity, ends, cell, rank, of.indptr, of.indices, of.edge_id,
                        of.edge_weight, to.num_targets, to.num_sources, to.num_edges,
                        to.edges_needed, to.sources_needed};
    hops.push_back(hop);
    launcher.For(of.target_capacity, RowStep{hop});
    launcher.Scan(ends, of.target_capacity);
    if (of.fanout == -1) {
      launcher.For(of.edge_capacity, TakeStep{hop});
    } else {
      launcher.For(of.target_capacity, DrawStep{hop});
    }
    if (relabel) {
      launcher.For(of.edge_capacity, FirstStep{hop});
      launcher.Scan(rank, of.edge_capacity);
    }
    launcher.For(std::max(of.target_capacity + 1, of.edge_capacity), BlockStep{hop});
  }
  const Progress* last = progress + num_hops;
  for (const DeviceHop& hop : hops) {
    launcher.For(std::max(hop.target_capacity + 1, hop.edge_capacity),
                 EmptyStep{hop, progress, last});
  }
  const Progress* inputs = sample.relabel_inputs ? last : last - 1;
  launcher.For(std::max<int64_t>(sample.num_inputs, 1),
               NodeStep{nodes, inputs, last, sample.graph.num_nodes, sample.nodes,
                        sample.overflow});
}

}  // namespace jgs

#endif  // JGS_KERNELS_DEVICE_SAMPLE_H_
