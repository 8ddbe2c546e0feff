// Extract: the edges of some columns, all or those from some rows; the places of nodes in a
// list.
#ifndef JGS_KERNELS_EXTRACT_H_
#define JGS_KERNELS_EXTRACT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eligible.h"
#include "parallel.h"

namespace jgs {

// The edges of some columns: where they are among compressed columns, and where they are put.
class Slice {
 public:
  // `columns` [num_columns] in [0, num_all), others have no edges; `indptr` [num_all + 1]. The
  // slice is without the edges that `limits` exclude, whose array it reads later.
  template <typename Offset>
  Slice(const Offset* indptr, const Offset* ends, int64_t num_all, const int32_t* columns, int64_t num_columns,
        const Limits& limits = {});

  int64_t num_edges() const { return ends_.back(); }
  int64_t num_columns() const { return static_cast<int64_t>(start_.size()); }
  int64_t begin(int64_t column) const { return ends_[column]; }

  // Calls visit(column, first, count), in order, for the columns' parts of the slice's edges
  // [begin, end); `first` is a position in the compressed columns. A column with excluded edges
  // has several parts.
  template <typename Visit>
  void ForEach(int64_t begin, int64_t end, const Visit& visit) const {
    if (begin >= end) return;
    int64_t column = Column(begin);
    for (int64_t at = begin; at < end; ++column) {
      const int64_t stop = std::min(ends_[column + 1], end);
      if (stop > at) ForRuns(column, at - ends_[column], stop - at, visit);
      at = stop;
    }
  }

 private:
  int64_t Column(int64_t edge) const;

  // Visits `count` edges of a column from number `position` on, run by run between holes.
  template <typename Visit>
  void ForRuns(int64_t column, int64_t position, int64_t count, const Visit& visit) const {
    const int64_t start = start_[column];
    const Holes holes = holes_.empty() ? Holes{} : holes_[column];
    while (count > 0) {
      const int64_t first = holes.Edge(start, position), before = first - start - position;
      const int64_t run =
          before < holes.num ? std::min(count, holes.edge[before] - first) : count;
      visit(column, first, run);
      position += run, count -= run;
    }
  }

  std::vector<int64_t> start_;  // [columns] where each begins in the compressed columns
  std::vector<int64_t> ends_;   // [columns + 1] where each begins in the slice
  std::vector<Holes> holes_;    // [columns] each one's excluded edges; empty: there are none
};

// The size of the chunks of `num_edges` edges that threads take.
int64_t ChunkOf(int64_t num_edges, int64_t num_threads);

struct Expanded {
  int64_t room;
  int32_t* offsets;  // [columns + 1]
  int32_t* column;   // [room], the number of columns in padding
  int64_t* at;       // [room], positions among the compressed columns, 0 in padding
};

// Writes the edges of a slice; nothing if they exceed the room.
void Expand(const Slice& slice, const Expanded& result, const Executor& executor);

struct Extracted {
  int64_t looked_room, room;
  int64_t num_rows;    // the row that padding has
  int64_t no_edge;     // the edge_id that padding has
  int32_t* indptr;     // [columns + 1]
  int32_t* column;     // [room]
  int32_t* row;        // [room]
  int64_t* edge_id;    // [room]
  int64_t selected;    // a result: the number of edges, if the slice fits its room
};

// The edges of a slice of `indices` whose row is in `rows` [num_rows], with its first place
// there. Ids outside [0, num_nodes) are ignored. Nothing is written if a room is too small.
void ExtractRows(const Slice& slice, const int32_t* indices, const int32_t* rows,
                 int64_t num_nodes, Extracted& result, const Executor& executor);

struct Rearranged {
  int64_t room;
  int32_t num_nodes;  // the node that padding has
  int64_t no_edge;    // the edge_id that padding has
  int32_t* offsets;   // [columns + 1]
  int32_t* at;        // [room], positions among the built edges, 0 in padding
  int32_t* node;      // [room]
  int64_t* edge_id;   // [room]
};

// The edges of a slice of built edges: the position, the row's node and the id of each. `rows`
// [num_rows] are the nodes of rows; if it is null, `row` has nodes. Nothing is written if the
// edges exceed the room.
void Rearrange(const Slice& slice, const int32_t* row, const int64_t* edge_id,
               const int32_t* rows, int64_t num_rows, const Rearranged& result,
               const Executor& executor);

// The first place of each of `ids` [num_ids] in `nodes` [num]; `num` if it is not there, or is
// outside [0, num_nodes).
void Places(const int32_t* nodes, int64_t num, const int32_t* ids, int64_t num_ids,
            int64_t num_nodes, int32_t* place, const Executor& executor);

// The `room` smallest distinct numbers of `nodes` [num], ascending, followed by `padding`.
void Distinct(const int32_t* nodes, int64_t num, int64_t room, int32_t padding,
              int32_t* distinct);

}  // namespace jgs

#endif  // JGS_KERNELS_EXTRACT_H_
