#include "extract.h"

#include <algorithm>
#include <utility>

#include "place_map.h"
#include "workspace.h"

namespace jgs {
namespace {

constexpr int64_t kFewest = 1 << 12, kMost = 1 << 16;  // edges that a thread takes at a time
constexpr int64_t kBlock = 256;                        // edges that are read before any is kept

void KeepRows(const Slice& slice, const int32_t* indices, const PlaceMap& places, int32_t none,
              int64_t begin, int64_t end, KeptEdges& kept) {
  kept.columns.clear();
  int64_t num = 0;
  slice.ForEach(begin, end, [&](int64_t column, int64_t first, int64_t count) {
    const int64_t before = num;
    int16_t open[kBlock];
    for (int64_t at = first; at < first + count; at += kBlock) {
      const int64_t size = std::min(kBlock, first + count - at);
      int64_t num_open = 0;
      for (int64_t i = 0; i < size; ++i) {  // no branch to mispredict
        open[num_open] = static_cast<int16_t>(i);
        num_open += places.MayHave(indices[at + i]);
      }
      if (static_cast<int64_t>(kept.row.size()) < num + kBlock) {
        kept.row.resize(2 * (num + kBlock));
        kept.edge_id.resize(2 * (num + kBlock));
      }
      for (int64_t i = 0; i < num_open; ++i) {
        const int32_t place = places.Find(indices[at + open[i]]);
        kept.row[num] = place;
        kept.edge_id[num] = at + open[i];
        num += place != none;
      }
    }
    const auto more = static_cast<int32_t>(num - before);
    if (more > 0) kept.columns.emplace_back(static_cast<int32_t>(column), more);
  });
  kept.num = num;
}

}  // namespace

template <typename Offset>
Slice::Slice(const Offset* indptr, const Offset* ends, int64_t num_all,
             const int32_t* columns, int64_t num_columns, const Limits& limits)
    : start_(num_columns, 0),
      ends_(num_columns + 1, 0),
      holes_(limits.num_excluded > 0 ? num_columns : 0) {
  constexpr int64_t kAhead = 16;
  const auto real = [&](int64_t i) { return columns[i] >= 0 && columns[i] < num_all; };
  for (int64_t i = 0; i < num_columns; ++i) {
    if (i + kAhead < num_columns && real(i + kAhead)) {
      __builtin_prefetch(&indptr[columns[i + kAhead]]);
    }
    int64_t degree = 0;
    if (real(i)) {
      start_[i] = static_cast<int64_t>(indptr[columns[i]]);
      degree = static_cast<int64_t>(ends[columns[i]]) - start_[i];
      if (!holes_.empty()) {
        holes_[i] = limits.In(start_[i], degree);
        degree -= holes_[i].num;
      }
    }
    ends_[i + 1] = ends_[i] + degree;
  }
}

template Slice::Slice(const int32_t*, const int32_t*, int64_t, const int32_t*, int64_t,
                      const Limits&);
template Slice::Slice(const int64_t*, const int64_t*, int64_t, const int32_t*, int64_t,
                      const Limits&);

int64_t Slice::Column(int64_t edge) const {
  return std::upper_bound(ends_.begin(), ends_.end(), edge) - ends_.begin() - 1;
}

int64_t ChunkOf(int64_t num_edges, int64_t num_threads) {
  return std::clamp(num_edges / (8 * num_threads) + 1, kFewest, kMost);
}

void Expand(const Slice& slice, const Expanded& r, const Executor& executor) {
  const int64_t num_columns = slice.num_columns();
  const int64_t num_edges = slice.num_edges() <= r.room ? slice.num_edges() : 0;
  for (int64_t c = 0; c <= num_columns; ++c) {
    r.offsets[c] = num_edges > 0 ? static_cast<int32_t>(slice.begin(c)) : 0;
  }
  const int64_t size = ChunkOf(r.room, executor.num_threads);
  ParallelFor(executor, (r.room + size - 1) / size, [&](int64_t chunk) {
    const int64_t begin = chunk * size, end = std::min(begin + size, r.room);
    int64_t to = begin;
    slice.ForEach(begin, std::min(end, num_edges),
                  [&](int64_t column, int64_t first, int64_t count) {
                    std::fill_n(r.column + to, count, static_cast<int32_t>(column));
                    for (int64_t i = 0; i < count; ++i) r.at[to + i] = first + i;
                    to += count;
                  });
    std::fill(r.column + to, r.column + end, static_cast<int32_t>(num_columns));
    std::fill(r.at + to, r.at + end, int64_t{0});
  });
}

void ExtractRows(const Slice& slice, const int32_t* indices, const int32_t* rows,
                 int64_t num_nodes, Extracted& r, const Executor& executor) {
  const int64_t num_edges = slice.num_edges() <= r.looked_room ? slice.num_edges() : 0;
  const int64_t num_columns = slice.num_columns();
  const int64_t size = ChunkOf(num_edges, executor.num_threads);
  const int64_t num_chunks = (num_edges + size - 1) / size;
  const PlaceMap places(rows, r.num_rows, num_nodes);
  const int32_t none = static_cast<int32_t>(r.num_rows);
  auto work = Pool().Take();
  std::vector<KeptEdges>& kept = work->kept;
  if (static_cast<int64_t>(kept.size()) < num_chunks) kept.resize(num_chunks);
  Team team(executor);
  team.For(num_chunks, [&](int64_t chunk) {
    const int64_t begin = chunk * size, end = std::min(begin + size, num_edges);
    KeepRows(slice, indices, places, none, begin, end, kept[chunk]);
  });
  std::vector<int64_t> starts(num_chunks + 1, 0);
  for (int64_t c = 0; c < num_chunks; ++c) {
    starts[c + 1] = starts[c] + kept[c].num;
  }
  r.selected = starts[num_chunks];
  const bool fits = r.selected <= r.room;
  const int64_t total = fits ? r.selected : 0;
  std::fill_n(r.indptr, num_columns + 1, 0);
  if (fits) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      for (const auto& [column, count] : kept[chunk].columns) r.indptr[column + 1] += count;
    }
    for (int64_t c = 0; c < num_columns; ++c) r.indptr[c + 1] += r.indptr[c];
    team.For(num_chunks, [&](int64_t chunk) {
      const KeptEdges& mine = kept[chunk];
      std::copy_n(mine.row.data(), mine.num, r.row + starts[chunk]);
      std::copy_n(mine.edge_id.data(), mine.num, r.edge_id + starts[chunk]);
      int32_t* to = r.column + starts[chunk];
      for (const auto& [column, count] : mine.columns) to = std::fill_n(to, count, column);
    });
  }
  const int64_t padding = r.room - total, piece = kMost;
  team.For((padding + piece - 1) / piece, [&](int64_t chunk) {
    const int64_t begin = total + chunk * piece, end = std::min(begin + piece, r.room);
    std::fill(r.column + begin, r.column + end, static_cast<int32_t>(num_columns));
    std::fill(r.row + begin, r.row + end, none);
    std::fill(r.edge_id + begin, r.edge_id + end, r.no_edge);
  });
  Pool().Give(std::move(work));
}

