#include "collective.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <tuple>
#include <vector>

#include "flush.h"
#include "isa.h"

namespace jgs {
namespace {

constexpr int64_t kChunk = 1 << 14;  // candidates that a thread takes at a time
constexpr int64_t kBlock = 512;      // candidates that are hashed at a time

struct Ranked {
  double rank;
  int32_t node, slot;
  bool operator<(const Ranked& other) const {
    return std::tie(rank, node, slot) < std::tie(other.rank, other.node, other.slot);
  }
};

// See `exponential` in jgs/sampling/edges/random.py.
inline double Exponential(uint64_t bits, const int32_t* logarithms) {
  constexpr uint64_t kOne = uint64_t{1} << 53;
  constexpr int64_t kLog2 = 97551793252584;  // in units of 2**-47
  const uint64_t left = kOne - (bits >> 11 | 1);
  const int halved = __builtin_clzll(left) - 11;
  const uint64_t t = kOne - (left << halved);
  const int64_t part = static_cast<int64_t>(t >> 11 & 0x7FFFFFFF);
  const int64_t first = logarithms[t >> 42], second = logarithms[(t >> 42) + 1];
  const int64_t slope = first + ((second - first) * part >> 31);
  const double product = static_cast<double>(t) * static_cast<double>(slope);
  return product * 0x1p-83 + static_cast<double>(halved * kLog2) * 0x1p-47;
}

struct Rank {
  Key key;
  const int32_t* node;
  const float* weight;
  const int32_t* logarithms;
  int64_t num;
  double* rank;
  JGS_INLINE void operator()() const {
    uint32_t high[kBlock], low[kBlock];
    for (int64_t i = 0; i < num; ++i) {
      uint32_t x0 = static_cast<uint32_t>(node[i]), x1 = 0;
      Threefry(key, x0, x1);
      high[i] = x0, low[i] = x1;
    }
    for (int64_t i = 0; i < num; ++i) {
      const uint64_t bits = static_cast<uint64_t>(high[i]) << 32 | low[i];
      rank[i] = Exponential(bits, logarithms) / static_cast<double>(weight[i]);
    }
  }
};

// Leaves the `most` smallest ones, in any order.
void KeepSmallest(std::vector<Ranked>& ranked, int64_t most) {
  if (static_cast<int64_t>(ranked.size()) <= most) return;
  std::nth_element(ranked.begin(), ranked.begin() + most, ranked.end());
  ranked.resize(most);
}

// Adds those of the candidates [begin, end) to `found` that may be among the k + 1 smallest.
// None of these has a rank above `bound`, which every chunk lowers: a bound for some candidates
// is one for all.
void RankChunk(const Candidates& c, int64_t begin, int64_t end, int64_t k,
               std::atomic<double>& bound, std::vector<Ranked>& found) {
  const FlushSubnormals flush;
  const size_t most = static_cast<size_t>(2 * (k + 1));
  int32_t slot[kBlock], node[kBlock];
  float weight[kBlock];
  double rank[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    int64_t num = 0;
    for (int64_t i = at; i < std::min(at + kBlock, end); ++i) {  // no branch to mispredict
      slot[num] = static_cast<int32_t>(i);
      node[num] = c.nodes[i];
      weight[num] = c.weight[i];
      num += c.weight[i] > 0;
    }
    RunOn(BestIsa(), Rank{c.key, node, weight, c.logarithms, num, rank});
    const double limit = bound.load(std::memory_order_relaxed);
    for (int64_t i = 0; i < num; ++i) {
      if (rank[i] <= limit) found.push_back({rank[i], node[i], slot[i]});
    }
    if (found.size() <= most) continue;
    KeepSmallest(found, k + 1);
    const double mine = std::max_element(found.begin(), found.end())->rank;
    double before = bound.load(std::memory_order_relaxed);
    while (mine < before &&
           !bound.compare_exchange_weak(before, mine, std::memory_order_relaxed)) {
    }
  }
  KeepSmallest(found, k + 1);
}

}  // namespace

double SmallestRanks(const Candidates& c, int64_t k, int32_t* slot, const Executor& executor) {
  const int64_t num_chunks = (c.num + kChunk - 1) / kChunk;
  std::vector<std::vector<Ranked>> found(num_chunks);
  std::atomic<double> bound{std::numeric_limits<double>::infinity()};
  ParallelFor(executor, num_chunks, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk;
    RankChunk(c, begin, std::min(begin + kChunk, c.num), k, bound, found[chunk]);
  });
  std::vector<Ranked> all;
  for (const auto& some : found) all.insert(all.end(), some.begin(), some.end());
  KeepSmallest(all, k + 1);
  double least = std::numeric_limits<double>::infinity();
  if (static_cast<int64_t>(all.size()) > k) {
    std::nth_element(all.begin(), all.begin() + k, all.end());
    least = all[k].rank;
    all.resize(k);
  }
  std::sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) {
    return std::tie(a.node, a.rank, a.slot) < std::tie(b.node, b.rank, b.slot);
  });
  const int64_t num = static_cast<int64_t>(all.size());
  for (int64_t i = 0; i < num; ++i) slot[i] = all[i].slot;
  std::fill(slot + num, slot + k, static_cast<int32_t>(c.num));
  return least;
}

}  // namespace jgs
