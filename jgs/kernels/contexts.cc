#include "contexts.h"

#include <algorithm>
#include <atomic>
#include <limits>
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

}  // namespace

std::string AppendToContexts(const Contexts& contexts, const FrontierRows& rows, int32_t hop,
                             int64_t num_nodes, const Executor& executor) {
  std::atomic<bool> bad{false};
  const int64_t room = contexts.room;
  ForContexts(contexts.num, executor, [&](int64_t i, Places& places) {
    int32_t* nodes = contexts.nodes + i * room;
    const int32_t begin = contexts.begin[i], end = contexts.end[i];
    if (begin < 0 || begin > end || end > room) return bad.store(true);
    contexts.begin[i] = end;
    const int64_t last = std::min<int64_t>(rows.frontier, end - begin);
    const int32_t* indptr = rows.indptr + i * rows.frontier;
    if (last == 0 || end == room) return;
    places.Begin(room + 1);
    for (int32_t at = 0; at < end; ++at) places.FindOrAdd(nodes[at], at);
    int32_t count = end;
    for (int64_t t = 0; t < last; ++t) {
      const int64_t first = indptr[t], stop = indptr[t + 1];
      if (first < 0 || first > stop || stop > rows.num_edges) return bad.store(true);
      for (int64_t e = first; e < stop; ++e) {
        const int32_t node = rows.neighbors[e];
        if (node < 0 || node >= num_nodes) return bad.store(true);
        if (places.FindOrAdd(node, count) != count) continue;
        nodes[count] = node;
        contexts.hop[i * room + count] = hop;
        contexts.parent[i * room + count] = begin + static_cast<int32_t>(t);
        contexts.edge[i * room + count] = rows.ids[e];
        contexts.end[i] = ++count;
        if (count == room) return;
      }
    }
  });
  return bad.load() ? "jgs_context_append: the drawn rows are damaged" : "";
}

std::string SortByAge(const Contexts& contexts, const int64_t* time, int64_t num_edges,
                      const Contexts& sorted, const Executor& executor) {
  struct Token {
    int64_t oldest;  // the time of the oldest edge on the way from the seed
    int32_t place;
  };
  std::atomic<bool> bad{false};
  ForContexts(contexts.num, executor, [&](int64_t i, Places&) {
    thread_local std::vector<Token> tokens;
    thread_local std::vector<int32_t> order;  // the new position of each token
    const int64_t row = i * contexts.room, to = i * sorted.room, count = contexts.end[i];
    if (count < 0 || count > contexts.room) return bad.store(true);
    tokens.resize(count);
    order.resize(count);
    for (int64_t at = 0; at < count; ++at) {
      const int64_t edge = contexts.edge[row + at], by = contexts.parent[row + at];
      int64_t oldest = std::numeric_limits<int64_t>::max();
      if (at > 0) {
        if (edge < 0 || edge >= num_edges || by < 0 || by >= at) return bad.store(true);
        oldest = std::min(time[edge], tokens[by].oldest);
      }
      tokens[at] = {oldest, static_cast<int32_t>(at)};
    }
    const auto before = [](const Token& a, const Token& b) {
      return a.oldest != b.oldest ? a.oldest > b.oldest : a.place < b.place;
    };
    const int64_t kept = std::min(count, sorted.room);
    std::partial_sort(tokens.begin(), tokens.begin() + kept, tokens.end(), before);
    for (int64_t at = 0; at < kept; ++at) order[tokens[at].place] = static_cast<int32_t>(at);
    for (int64_t at = 0; at < sorted.room; ++at) {
      // Padding stands at the end of a context too.
      const int64_t from = row + (at < kept ? tokens[at].place : count);
      sorted.nodes[to + at] = contexts.nodes[from];
      sorted.hop[to + at] = contexts.hop[from];
      sorted.edge[to + at] = contexts.edge[from];
      sorted.parent[to + at] = at < kept ? order[contexts.parent[from]] : 0;
    }
  });
  return bad.load() ? "jgs_context_by_age: the contexts are damaged" : "";
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