void Rearrange(const Slice& slice, const int32_t* row, const int64_t* edge_id,
               const int32_t* rows, int64_t num_rows, const Rearranged& r,
               const Executor& executor) {
  const int64_t num_columns = slice.num_columns();
  const int64_t num_edges = slice.num_edges() <= r.room ? slice.num_edges() : 0;
  for (int64_t c = 0; c <= num_columns; ++c) {
    r.offsets[c] = num_edges > 0 ? static_cast<int32_t>(slice.begin(c)) : 0;
  }
  const auto node = [&](int32_t slot) {
    if (rows == nullptr) return slot;
    return slot >= 0 && slot < num_rows ? rows[slot] : r.num_nodes;
  };
  const int64_t size = ChunkOf(r.room, executor.num_threads);
  ParallelFor(executor, (r.room + size - 1) / size, [&](int64_t chunk) {
    const int64_t begin = chunk * size, end = std::min(begin + size, r.room);
    int64_t to = begin;
    slice.ForEach(begin, std::min(end, num_edges), [&](int64_t, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        r.at[to + i] = static_cast<int32_t>(first + i);
        r.node[to + i] = node(row[first + i]);
      }
      std::copy_n(edge_id + first, count, r.edge_id + to);
      to += count;
    });
    std::fill(r.at + to, r.at + end, 0);
    std::fill(r.node + to, r.node + end, r.num_nodes);
    std::fill(r.edge_id + to, r.edge_id + end, r.no_edge);
  });
}

void Places(const int32_t* nodes, int64_t num, const int32_t* ids, int64_t num_ids,
            int64_t num_nodes, int32_t* place, const Executor& executor) {
  const PlaceMap places(nodes, num, num_nodes);
  ParallelFor(executor, (num_ids + kMost - 1) / kMost, [&](int64_t chunk) {
    const int64_t begin = chunk * kMost, end = std::min(begin + kMost, num_ids);
    for (int64_t i = begin; i < end; ++i) {
      place[i] = ids[i] < 0 ? static_cast<int32_t>(num) : places.Find(ids[i]);
    }
  });
}

void Distinct(const int32_t* nodes, int64_t num, int64_t room, int32_t padding,
              int32_t* distinct) {
  std::vector<int32_t> sorted(nodes, nodes + num);
  std::sort(sorted.begin(), sorted.end());
  const auto last = std::unique(sorted.begin(), sorted.end());
  const int64_t count = std::min<int64_t>(last - sorted.begin(), room);
  std::copy_n(sorted.begin(), count, distinct);
  std::fill(distinct + count, distinct + room, padding);
}

}  // namespace jgs
