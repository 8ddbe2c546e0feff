#include "contexts.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

namespace jgs {
namespace {

constexpr int64_t kContexts = 4;  // that a thread takes at a time

// The positions of the nodes of one context: an open hash table, emptied by a new number.
class Places {
 public:
  // Empties it, and makes room for `most` nodes.
  void Begin(int64_t most) {
    if (shift_ == 0 || most * 2 > static_cast<int64_t>(slots_.size())) {
      shift_ = 60;
      while ((int64_t{1} << (64 - shift_)) < most * 2) --shift_;
      slots_.assign(size_t{1} << (64 - shift_), Slot{});
      era_ = 0;
    }
    ++era_;
  }

  // The position of a node; adds it at `place` if it is not there.
  int32_t FindOrAdd(int32_t node, int32_t place) {
    Slot& slot = At(node);
    if (slot.era == era_) return slot.place;
    slot = {era_, node, place};
    return place;
  }

  // The position of a node, or `otherwise`.
  int32_t Find(int32_t node, int32_t otherwise) {
    const Slot& slot = At(node);
    return slot.era == era_ ? slot.place : otherwise;
  }

 private:
  struct Slot {
    uint64_t era = 0;
    int32_t node = 0, place = 0;
  };

  Slot& At(int32_t node) {
    const size_t mask = slots_.size() - 1;
    size_t i = (static_cast<uint32_t>(node) * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[i].era == era_ && slots_[i].node != node) i = (i + 1) & mask;
    return slots_[i];
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
  uint64_t era_ = 0;
};

// Calls body(i, places) for every i of [0, num).
template <typename Body>
void ForContexts(int64_t num, const Executor& executor, const Body& body) {
  ParallelFor(executor, (num + kContexts - 1) / kContexts, [&](int64_t chunk) {
    thread_local Places places;
    const int64_t end = std::min(num, (chunk + 1) * kContexts);
    for (int64_t i = chunk * kContexts; i < end; ++i) body(i, places);
  });
}

// A token of a context that grows: its parent is a position.
struct Token {
  int32_t node, hop, parent;
  int64_t edge;
};

// The contexts of a call while they grow, in the order in which nodes are found.
struct Growing {
  int64_t num, room;
  std::unique_ptr<Token[]> tokens;  // [num, room]
  std::vector<int32_t> begin, end;  // of each, the tokens that were found last

  Growing(const Seeds& seeds, int64_t room, int64_t num_nodes, int64_t num_edges)
      : num(seeds.num), room(room), tokens(new Token[seeds.num * room]), begin(num), end(num) {
    for (int64_t i = 0; i < num; ++i) {
      end[i] = seeds.nodes[i] < num_nodes;
      Of(i)[0] = {seeds.nodes[i], 0, 0, num_edges};
    }
  }

