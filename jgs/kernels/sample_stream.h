// How sample_hops.h, which alone includes this, reads the graph without waiting for it.
#ifndef JGS_KERNELS_SAMPLE_STREAM_H_
#define JGS_KERNELS_SAMPLE_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "relabel.h"
#include "sample.h"
#include "workspace.h"

namespace jgs {

constexpr int kFlight = 64;  // edges whose reads are under way together
constexpr int kShort = 16;   // a row of so many is read together
static_assert(kFlight <= RelabelerOf<int32_t>::kMost, "they are inserted together");

// Prefetches to the second-level cache, which more reads can be under way to than to the first.
template <typename T>
JGS_INLINE inline void PrefetchFar(const T* address) {
  __builtin_prefetch(address, 0, 2);
}

// Takes the drawn edges of a chunk through three stages, a batch apart, so that no read waits:
// prefetch the neighbour; read the neighbour and prefetch its table entry; insert it. Without
// `relabel` only the neighbour is read. With cutoffs (`timed`) each row has an era, and `Id` is that
// of the relabeler.
template <bool timed, typename Id = std::conditional_t<timed, int64_t, int32_t>>
class StreamOf {
 public:
  StreamOf(const GraphView& graph, const Hop& hop, bool relabel, Workspace& work, int64_t chunk)
      : graph_(graph),
        hop_(hop),
        relabel_(relabel),
        weights_(hop.edge_weight != nullptr && graph.edge_weight != nullptr),
        relabeler_(RelabelerIn<Id>(work)),
        chunk_(chunk),
        next_(work.bound[chunk]) {}

  // Adds edges to `edges` from now on, and reads nothing.
  void OnlyList(std::vector<int64_t>* edges) { list_ = edges; }

  // Adds the edges edge_of(0), ..., edge_of(count - 1) of a row of this era.
  template <typename EdgeOf>
  void Add(int64_t count, const EdgeOf& edge_of, int32_t era = 0) {
    if (list_ != nullptr) {
      for (int64_t i = 0; i < count; ++i) list_->push_back(edge_of(i));
      return;
    }
    for (int64_t i = 0; i < count;) {
      // Short rows are not divided, so that the same steps follow each other.
      if (filled_ == kFlight || (count <= kShort && filled_ + count > kFlight)) Advance();
      int64_t* const free = &batch_[now_][filled_];
      const int some = static_cast<int>(std::min<int64_t>(count - i, kFlight - filled_));
      for (int j = 0; j < some; ++j) {
        free[j] = edge_of(i + j);
        if constexpr (timed) era_[now_][filled_ + j] = era;
      }
      i += some;
      filled_ += some;
    }
  }

  // As Add, for few edges and without a branch for each: it also looks at those from `count` to
  // `most`, which is at most kFlight.
  template <typename EdgeOf>
  void AddFew(int64_t most, int64_t count, const EdgeOf& edge_of, int32_t era = 0) {
    if (list_ != nullptr) return Add(count, edge_of, era);
    if (filled_ + most > kFlight) Advance();
    int64_t* const free = &batch_[now_][filled_];
    for (int64_t i = 0; i < most; ++i) {
      free[i] = edge_of(i);
      if constexpr (timed) era_[now_][filled_ + i] = era;
    }
    filled_ += static_cast<int>(count);
  }

  // Finishes the edges that are under way.
  void Finish() {
    for (int stage = 0; stage < 3; ++stage) Advance();
    if (relabel_ && !relabeler_.EndChunk(chunk_)) fits_ = false;
  }

  int64_t num_edges() const { return num_edges_; }
  bool good() const { return good_; }  // whether every neighbour was a node
  bool fits() const { return fits_; }

 private:
  void Advance() {
    // Addresses need translation, for which a prefetch waits. In a loop of their own many wait at
    // once. (In a function of its own GCC would drop the call.)
    const int64_t* const edges = batch_[now_];
    for (int i = 0; i < filled_; ++i) PrefetchFar(&graph_.indices[edges[i]]);
    if (weights_) {
      for (int i = 0; i < filled_; ++i) PrefetchFar(&graph_.edge_weight[edges[i]]);
    }
    if (relabel_ && fits_ && good_ && inserting_ > 0) {
      fits_ = relabeler_.Insert(chunk_, next_ - inserting_, hop_.indices + next_ - inserting_,
                                timed ? inserting_era_ : nullptr, inserting_);
    }
    if constexpr (timed) std::copy_n(era_[now_ ^ 1], read_, inserting_era_);
    Read(batch_[now_ ^ 1], read_);
    inserting_ = read_;
    read_ = filled_;
    num_edges_ += filled_;
    filled_ = 0;
    now_ ^= 1;
  }

  void Read(const int64_t* edges, int count) {
    int32_t* neighbors = hop_.indices + next_;
    for (int i = 0; i < count; ++i) {
      const int32_t node = graph_.indices[edges[i]];
      good_ &= node >= 0 && node < graph_.num_nodes;
      neighbors[i] = node;
      if (relabel_) relabeler_.Prefetch(node, timed ? inserting_era_[i] : 0);
    }
    if (hop_.edge_id != nullptr) std::copy_n(edges, count, hop_.edge_id + next_);
    if (weights_) {
      float* weights = hop_.edge_weight + next_;
      for (int i = 0; i < count; ++i) weights[i] = graph_.edge_weight[edges[i]];
    }
    next_ += count;
  }

  const GraphView& graph_;
  const Hop& hop_;
  const bool relabel_, weights_;
  RelabelerOf<Id>& relabeler_;
  const int64_t chunk_;
  std::vector<int64_t>* list_ = nullptr;
  int64_t batch_[2][kFlight];
  int32_t era_[2][timed ? kFlight : 1], inserting_era_[timed ? kFlight : 1];
  int now_ = 0, filled_ = 0, read_ = 0, inserting_ = 0;
  int64_t next_, num_edges_ = 0;
  bool good_ = true, fits_ = true;
};

using Stream = StreamOf<false>;

}  // namespace jgs

#endif  // JGS_KERNELS_SAMPLE_STREAM_H_
