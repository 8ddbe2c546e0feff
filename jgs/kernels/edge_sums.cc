#include "edge_sums.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "flush.h"
#include "workspace.h"

namespace jgs {
namespace {

constexpr int64_t kPiece = 512;         // edges whose values are computed at a time
constexpr int64_t kSlots = 1 << 14;     // slots that a thread takes at a time
constexpr int64_t kEdges = 1 << 14;     // edges that a thread takes at a time
constexpr uint8_t kNotFinite = 255;     // the exponent of infinity and NaN

// The exponent field of the value. Only this is needed of a slot's largest value, and one byte
// for each slot stays in the cache.
uint8_t Exponent(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint8_t>(bits >> 23);
}

double FromBits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t ToBits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// 2**shift of a slot, with which its largest value has 30 bits before the point; and 2**-shift.
double Scale(uint8_t largest) { return FromBits((1023ull + 156 - largest) << 52); }
double Unit(uint8_t largest) { return FromBits((1023ull - 156 + largest) << 52); }

// value * scale, below 2**31, rounded to the nearest (even) integer: adding 1.5 * 2**52 leaves
// no bits after the point.
uint64_t Fixed(float value, double scale) {
  constexpr double kShift = 0x1.8p52;
  return ToBits(static_cast<double>(value) * scale + kShift) - ToBits(kShift);
}

struct Largest {
  uint8_t* largest;
  void Add(int64_t slot, float value) const {
    largest[slot] = std::max(largest[slot], Exponent(value));
  }
};

struct Total {
  const uint8_t* largest;
  uint64_t* total;
  void Add(int64_t slot, float value) const {
    total[slot] += Fixed(value, Scale(largest[slot]));
  }
};

// Runs `walk(chunk, accumulator of T [num_slots])` for all chunks. The first accumulator then
// has what `merge(T& first, T other)` makes of all. Each accumulator belongs to one thread.
// There are fewer of them than threads if their slots would outnumber the edges.
template <typename T, typename Walk, typename Merge>
void Accumulate(Team& team, int64_t num_edges, int64_t num_slots, int64_t num_chunks,
                Scratch<T>& memory, const Walk& walk, const Merge& merge) {
  const int64_t most = std::min(team.num_threads(), num_chunks);
  const int64_t num = std::clamp(num_edges / std::max<int64_t>(num_slots, 1), int64_t{1},
                                 std::max<int64_t>(most, 1));
  memory.Reserve(num * num_slots);
  std::atomic<int64_t> next{0};
  std::vector<uint8_t> used(num, 0);
  team.For(num, [&](int64_t part) {
    T* mine = memory.data() + part * num_slots;
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= num_chunks) return;
      if (used[part] == 0) std::fill_n(mine, num_slots, T{0});
      used[part] = 1;
      walk(chunk, mine);
    }
  });
  if (used[0] == 0) std::fill_n(memory.data(), num_slots, T{0});
  for (int64_t part = 1; part < num; ++part) {
    if (used[part] == 0) continue;
    const T* other = memory.data() + part * num_slots;
    team.For((num_slots + kSlots - 1) / kSlots, [&](int64_t chunk) {
      const int64_t end = std::min((chunk + 1) * kSlots, num_slots);
      for (int64_t s = chunk * kSlots; s < end; ++s) merge(memory[s], other[s]);
    });
  }
}

// Walks twice over the same edges: `walk(chunk, Largest or Total)`.
template <typename Walk>
void Sums(int64_t num_edges, int64_t num_slots, int64_t num_chunks, const Walk& walk,
          float* sums, const Executor& executor) {
  Team team(executor);
  auto work = Pool().Take();
  Scratch<uint8_t>& largest = work->sums.largest;
  Scratch<uint64_t>& total = work->sums.total;
  Accumulate(
      team, num_edges, num_slots, num_chunks, largest,
      [&](int64_t chunk, uint8_t* mine) { walk(chunk, Largest{mine}); },
      [](uint8_t& first, uint8_t other) { first = std::max(first, other); });
  Accumulate(
      team, num_edges, num_slots, num_chunks, total,
      [&](int64_t chunk, uint64_t* mine) { walk(chunk, Total{largest.data(), mine}); },
      [](uint64_t& first, uint64_t other) { first += other; });
  team.For((num_slots + kSlots - 1) / kSlots, [&](int64_t chunk) {
    const FlushSubnormals flush;
    const int64_t end = std::min((chunk + 1) * kSlots, num_slots);
    for (int64_t s = chunk * kSlots; s < end; ++s) {
      const double exact = static_cast<double>(static_cast<int64_t>(total[s]));
      const float sum = static_cast<float>(exact * Unit(largest[s]));
      sums[s] = largest[s] < kNotFinite ? sum : __builtin_nanf("");
    }
  });
  Pool().Give(std::move(work));
}

