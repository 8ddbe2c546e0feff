#include "induced.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "isa.h"
#include "place_map.h"
#include "scratch.h"

namespace jgs {
namespace {

constexpr int64_t kPiece = 1 << 14;     // edges of a row that are read together
constexpr int64_t kPadding = 1 << 16;   // entries of padding written together
constexpr int64_t kBlock = 64;          // edges that are read before any is kept
constexpr int64_t kMostBits = 1 << 23;  // nodes of a graph whose bits fit in a core's cache
constexpr int64_t kStep = 6;            // edges read in the time of one step of a search
constexpr int64_t kAhead = 16;

// A part of a node's row: the edges [first, first + count); or the whole row, to be searched.
struct Piece {
  int32_t row, group;
  int64_t first, count;
  bool search;
};

// What a thread keeps of some pieces, in its own memory or in a result's, and the tables in
// which it looks nodes up.
struct Chunk {
  bool ids;           // whether edge ids are wanted
  int64_t num, room;  // of edges
  int32_t* place;     // [room]
  int64_t* edge;      // [room] if `ids`
  std::vector<int32_t> of_piece;  // the number of edges of each piece
  PlaceMap places;
  std::vector<std::pair<int32_t, int32_t>> ordered;  // nodes and first places, ascending

  void Begin(bool with_ids) {
    Start(with_ids, own_room_);
    place = own_place_.data();
    edge = own_edge_.data();
  }

  // Begins in a result's memory, which may have no room for the edges.
  void Begin(bool with_ids, int32_t* result_place, int64_t* result_edge, int64_t result_room) {
    Start(with_ids, result_room);
    place = result_place;
    edge = result_edge;
    if (!ids || edge != nullptr) return;
    own_edge_.Reserve(room);
    edge = own_edge_.data();
    own_room_ = 0;  // for both arrays
  }

  // Makes room for `more` edges, in its own memory if necessary; contents are kept.
  void Grow(int64_t more) {
    if (num + more <= room) return;
    room = own_room_ = 2 * (num + more);
    Scratch<int32_t> places_before = std::exchange(own_place_, {});
    Scratch<int64_t> edges_before = std::exchange(own_edge_, {});
    own_place_.Reserve(room);
    own_edge_.Reserve(room);
    std::copy_n(place, num, own_place_.data());
    if (ids) std::copy_n(edge, num, own_edge_.data());
    place = own_place_.data();
    edge = own_edge_.data();
  }

 private:
  void Start(bool with_ids, int64_t with_room) {
    ids = with_ids;
    num = 0;
    room = with_room;
    of_piece.clear();
  }

