// The insertions of insert.h on threads of its own, one for each chunk of the added elements,
// against std::vector::insert, and its moves: for the sanitizers. Run by `make sanitize`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "insert.h"

namespace {

bool Check(int64_t num_old, int64_t num, int64_t width, int64_t num_chunks) {
  std::mt19937 random(num_old + num);
  std::vector<int32_t> old(num_old * width), added(num * width);
  for (size_t i = 0; i < old.size(); ++i) old[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < added.size(); ++i) added[i] = -1 - static_cast<int32_t>(i);
  std::vector<int64_t> at(num);
  for (int64_t& place : at) place = random() % (num_old + 1);
  std::sort(at.begin(), at.end());

  std::vector<int32_t> expected = old;
  for (int64_t i = num - 1; i >= 0; --i) {
    expected.insert(expected.begin() + at[i] * width, added.begin() + i * width,
                    added.begin() + (i + 1) * width);
  }
  std::vector<int32_t> out((num_old + num) * width);
  std::vector<std::thread> threads;
  for (int64_t c = 0; c < num_chunks; ++c) {
    threads.emplace_back([&, c] {
      JgsInsert(reinterpret_cast<const char*>(old.data()), num_old,
                reinterpret_cast<const char*>(added.data()), at.data(), num, 4 * width,
                num * c / num_chunks, num * (c + 1) / num_chunks,
                reinterpret_cast<char*>(out.data()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out == expected;
}

// A row of five elements gets two more, after its first and after its last.
bool CheckMoves() {
  std::vector<int32_t> row{0, 1, 2, 3, 4, -1, -1};
  const std::vector<int64_t> from{1}, to{2}, count{4}, place{1, 6};
  const std::vector<int32_t> added{8, 9};
  JgsMoveRows(reinterpret_cast<char*>(row.data()), 4, from.data(), to.data(), count.data(), 1,
              reinterpret_cast<const char*>(added.data()), place.data(), 2);
  return row == std::vector<int32_t>{0, 8, 1, 2, 3, 4, 9};
}

}  // namespace

int main() {
  const bool good = Check(1000, 300, 1, 4) && Check(50, 700, 3, 5) && Check(0, 20, 2, 3) &&
                    Check(100, 0, 2, 1) && Check(100, 1, 1, 1) && Check(5, 2, 1, 2) &&
                    CheckMoves();
  std::puts(good ? "insert: ok" : "insert: WRONG");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