template <typename Apply>
void Map(float* value, const float* other, int64_t num, const Apply& apply) {
  for (int64_t i = 0; i < num; ++i) value[i] = apply(value[i], other[i]);
}

void ApplyStep(const EdgeStep& step, const float* other, float* value, int64_t num) {
  const bool r = step.reflected;
  switch (step.operation) {
    case Operation::kAdd:
      return Map(value, other, num, [](float a, float b) { return a + b; });
    case Operation::kMul:
      return Map(value, other, num, [](float a, float b) { return a * b; });
    case Operation::kSquare:
      return Map(value, value, num, [](float a, float) { return a * a; });
    case Operation::kSub:
      if (r) return Map(value, other, num, [](float a, float b) { return b - a; });
      return Map(value, other, num, [](float a, float b) { return a - b; });
    case Operation::kDiv:
      if (r) return Map(value, other, num, [](float a, float b) { return b / a; });
      return Map(value, other, num, [](float a, float b) { return a / b; });
  }
}

// Consecutive edges, from a few columns.
struct Piece {
  int64_t num = 0;
  int32_t row[kPiece], column[kPiece];
  float value[kPiece];
};

void Evaluate(const std::vector<EdgeStep>& steps, Piece& piece) {
  float other[kPiece];
  for (const EdgeStep& step : steps) {
    const int32_t* slot = step.kind == EdgeStep::kRow ? piece.row : piece.column;
    if (step.operation != Operation::kSquare) {
      for (int64_t i = 0; i < piece.num; ++i) {
        other[i] = step.kind == EdgeStep::kNumber ? step.number : step.vector[slot[i]];
      }
    }
    ApplyStep(step, other, piece.value, piece.num);
  }
}

// Calls visit(piece) for the edges [begin, end) of the chain's slice, with their values.
template <typename Visit>
void ForEachPiece(const EdgeChain& chain, int64_t begin, int64_t end, const Visit& visit) {
  Piece piece;
  const auto finish = [&] {
    Evaluate(chain.steps, piece);
    visit(piece);
    piece.num = 0;
  };
  chain.slice.ForEach(begin, end, [&](int64_t column, int64_t first, int64_t count) {
    while (count > 0) {
      const int64_t some = std::min(count, kPiece - piece.num);
      std::copy_n(chain.indices + first, some, piece.row + piece.num);
      std::fill_n(piece.column + piece.num, some, static_cast<int32_t>(column));
      if (chain.weight != nullptr) {
        std::copy_n(chain.weight + first, some, piece.value + piece.num);
      } else {
        std::fill_n(piece.value + piece.num, some, 1.0f);
      }
      piece.num += some, first += some, count -= some;
      if (piece.num == kPiece) finish();
    }
  });
  if (piece.num > 0) finish();
}

// The value that all edges of a column have, for a chain without row vectors and weights.
std::vector<float> ColumnValues(const EdgeChain& chain) {
  const FlushSubnormals flush;
  std::vector<float> values(chain.slice.num_columns());
  Piece piece;
  const int64_t num_columns = chain.slice.num_columns();
  for (int64_t at = 0; at < num_columns; at += kPiece) {
    piece.num = std::min(kPiece, num_columns - at);
    for (int64_t i = 0; i < piece.num; ++i) piece.column[i] = static_cast<int32_t>(at + i);
    std::fill_n(piece.value, piece.num, 1.0f);
    Evaluate(chain.steps, piece);
    std::copy_n(piece.value, piece.num, &values[at]);
  }
  return values;
}