  Scratch<int32_t> own_place_;
  Scratch<int64_t> own_edge_;
  int64_t own_room_ = 0;
};

struct Scratches {
  std::vector<Piece> pieces;
  std::vector<Chunk> chunks;
  PlaceBits bits;
  std::vector<std::pair<int32_t, int32_t>> ordered;
};

std::mutex scratch_mutex;

std::vector<std::unique_ptr<Scratches>>& Free() {
  static auto* free = new std::vector<std::unique_ptr<Scratches>>;  // never destroyed
  return *free;
}

std::unique_ptr<Scratches> Take() {
  std::lock_guard<std::mutex> lock(scratch_mutex);
  if (Free().empty()) return std::make_unique<Scratches>();
  auto scratch = std::move(Free().back());
  Free().pop_back();
  return scratch;
}

void Give(std::unique_ptr<Scratches> scratch) {
  std::lock_guard<std::mutex> lock(scratch_mutex);
  Free().push_back(std::move(scratch));
}

int64_t Log2(int64_t x) { return 64 - __builtin_clzll(static_cast<uint64_t>(x) | 1); }

// Makes the pieces of all rows; returns what is wrong, or "". `cost` becomes the number of
// edges to read, or what a search costs instead.
std::string MakePieces(const GraphView& graph, const Induced& b, std::vector<Piece>& pieces,
                       int64_t& cost) {
  pieces.clear();
  cost = 0;
  for (int64_t g = 0; g < b.num_groups; ++g) {
    const int64_t begin = b.groups[g], end = b.groups[g + 1], size = end - begin;
    if (begin < 0 || size < 0 || end > b.num_rows) {
      return "the groups' bounds must ascend from 0 or more to the number of rows at most; they "
             "do not at group " + std::to_string(g);
    }
    for (int64_t row = begin; row < end; ++row) {
      const auto real = [&](int64_t r) { return b.nodes[r] >= 0 && b.nodes[r] < graph.num_nodes; };
      if (row + kAhead < end && real(row + kAhead)) {
        __builtin_prefetch(&graph.indptr[b.nodes[row + kAhead]]);
      }
      if (!real(row)) continue;
      const int64_t first = graph.indptr[b.nodes[row]], last = graph.ends[b.nodes[row]];
      if (first < 0 || last < first || last > graph.num_edges) {
        return "the graph's indptr must ascend from 0 to the number of edges; it does not at node " +
               std::to_string(b.nodes[row]);
      }
      Piece piece{static_cast<int32_t>(row), static_cast<int32_t>(g), first, last - first, false};
      const int64_t searched = kStep * size * Log2(piece.count);
      if (b.sorted && searched < piece.count) {
        piece.search = true;
        pieces.push_back(piece);
        cost += searched;
        continue;
      }
      cost += last - first;
      for (; piece.first < last; piece.first += kPiece) {
        piece.count = std::min(kPiece, last - piece.first);
        pieces.push_back(piece);
      }
    }
  }
  return "";
}

// The places of a group's nodes that are in the graph, by node.
void Order(const GraphView& graph, const int32_t* nodes, int64_t num,
           std::vector<std::pair<int32_t, int32_t>>& ordered) {
  ordered.clear();
  for (int64_t i = 0; i < num; ++i) {
    if (nodes[i] >= 0 && nodes[i] < graph.num_nodes) ordered.emplace_back(nodes[i], i);
  }
  std::sort(ordered.begin(), ordered.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  ordered.erase(std::unique(ordered.begin(), ordered.end(), same), ordered.end());
}

void Search(const int32_t* indices, const Piece& piece, int32_t base, Chunk& chunk) {
  const int32_t* at = indices + piece.first;
  const int32_t* end = at + piece.count;
  for (const auto& [node, place] : chunk.ordered) {
    at = std::lower_bound(at, end, node);
    for (; at < end && *at == node; ++at) {
      chunk.Grow(1);
      chunk.place[chunk.num] = base + place;
      if (chunk.ids) chunk.edge[chunk.num] = at - indices;
      ++chunk.num;
    }
  }
}

// Keeps the edges of a piece whose source has a place; with `ids` also their ids.
template <bool ids, typename Places>
struct Read {
  const int32_t* indices;
  const Piece& piece;
  int32_t base, none;
  const Places& places;
  Chunk& chunk;

  JGS_INLINE void operator()() const {
    chunk.Grow(piece.count + 1);
    int32_t* place = chunk.place;
    int64_t* edge = chunk.edge;
    int64_t num = chunk.num;
    const int64_t last = piece.first + piece.count;
    for (int64_t at = piece.first; at < last; at += kBlock) {
      const int32_t* some = indices + at;
      uint64_t open = 0;  // no branch to mispredict
      if (last - at >= kBlock) {
        for (int64_t begin = 0; begin < kBlock; begin += 8) {
          uint32_t bits = 0;
          for (int64_t i = 0; i < 8; ++i) {
            bits |= static_cast<uint32_t>(places.MayHave(some[begin + i])) << i;
          }
          open |= static_cast<uint64_t>(bits) << begin;
        }
      } else {
        for (int64_t i = 0; i < last - at; ++i) {
          open |= static_cast<uint64_t>(places.MayHave(some[i])) << i;
        }
      }
      for (; open != 0; open &= open - 1) {
        const int i = __builtin_ctzll(open);
        const int32_t found = places.Find(some[i]);
        place[num] = base + found;
        if constexpr (ids) edge[num] = at + i;
        num += found != none;
      }
    }
    chunk.num = num;
  }
};

template <typename Places>
void ReadPiece(const int32_t* indices, const Piece& piece, int32_t base, int32_t none, bool ids,
               const Places& places, Chunk& chunk) {
  if (ids) {
    RunOn(BestIsa(), Read<true, Places>{indices, piece, base, none, places, chunk});
  } else {
    RunOn(BestIsa(), Read<false, Places>{indices, piece, base, none, places, chunk});
  }
}

}  // namespace

std::string InducedBlock(const GraphView& graph, Induced& b, const Executor& executor) {
  auto scratch = Take();
  std::vector<Piece>& pieces = scratch->pieces;
  int64_t cost;
  std::string error = MakePieces(graph, b, pieces, cost);
  if (!error.empty()) return error;

  // Chunks of consecutive pieces with about equal costs. A single thread has one chunk, which
  // it writes straight into the result.
  const bool alone = executor.num_threads <= 1;
  const int64_t eighth = cost / (8 * executor.num_threads) + 1;
  const int64_t share = alone ? cost + 1 : std::clamp<int64_t>(eighth, 1 << 12, 1 << 18);
  std::vector<int64_t> bounds{0};
  int64_t sum = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t size = b.groups[pieces[i].group + 1] - b.groups[pieces[i].group];
    sum += pieces[i].search ? kStep * size * Log2(pieces[i].count) : pieces[i].count;
    if (sum >= share || i + 1 == pieces.size()) {
      bounds.push_back(static_cast<int64_t>(i) + 1);
      sum = 0;
    }
  }
  const int64_t num_chunks = static_cast<int64_t>(bounds.size()) - 1;
  std::vector<Chunk>& chunks = scratch->chunks;
  if (static_cast<int64_t>(chunks.size()) < num_chunks) chunks.resize(num_chunks);
  const auto nodes_of = [&](int32_t group) { return b.nodes + b.groups[group]; };
  const auto size_of = [&](int32_t group) { return b.groups[group + 1] - b.groups[group]; };
  // For one large group all threads use the same bits.
  const bool shared = b.num_groups == 1 && graph.num_nodes <= kMostBits;
  const bool ids = b.edge_id != nullptr || b.edge_weight != nullptr;
  if (shared) {
    Order(graph, nodes_of(0), size_of(0), scratch->ordered);
    scratch->bits.Set(scratch->ordered, graph.num_nodes);
  }
  Team team(executor);
  team.For(num_chunks, [&](int64_t c) {
    Chunk& chunk = chunks[c];
    if (alone) {
      chunk.Begin(ids, b.indices, b.edge_id, b.room);
    } else {
      chunk.Begin(ids);
    }
    int32_t placed = -1, ordered = -1;  // the groups whose tables are ready
    for (int64_t i = bounds[c]; i < bounds[c + 1]; ++i) {
      const Piece& piece = pieces[i];
      const int64_t before = chunk.num;
      const int32_t group = piece.group, size = size_of(group), base = b.groups[group];
      if (piece.search) {
        if (ordered != group) Order(graph, nodes_of(group), size, chunk.ordered);
        ordered = group;
        Search(graph.indices, piece, base, chunk);
      } else if (shared) {
        ReadPiece(graph.indices, piece, base, size, ids, scratch->bits, chunk);
      } else {
        if (placed != group) chunk.places.Reset(nodes_of(group), size, graph.num_nodes);
        placed = group;
        ReadPiece(graph.indices, piece, base, size, ids, chunk.places, chunk);
      }
      chunk.of_piece.push_back(static_cast<int32_t>(chunk.num - before));
    }
  });

