// 2^32 numbers of the kernels' Threefry through TestU01's SmallCrush (L'Ecuyer and Simard, "TestU01:
// a C library for empirical testing of random number generators", ACM TOMS 33, 2007).
//
//   threefry_crush [log2 of the numbers]
//
// SmallCrush runs until so many numbers are used, by turns with the four ways in which kernels count:
// the numbers are those of nodes in a row, of draws in a row, of keys in a row, and of keys that
// differ in the upper bits. Prints a line for each run: its way, its numbers, and its p-values.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "threefry.h"

extern "C" {
#include <testu01/bbattery.h>
#include <testu01/swrite.h>
#include <testu01/unif01.h>
}

namespace {

constexpr const char* kWays[] = {"nodes", "draws", "keys", "upper bits of keys"};

int way = 0;
uint32_t round_of_way = 0;
uint64_t used = 0;      // numbers of this run
uint32_t number = 0;    // the next counter of this run
uint32_t second = 0;    // the other half of the last pair of words
bool has_second = false;

unsigned int Next() {
  ++used;
  if (has_second) {
    has_second = false;
    return second;
  }
  jgs::Key key{{0x2026u, 61u + round_of_way}};
  uint32_t word[2] = {0, 0};
  const uint32_t n = number++;
  if (way == 0) word[0] = n;
  if (way == 1) word[1] = n;
  if (way == 2) key.word[1] += n;
  if (way == 3) key.word[0] ^= n << 7 | n >> 25;
  jgs::Threefry(key, word[0], word[1]);
  second = word[1];
  has_second = true;
  return word[0];
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t wanted = uint64_t{1} << (argc > 1 ? std::atoi(argv[1]) : 32);
  swrite_Basic = FALSE;
  unif01_Gen* generator = unif01_CreateExternGenBits(const_cast<char*>("Threefry"), Next);
  for (uint64_t total = 0, run = 0; total < wanted; ++run, total += used) {
    way = static_cast<int>(run % 4);
    round_of_way = static_cast<uint32_t>(run / 4) << 20;
    used = 0;
    number = 0;
    has_second = false;
    bbattery_SmallCrush(generator);
    std::printf("@%s\t%llu", kWays[way], static_cast<unsigned long long>(used));
    for (int i = 0; i < bbattery_NTests; ++i) std::printf("\t%.6g", bbattery_pVal[i]);
    std::printf("\n");
    std::fflush(stdout);
  }
  unif01_DeleteExternGenBits(generator);
}
