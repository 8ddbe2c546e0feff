// The first places of nodes in a list of nodes.
#ifndef JGS_KERNELS_PLACE_MAP_H_
#define JGS_KERNELS_PLACE_MAP_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "isa.h"

namespace jgs {

// A filter of bits, 32 for each entry of the table, lets most other nodes be skipped without a
// search. The memory depends on the number of nodes in the list, not on the graph.
class PlaceMap {
 public:
  PlaceMap() = default;
  PlaceMap(const int32_t* nodes, int64_t num, int64_t num_nodes) { Reset(nodes, num, num_nodes); }

  // Stores the places of `nodes` [num]; ids outside [0, num_nodes) are left out.
  void Reset(const int32_t* nodes, int64_t num, int64_t num_nodes) {
    none_ = static_cast<int32_t>(num);
    int bits = 4;
    while (bits < 30 && int64_t{1} << bits < 2 * num) ++bits;
    shift_ = 32 - bits;
    mask_ = (1u << bits) - 1;
    table_.assign(size_t{1} << bits, Entry{-1, none_});
    const int filter_bits = std::min(bits + 5, 32);
    filter_shift_ = 32 - filter_bits;
    filter_.assign((size_t{1} << filter_bits) / 32, 0);
    for (int64_t i = 0; i < num; ++i) {
      if (nodes[i] < 0 || nodes[i] >= num_nodes) continue;
      const uint32_t hash = Hash(nodes[i]);
      uint32_t at = hash >> shift_;
      while (table_[at].node != -1 && table_[at].node != nodes[i]) at = (at + 1) & mask_;
      if (table_[at].node != -1) continue;
      table_[at] = {nodes[i], static_cast<int32_t>(i)};
      filter_[hash >> filter_shift_ >> 5] |= 1u << (hash >> filter_shift_ & 31);
    }
  }

  // Whether the node may be in the list.
  bool MayHave(int32_t node) const {
    const uint32_t bit = Hash(node) >> filter_shift_;
    return (filter_[bit >> 5] >> (bit & 31) & 1) != 0;
  }

  // The first place of the node, or the number of nodes if it is not there.
  int32_t Find(int32_t node) const {
    uint32_t at = Hash(node) >> shift_;
    while (table_[at].node != node && table_[at].node != -1) at = (at + 1) & mask_;
    return table_[at].node == node ? table_[at].place : none_;
  }

 private:
  struct Entry {
    int32_t node, place;
  };
  static uint32_t Hash(int32_t node) { return static_cast<uint32_t>(node) * 0x9E3779B1u; }

  int32_t none_ = 0;
  int shift_ = 28, filter_shift_ = 27;
  uint32_t mask_ = 15;
  std::vector<Entry> table_;
  std::vector<uint32_t> filter_;
};

// A PlaceMap with a bit for each node of the graph. It looks nodes up without a search, and is
// built in time proportional to the list.
class PlaceBits {
 public:
  // `ordered`: the nodes and their places, ascending and distinct.
  void Set(const std::vector<std::pair<int32_t, int32_t>>& ordered, int64_t num_nodes) {
    if (bits_.size() < static_cast<size_t>(num_nodes / 64 + 2)) {
      bits_.assign(num_nodes / 64 + 2, 0);
      before_.resize(bits_.size());
    }
    last_ = static_cast<uint32_t>(bits_.size() - 1);
    place_.clear();
    for (const auto& [node, place] : ordered) {
      uint64_t& word = bits_[node / 64];
      if (word == 0) before_[node / 64] = static_cast<int32_t>(place_.size());
      word |= uint64_t{1} << (node % 64);
      place_.push_back(place);
    }
  }

  void Clear(const std::vector<std::pair<int32_t, int32_t>>& ordered) {
    for (const auto& [node, place] : ordered) bits_[node / 64] = 0;
  }

  JGS_INLINE bool MayHave(int32_t node) const {  // the last word, for no node, is 0
    const auto id = static_cast<uint32_t>(node);
    return (bits_.data()[std::min(id / 64, last_)] >> (id % 64) & 1) != 0;
  }

  // The first place of a node that is in the list.
  JGS_INLINE int32_t Find(int32_t node) const {
    const auto id = static_cast<uint32_t>(node);
    const uint64_t lower = bits_[id / 64] & ((uint64_t{1} << (id % 64)) - 1);
    return place_[before_[id / 64] + __builtin_popcountll(lower)];
  }

 private:
  uint32_t last_ = 0;
  std::vector<uint64_t> bits_;
  std::vector<int32_t> before_;  // the number of nodes before each word that has nodes
  std::vector<int32_t> place_;
};

}  // namespace jgs

#endif  // JGS_KERNELS_PLACE_MAP_H_