  std::vector<int64_t> starts(num_chunks + 1, 0);
  for (int64_t c = 0; c < num_chunks; ++c) starts[c + 1] = starts[c] + chunks[c].num;
  b.needed = starts[num_chunks];
  const bool fits = b.needed <= b.room;
  std::fill_n(b.indptr, b.num_rows + 1, 0);
  if (fits) {
    for (int64_t c = 0; c < num_chunks; ++c) {
      for (int64_t i = bounds[c]; i < bounds[c + 1]; ++i) {
        b.indptr[pieces[i].row + 1] += chunks[c].of_piece[i - bounds[c]];
      }
    }
    for (int64_t row = 0; row < b.num_rows; ++row) b.indptr[row + 1] += b.indptr[row];
    team.For(num_chunks, [&](int64_t c) {
      const Chunk& chunk = chunks[c];
      if (chunk.place != b.indices) {
        std::copy_n(chunk.place, chunk.num, b.indices + starts[c]);
        if (b.edge_id != nullptr) std::copy_n(chunk.edge, chunk.num, b.edge_id + starts[c]);
      }
      if (b.edge_weight == nullptr) return;
      int64_t at = 0;
      for (int64_t i = bounds[c]; i < bounds[c + 1]; ++i) {
        const int32_t row = pieces[i].row;
        const float scale =
            b.by_row ? static_cast<float>(b.indptr[row + 1] - b.indptr[row]) : 1.0f;
        for (const int64_t end = at + chunk.of_piece[i - bounds[c]]; at < end; ++at) {
          b.edge_weight[starts[c] + at] = graph.edge_weight[chunk.edge[at]] * scale;
        }
      }
    });
  }
  const int64_t total = fits ? b.needed : 0;
  team.For((b.room - total + kPadding - 1) / kPadding, [&](int64_t part) {
    const int64_t begin = total + part * kPadding, end = std::min(begin + kPadding, b.room);
    std::fill(b.indices + begin, b.indices + end, static_cast<int32_t>(b.num_rows));
    if (b.edge_id != nullptr) std::fill(b.edge_id + begin, b.edge_id + end, graph.num_edges);
    if (b.edge_weight != nullptr) std::fill(b.edge_weight + begin, b.edge_weight + end, 0.0f);
  });
  if (shared) scratch->bits.Clear(scratch->ordered);
  Give(std::move(scratch));
  return "";
}

}  // namespace jgs