  Token* Of(int64_t i) { return &tokens[i * room]; }
};

// Adds to each context what its frontier drew and it does not have, as far as there is room.
// `first` [num + 1] has where each frontier begins among the hop's targets.
void Append(Growing& growing, const std::vector<int64_t>& first, const Hop& hop, int32_t number,
            const Executor& executor) {
  ForContexts(growing.num, executor, [&](int64_t i, Places& places) {
    Token* tokens = growing.Of(i);
    const int32_t begin = growing.begin[i], end = growing.end[i];
    growing.begin[i] = end;
    if (first[i] == first[i + 1] || end == growing.room) return;
    places.Begin(growing.room + 1);
    for (int32_t at = 0; at < end; ++at) places.FindOrAdd(tokens[at].node, at);
    int32_t count = end;
    for (int64_t t = first[i]; t < first[i + 1]; ++t) {
      const auto parent = static_cast<int32_t>(begin + (t - first[i]));
      for (int32_t e = hop.indptr[t]; e < hop.indptr[t + 1]; ++e) {
        if (places.FindOrAdd(hop.indices[e], count) != count) continue;
        tokens[count] = {hop.indices[e], number, parent, hop.edge_id[e]};
        growing.end[i] = ++count;
        if (count == growing.room) return;
      }
    }
  });
}

// Draws for the tokens that were found last, and adds what they drew.
std::string RunHop(const GraphView& graph, const Seeds& seeds, const NeighborOptions& options,
                   ContextHops& by, size_t h, Growing& growing, const Executor& executor) {
  std::vector<int64_t> first(growing.num + 1), time;
  std::vector<int32_t> nodes;
  for (int64_t i = 0; i < growing.num; ++i) {
    for (int32_t at = growing.begin[i]; at < growing.end[i]; ++at) {
      nodes.push_back(growing.Of(i)[at].node);
      if (seeds.time != nullptr) time.push_back(seeds.time[i]);
    }
    first[i + 1] = static_cast<int64_t>(nodes.size());
  }
  if (nodes.empty()) return "";
  const auto num = static_cast<int64_t>(nodes.size());
  const int64_t most = std::max<int64_t>(num * by.widths[h], 1);
  if (most > std::numeric_limits<int32_t>::max()) {
    return "contexts must draw fewer than 2**31 edges at a hop: give fewer seeds or smaller widths";
  }
  const std::unique_ptr<int32_t[]> indptr(new int32_t[num + 1]), indices(new int32_t[most]),
      targets(new int32_t[num]);
  const std::unique_ptr<int64_t[]> ids(new int64_t[most]);
  std::vector<Hop> hops{by.hops[h]};
  Hop& hop = hops[0];
  hop.target_capacity = hop.source_capacity = num;
  hop.edge_capacity = most;
  hop.indptr = indptr.get();
  hop.indices = indices.get();
  hop.edge_id = ids.get();
  hop.edge_weight = nullptr;
  bool overflow = false;
  const Seeds frontier{nodes.data(), num, seeds.time == nullptr ? nullptr : time.data(),
                       seeds.excluded, seeds.num_excluded};
  const std::string error = SampleNeighbors(graph, frontier, options, false, hops,
                                            {targets.get(), nullptr, &overflow}, executor);
  if (!error.empty()) return error;
  if (overflow) return "jgs_context_hops: a node drew more than the width of its hop";
  Append(growing, first, hop, static_cast<int32_t>(h) + 1, executor);
  return "";
}

// The position of each of the first tokens of a context, at most `size`, by age: the youngest
// first. A token is as old as the oldest edge on its way from the seed.
void SortByAge(const Token* tokens, int64_t count, int64_t size, const int64_t* time,
               std::vector<int32_t>& order) {
  thread_local std::vector<int64_t> oldest;
  oldest.resize(count);
  order.resize(count);
  for (int64_t at = 0; at < count; ++at) {
    order[at] = static_cast<int32_t>(at);
    oldest[at] = at == 0 ? std::numeric_limits<int64_t>::max()
                         : std::min(time[tokens[at].edge], oldest[tokens[at].parent]);
  }
  const auto before = [&](int32_t a, int32_t b) {
    return oldest[a] != oldest[b] ? oldest[a] > oldest[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + std::min(count, size), order.end(), before);
}

}  // namespace

std::string FindByHops(const GraphView& graph, const Seeds& seeds, const NeighborOptions& options,
                       ContextHops& by, const FoundContexts& found, const Executor& executor) {
  std::string error = CheckSeeds(seeds.nodes, seeds.num, graph.num_nodes);
  Growing growing(seeds, by.room, graph.num_nodes, graph.num_edges);
  for (size_t h = 0; h < by.hops.size() && error.empty(); ++h) {
    error = RunHop(graph, seeds, options, by, h, growing, executor);
  }
  if (!error.empty()) return error;
  ForContexts(growing.num, executor, [&](int64_t i, Places&) {
    thread_local std::vector<int32_t> order;
    const Token* tokens = growing.Of(i);
    const int64_t row = i * found.size, count = growing.end[i];
    if (by.by_age) SortByAge(tokens, count, found.size, options.edge_time, order);
    const auto none = static_cast<int32_t>(graph.num_nodes);
    for (int64_t at = 0; at < found.size; ++at) {
      Token token{none, 0, 0, graph.num_edges};
      if (at < count) token = tokens[by.by_age ? order[at] : at];
      found.nodes[row + at] = token.node;
      found.hop[row + at] = token.hop;
      found.parent[row + at] = token.hop > 0 ? tokens[token.parent].node : none;
      found.edge[row + at] = token.edge;
    }
  });
  return "";
}

void ContextTrees(const int32_t* nodes, const int32_t* parent, int64_t num, int64_t size,
                  int64_t num_nodes, int32_t* place, int32_t* indptr, int32_t* children,
                  const Executor& executor) {
  std::vector<int64_t> before(num + 1);
  const auto none = static_cast<int32_t>(size);
  ForContexts(num, executor, [&](int64_t i, Places& places) {
    const int64_t row = i * size;
    places.Begin(size + 1);
    for (int64_t at = 0; at < size && nodes[row + at] != num_nodes; ++at) {
      places.FindOrAdd(nodes[row + at], static_cast<int32_t>(at));
    }
    int64_t found = 0;
    for (int64_t at = 0; at < size; ++at) {
      const int32_t own = parent[row + at];
      place[row + at] = own == num_nodes ? none : places.Find(own, none);
      found += place[row + at] < none;
    }
    before[i + 1] = found;
  });
  for (int64_t i = 0; i < num; ++i) before[i + 1] += before[i];
  ForContexts(num, executor, [&](int64_t i, Places&) {
    const int64_t row = i * size;
    int32_t* starts = indptr + row;  // becomes the numbers of children, then where they begin
    std::fill(starts, starts + size, 0);
    for (int64_t at = 0; at < size; ++at) {
      if (place[row + at] < none) ++starts[place[row + at]];
    }
    auto next = static_cast<int32_t>(before[i]);
    for (int64_t at = 0; at < size; ++at) {
      const int32_t count = starts[at];
      starts[at] = next;
      next += count;
    }
    for (int64_t at = 0; at < size; ++at) {  // moves each row's start to its end
      if (place[row + at] < none) {
        children[starts[place[row + at]]++] = static_cast<int32_t>(row + at);
      }
    }
    for (int64_t at = size - 1; at > 0; --at) starts[at] = starts[at - 1];
    if (size > 0) starts[0] = static_cast<int32_t>(before[i]);
  });
  indptr[num * size] = static_cast<int32_t>(before[num]);
  std::fill(children + before[num], children + num * size, static_cast<int32_t>(num * size));
}

}  // namespace jgs