bool ByColumnAlone(const EdgeChain& chain) {
  bool row = chain.weight != nullptr;
  for (const EdgeStep& step : chain.steps) row |= step.kind == EdgeStep::kRow;
  return !row;
}

int64_t NumChunks(int64_t num_edges) { return (num_edges + kEdges - 1) / kEdges; }

}  // namespace

void ExactSums(const float* values, const int32_t* slot, int64_t num_edges, int64_t width,
               int64_t num_slots, float* sums, const Executor& executor) {
  const uint32_t most = static_cast<uint32_t>(num_slots);
  const auto walk = [&](int64_t chunk, const auto& into) {
    const FlushSubnormals flush;
    const int64_t end = std::min((chunk + 1) * kEdges, num_edges);
    if (width == 1) {
      for (int64_t e = chunk * kEdges; e < end; ++e) {
        if (static_cast<uint32_t>(slot[e]) < most) into.Add(slot[e], values[e]);
      }
      return;
    }
    for (int64_t e = chunk * kEdges; e < end; ++e) {
      if (static_cast<uint32_t>(slot[e]) >= most) continue;
      for (int64_t h = 0; h < width; ++h) {
        into.Add(static_cast<int64_t>(slot[e]) * width + h, values[e * width + h]);
      }
    }
  };
  Sums(num_edges * width, num_slots * width, NumChunks(num_edges), walk, sums, executor);
}

void SumByRow(const EdgeChain& chain, int64_t num_rows, float* sums, const Executor& executor) {
  const int64_t num_edges = chain.slice.num_edges();
  const auto each = [&](int64_t chunk, const auto& into) {
    const FlushSubnormals flush;
    ForEachPiece(chain, chunk * kEdges, std::min((chunk + 1) * kEdges, num_edges),
                 [&](const Piece& piece) {
                   for (int64_t i = 0; i < piece.num; ++i) into.Add(piece.row[i], piece.value[i]);
                 });
  };
  if (!ByColumnAlone(chain)) {
    return Sums(num_edges, num_rows, NumChunks(num_edges), each, sums, executor);
  }
  const std::vector<float> values = ColumnValues(chain);
  const auto by_column = [&](int64_t chunk, const auto& into) {
    const FlushSubnormals flush;
    chain.slice.ForEach(chunk * kEdges, std::min((chunk + 1) * kEdges, num_edges),
                        [&](int64_t column, int64_t first, int64_t count) {
                          const int32_t* row = chain.indices + first;
                          const float value = values[column];
                          for (int64_t i = 0; i < count; ++i) into.Add(row[i], value);
                        });
  };
  Sums(num_edges, num_rows, NumChunks(num_edges), by_column, sums, executor);
}

void SumByColumn(const EdgeChain& chain, float* sums, const Executor& executor) {
  const int64_t num_edges = chain.slice.num_edges();
  const auto walk = [&](int64_t chunk, const auto& into) {
    const FlushSubnormals flush;
    ForEachPiece(chain, chunk * kEdges, std::min((chunk + 1) * kEdges, num_edges),
                 [&](const Piece& piece) {
                   for (int64_t i = 0; i < piece.num; ++i) {
                     into.Add(piece.column[i], piece.value[i]);
                   }
                 });
  };
  Sums(num_edges, chain.slice.num_columns(), NumChunks(num_edges), walk, sums, executor);
}

void CountByRow(const Slice& slice, const int32_t* indices, int64_t num_rows, int32_t* count,
                const Executor& executor) {
  Team team(executor);
  auto work = Pool().Take();
  Scratch<uint32_t>& counts = work->sums.count;
  const int64_t num_edges = slice.num_edges();
  Accumulate(
      team, num_edges, num_rows, NumChunks(num_edges), counts,
      [&](int64_t chunk, uint32_t* mine) {
        slice.ForEach(chunk * kEdges, std::min((chunk + 1) * kEdges, num_edges),
                      [&](int64_t, int64_t first, int64_t some) {
                        for (int64_t i = 0; i < some; ++i) ++mine[indices[first + i]];
                      });
      },
      [](uint32_t& first, uint32_t other) { first += other; });
  for (int64_t r = 0; r < num_rows; ++r) count[r] = static_cast<int32_t>(counts[r]);
  Pool().Give(std::move(work));
}

}  // namespace jgs
