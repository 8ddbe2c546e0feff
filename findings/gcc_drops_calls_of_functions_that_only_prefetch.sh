#!/usr/bin/env bash
# One would guess: a loop of `__builtin_prefetch` does the same whether it stands in the loop that reads
# or in a function of its own, which is called first. A prefetch is an effect that one asks for.
#
# What happens: GCC 12 takes a function that only reads and prefetches for one without effects, since a
# prefetch is none in its sense. A call whose result nobody uses is dropped, and then the function with it,
# without a warning, at -O1, -O2 and -O3. Inlined, the prefetches stay. So a kernel gets slower when a
# helper grows too large to be inlined, or is marked `noinline` to be seen in a profile; results are the
# same. Clang keeps call and prefetches.
#
# Seen on 2026-11-30, g++ (Debian 12.2.0-14+deb12u1) 12.2.0, and clang of ziglang 0.17.1. Prefetches in the
# assembly:
#   g++ -O1, -O2, -O3: in a function 0, inlined 1
#   clang -O2: in a function 9
#
# What jgs does: functions of its kernels that only prefetch are `always_inline`, which a test looks for
# (`tests/kernels/test_isa.py`). Two were not, and had been without effect; the loop of drawn edges, once
# moved into a function, made draws by relation 1.5 to 2 times as slow.
set -euo pipefail
compiler=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet ziglang==0.17.1
cat > "$folder/sum.cc" <<'PROGRAM'
#include <cstdint>
#ifndef APART
#define APART __attribute__((noinline))
#endif
struct Values {
  const int32_t* data;
  APART void Prefetch(const int64_t* at, int count) const {
    for (int i = 0; i < count; ++i) __builtin_prefetch(data + at[i]);
  }
};
int64_t Sum(const Values& values, const int64_t* at, int count) {
  values.Prefetch(at, count);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += values.data[at[i]];
  return sum;
}
PROGRAM
prefetches() { # of the assembly that a compiler writes
  "$@" -std=c++17 -S "$folder/sum.cc" -o "$folder/sum.s" 2> /dev/null
  grep -c prefetch "$folder/sum.s" || true
}
"$compiler" --version | head -n 1
for level in -O1 -O2 -O3; do
  apart=$(prefetches "$compiler" $level)
  inlined=$(prefetches "$compiler" $level -DAPART=inline)
  echo "g++ $level: in a function $apart, inlined $inlined"
  [ "$apart" = 0 ] && [ "$inlined" -gt 0 ] || { echo "changed: g++ $level"; exit 1; }
done
clang=$(prefetches "$folder/env/bin/python" -m ziglang c++ -O2)
echo "clang -O2: in a function $clang"
[ "$clang" -gt 0 ] || { echo "changed: clang"; exit 1; }
