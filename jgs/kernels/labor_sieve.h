// A bit for each node that says whether its random number is small. If a hop reads far more
// neighbours than the graph has nodes, every node's number is drawn once, and a neighbour whose
// bit is 0 is not drawn again. Included by labor.cc.
#ifndef JGS_KERNELS_LABOR_SIEVE_H_
#define JGS_KERNELS_LABOR_SIEVE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "labor_scan.h"

namespace jgs {

// A node's bit is 1 if the upper half of its number is below 2**(32 - exponent).
struct Sieve {
  static constexpr int kMost = 10;              // the largest exponent
  static constexpr int64_t kWordsATask = 1024;  // that a thread fills at a time

  const uint32_t* words;  // [num_words + 1]; the last is all ones, for ids that are no nodes
  uint32_t num_words;
  int exponent;  // 0: there is no sieve

  static int64_t WordsOf(int64_t num_nodes) {
    return (num_nodes + kScanLanes - 1) / kScanLanes;
  }

  // Whether the sieve passes every neighbour that a target of this degree takes.
  bool Serves(int64_t fanout, int64_t degree) const {
    return exponent > 0 && degree >> exponent >= fanout;
  }
};

// The number of a hop's candidates by the logarithm of degree / fanout, rounded down.
struct Candidates {
  std::array<int64_t, Sieve::kMost + 1> number{};
  int64_t hubs = 0;  // those of hubs, which are not looked up once there is a sieve

  void Add(int64_t fanout, int64_t degree) {
    const int log = 63 - __builtin_clzll(static_cast<uint64_t>(degree / fanout));
    number[std::min(log, Sieve::kMost)] += degree;
  }

  void AddHub(int64_t degree) { hubs += degree; }

  void Add(const Candidates& other) {
    hubs += other.hubs;
    for (int i = 0; i <= Sieve::kMost; ++i) number[i] += other.number[i];
  }

  // The exponent of the sieve with which the hop takes the least time; 0: no sieve. By
  // measurement a lookup in the sieve takes half as long as one of the `draws` blocks of random
  // bits.
  int BestExponent(int64_t num_nodes, int draws) const {
    constexpr int64_t kLook = 1 << Sieve::kMost, kDraw = 2 * kLook;
    int64_t sieved = 0, most = 0;
    int best = 0;
    for (int exponent = Sieve::kMost; exponent > 0; --exponent) {
      sieved += number[exponent];
      const int64_t each = draws * (kDraw - (kDraw >> exponent)) - kLook;
      const int64_t saved = sieved * each + (hubs - num_nodes) * draws * kDraw;
      if (saved > most) {
        most = saved;
        best = exponent;
      }
    }
    return best;
  }
};

// Fills the words [begin, end) of a sieve. If `passed` is not null, it also gets a bit for each
// of their nodes: whether the upper half of its number is at most `most`.
template <bool dependent>
struct FillSieve {
  const Hop& hop;
  int exponent;
  int64_t begin, end;
  uint32_t* words;
  uint32_t most = 0;
  uint32_t* passed = nullptr;  // [end - begin]

  JGS_INLINE void operator()() const {
    const Numbers<dependent> numbers(hop);
    const uint32_t below = uint32_t{1} << (32 - exponent);
    for (int64_t word = begin; word < end; ++word) {
      int32_t node[kScanLanes];
      uint32_t upper[kScanLanes], bits = 0;
      const int32_t first = static_cast<int32_t>(word * kScanLanes);
      for (int r = 0; r < kScanLanes; ++r) node[r] = first + r;
      numbers.Upper(node, upper);
      for (int r = 0; r < kScanLanes; ++r) bits |= (upper[r] < below ? 1u : 0u) << r;
      words[word] = bits;
      if (passed == nullptr) continue;
      uint32_t hits = 0;
      for (int r = 0; r < kScanLanes; ++r) hits |= (upper[r] <= most ? 1u : 0u) << r;
      passed[word - begin] = hits;
    }
  }
};

// The neighbours of a piece that a sieve passes, and their positions in the piece.
struct Sifted {
  int count;
  int32_t node[Piece::kPiece], position[Piece::kPiece];
};

struct Sift {
  const Sieve& sieve;
  const Piece& p;
  Sifted& out;

  // No branch depends on whether a neighbour passes: it would be mispredicted each time.
  JGS_INLINE void operator()() const {
    const uint32_t* const words = sieve.words;
    const uint32_t last = sieve.num_words;
    int32_t* const position = out.position;
    const int count = p.count;
    size_t passed = 0;
    for (int first = 0; first < count; first += kScanLanes) {
      p.PrefetchAhead(first);
      const int32_t* const node = p.neighbors + first;
      const int num = std::min(count - first, kScanLanes);
      uint32_t largest = ~uint32_t{0};
      if (num == kScanLanes) {
        largest = 0;
        for (int r = 0; r < kScanLanes; ++r) {
          largest = std::max(largest, static_cast<uint32_t>(node[r]));
        }
      }
      if (largest / kScanLanes < last) {
#pragma GCC unroll 8
        for (int r = 0; r < kScanLanes; ++r) {
          const uint32_t v = static_cast<uint32_t>(node[r]);
          position[passed] = first + r;
          passed += (words[v / kScanLanes] & uint32_t{1} << v % kScanLanes) != 0;
        }
      } else {  // the end of the piece, or an id that is no node
        for (int r = 0; r < num; ++r) {
          const uint32_t v = static_cast<uint32_t>(node[r]);
          position[passed] = first + r;
          passed += words[std::min(v / kScanLanes, last)] >> (v % kScanLanes) & 1;
        }
      }
    }
    out.count = static_cast<int>(passed);
    for (size_t i = 0; i < passed; ++i) out.node[i] = p.neighbors[position[i]];
  }
};

}  // namespace jgs

#endif  // JGS_KERNELS_LABOR_SIEVE_H_
