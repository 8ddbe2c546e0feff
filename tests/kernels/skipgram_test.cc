// The plain C++ layer of skip-gram and of the table's rows on threads of its own, without XLA: for
// ThreadSanitizer. Every thread count must give the same bits. The loss must be that of plain
// loops, on the instructions that JGS_MAX_ISA allows. Equal rows must get their sum. Run
// by `make sanitize` and by test_isa.py.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "skipgram.h"
#include "table_rows.h"
#include "threads.h"

namespace {

struct Walks {
  jgs::WalkPairs pairs{};
  std::vector<int32_t> nodes, windows;
  std::vector<float> rows;
};

Walks RandomWalks(int64_t places, int64_t runs, int64_t negatives, int64_t width, int window) {
  constexpr int64_t kWalks = 33;
  constexpr int32_t kNodes = 50;
  std::mt19937 random(places);
  Walks w;
  for (int64_t i = 0; i < kWalks * places; ++i) {
    w.nodes.push_back(i / places % 5 == 0 && i % places > 3 ? kNodes : random() % kNodes);
    w.windows.push_back(1 + random() % window);
  }
  std::normal_distribution<float> normal;
  const int64_t num_rows = kWalks * (2 * places + runs * negatives);
  for (int64_t i = 0; i < num_rows * (width + 1); ++i) w.rows.push_back(0.3f * normal(random));
  w.pairs = {kWalks, places, runs, negatives, width, kNodes, 5.0f, 0.5f, w.nodes.data(),
             w.windows.data(), w.rows.data()};
  return w;
}

struct Found {
  std::vector<float> gradient, sums;
};

Found Run(const Walks& w, int num_threads) {
  Found found{std::vector<float>(w.rows.size()), std::vector<float>(2 * w.pairs.num_walks)};
  Threads threads;
  jgs::Skipgram(threads.Get(num_threads), w.pairs, found.gradient.data(), found.sums.data());
  return found;
}

// The loss and the pairs of all walks, pair by pair.
void Plain(const Walks& w, double* loss, double* count) {
  const jgs::WalkPairs& p = w.pairs;
  const auto softplus_of = [&](int64_t a, int64_t b, double sign) {
    double dot = 0.0;
    for (int64_t f = 0; f < p.width; ++f) {
      dot += double{p.rows[a * (p.width + 1) + f]} * p.rows[b * (p.width + 1) + f];
    }
    return std::log1p(std::exp(sign * dot));
  };
  *loss = *count = 0.0;
  const int64_t all = p.num_walks * p.num_places;
  for (int64_t i = 0; i < all; ++i) {
    const int64_t walk = i / p.num_places, place = i % p.num_places;
    for (int64_t j = walk * p.num_places; j < (walk + 1) * p.num_places; ++j) {
      const bool pair = j != i && std::llabs(j - i) <= p.windows[i] &&
                        p.nodes[i] < p.num_nodes && p.nodes[j] < p.num_nodes;
      if (!pair) continue;
      *count += 1.0;
      *loss += softplus_of(i, all + j, -1.0);
      const int64_t run = walk * p.num_runs + place / p.run_size();
      for (int64_t k = 0; k < p.num_negatives; ++k) {
        const int64_t negative = 2 * all + run * p.num_negatives + k;
        *loss += p.weight / p.num_negatives * softplus_of(i, negative, 1.0);
      }
    }
  }
}

bool CheckWalks(int64_t places, int64_t runs, int64_t negatives, int64_t width, int window) {
  const Walks w = RandomWalks(places, runs, negatives, width, window);
  const Found found = Run(w, 1);
  for (int num_threads : {2, 4}) {
    const Found again = Run(w, num_threads);
    if (again.gradient != found.gradient || again.sums != found.sums) return false;
  }
  double loss, count, own_loss = 0.0, own_count = 0.0;
  Plain(w, &loss, &count);
  for (int64_t i = 0; i < w.pairs.num_walks; ++i) {
    own_loss += found.sums[2 * i];
    own_count += found.sums[2 * i + 1];
  }
  return own_count == count && std::fabs(own_loss - loss) <= 1e-5 * loss;
}

bool CheckRows() {
  constexpr int64_t kRows = 3000, kWidth = 13, kSlots = 400, kCapacity = 3072;
  std::mt19937 random(1);
  std::vector<int32_t> ids, slots;
  std::vector<float> rows;
  for (int64_t i = 0; i < kRows; ++i) ids.push_back(static_cast<int32_t>(random() % 402) - 1);
  for (int64_t i = 0; i < kSlots; ++i) slots.push_back(static_cast<int32_t>(random()));
  for (int64_t i = 0; i < kRows * kWidth; ++i) rows.push_back(random() % 1000 * 0.001f);
  for (int num_threads : {1, 2, 4}) {
    std::vector<int32_t> given = slots, touched(kCapacity);
    std::vector<float> total(kCapacity * kWidth), table(kSlots * kWidth), wanted = table;
    Threads threads;
    const jgs::Executor executor = threads.Get(num_threads);
    const int32_t num = jgs::AddEqualRows(
        executor, {kRows, kWidth, kSlots, kCapacity, ids.data(), rows.data()}, given.data(),
        touched.data(), total.data());
    jgs::PutRows(executor, total.data(), touched.data(), kCapacity, kWidth, table.data(), kSlots);
    for (int64_t i = 0; i < kRows; ++i) {
      if (ids[i] < 0 || ids[i] >= kSlots) continue;
      for (int64_t f = 0; f < kWidth; ++f) wanted[ids[i] * kWidth + f] += rows[i * kWidth + f];
    }
    if (num != kSlots || touched[num] != -1 || table != wanted) return false;
  }
  return true;
}

}  // namespace

int main() {
  const bool good = CheckWalks(81, 5, 16, 128, 10) && CheckWalks(7, 2, 3, 5, 30) &&
                    CheckWalks(1, 1, 1, 16, 2) && CheckWalks(30, 1, 50, 70, 4) && CheckRows();
  std::puts(good ? "skipgram: runs equal" : "skipgram: runs differ");
  return good ? 0 : 1;
}
