#!/usr/bin/env bash
# One would guess: jax.jit changes no result but by rounding. -(a * x).sum(-1) is the same with
# `a` [2, 3] and `x` [33600, 2, 3] as with the factors exchanged.
#
# What happens: on CPUs the sums from the 32,768th on are those of other rows, without a word. It
# takes a left factor that lacks the first axis, and one more operation on the sum (a sign, a
# factor, an absolute value). With the right factor broadcast, without the last operation, with
# fewer sums, or without jit the result is right. XLA gives such sums to YNNPACK, in a
# `ynn_fusion`; the reason there is told in google/XNNPACK#11243 (open).
#
# Seen on 2026-12-01, jax 0.10.2 and jaxlib 0.10.2, Python 3.11, x86-64:
#   -(a * x).sum(-1): 34408 of 67200 wrong, from number 32768 on
#   -(x * a).sum(-1): 0 of 67200 wrong
#   (a * x).sum(-1): 0 of 67200 wrong
#   -(a * x).sum(-1), XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=: 0 of 67200 wrong
#
# What jgs does: a decoder gets sources that have the first axis (`jgs.models.Decoder.against`), so
# that `(src * dst).sum(-1)` is right. `jax.jacrev` of a gradient through attention makes such a sum
# where it has more than 32,768 numbers; take `jax.hessian`. The first derivatives of 20 models on
# 41,000 to 65,000 edges, by the kernels, were the same with and without the flag.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2
cat > "$folder/sums.py" <<'PROGRAM'
import sys

import jax
import numpy as np

rng = np.random.default_rng(0)
a, x = (rng.standard_normal(shape).astype("f") for shape in ((2, 3), (33600, 2, 3)))
ways = {
    "-(a * x).sum(-1)": lambda a, x: -(a * x).sum(-1),
    "-(x * a).sum(-1)": lambda a, x: -(x * a).sum(-1),
    "(a * x).sum(-1)": lambda a, x: (a * x).sum(-1),
}
wrong = {}
for name, way in ways.items():
    off = np.abs(jax.jit(way)(a, x) - way(np.float64(a), np.float64(x))).ravel() > 1e-3
    first = f", from number {np.argmax(off)} on" if off.any() else ""
    print(f"{name}: {off.sum()} of {off.size} wrong{first}")
    wrong[name] = bool(off.any())
assert list(wrong.values()) == [sys.argv[1] == "wrong", False, False], "it has changed"
PROGRAM
export JAX_PLATFORMS=cpu
"$folder/env/bin/python" "$folder/sums.py" wrong
XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= "$folder/env/bin/python" "$folder/sums.py" right
