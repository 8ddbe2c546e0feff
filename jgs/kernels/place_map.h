// Nodes and their first places among a list of nodes.
#ifndef JGS_KERNELS_PLACE_MAP_H_
#define JGS_KERNELS_PLACE_MAP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jgs {

// A bit for every 32nd part of a node lets most others be passed over without a search; the
// memory depends on the nodes' number, not on the graph's.
class PlaceMap {
 public:
  PlaceMap() = default;
  PlaceMap(const int32_t* nodes, int64_t num, int64_t num_nodes) { Reset(nodes, num, num_nodes); }

  // The places of `nodes` [num]; ids outside [0, num_nodes) have none.
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

  // Whether the node may be there.
  bool MayHave(int32_t node) const {
    const uint32_t bit = Hash(node) >> filter_shift_;
    return (filter_[bit >> 5] >> (bit & 31) & 1) != 0;
  }

  // The node's first place, or the number of nodes.
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

}  // namespace jgs

#endif  // JGS_KERNELS_PLACE_MAP_H_
