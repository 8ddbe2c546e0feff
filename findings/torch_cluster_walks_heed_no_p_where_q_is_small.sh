#!/usr/bin/env bash
# One would guess: `torch_cluster.random_walk(..., p, q)` walks as Node2Vec does (Grover and Leskovec
# 2016, section 3.2): from t to v, and on to x in proportion to 1/p if x is t, to 1 if t and x are
# joined, and to 1/q otherwise. With p = 4 and q = 1/4 it goes away from t most of the time. And
# `torch.manual_seed` repeats the walks.
#
# What happens: a node that the chance of its own kind does not accept is tried by the chances of the
# later kinds too. So a step back has the larger of 1/p and 1/q, and one to a node near t the larger of 1
# and 1/q. The walks are right where q >= 1 and q >= p. Where q <= 1 and q <= p they are uniform, whatever
# p and q are: all walks that are to explore. Nothing is said.
# Numbers come from C's `rand()`, which `torch.manual_seed` does not reach.
#
# Seen on 2026-11-30, torch-cluster 1.6.3, torch 2.13.0, Python 3.11. Edges 0-1, 0-2, 1-2, 1-3, walks
# 0, 1, x: shares of x = 0 (back), 2 (near 0), 3 (away):
#   p=4 q=0.25: 0.331 0.330 0.339; by the paper 0.048 0.190 0.762
#   p=1 q=0.01: 0.332 0.333 0.335; by the paper 0.010 0.010 0.980
#   p=0.25 q=4: 0.760 0.192 0.048; by the paper 0.762 0.190 0.048
#   the same walks after the same torch.manual_seed: False
#
# What jgs does: `Node2Vec` draws by rejection with each kind's own chance; its walks of two steps are
# compared with their exact law by chi-square (`python -m benchmarks.battery`, tests/sampling).
set -euo pipefail
python=${PYTHON:-python3.11}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
pip=("$folder/env/bin/pip" install --quiet)
"${pip[@]}" torch==2.13.0 numpy scipy "setuptools<80" wheel
export FORCE_ONLY_CPU=1  # torch-cluster is compiled here, which takes some minutes
"${pip[@]}" --no-build-isolation torch-cluster==1.6.3
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import torch
import torch_cluster

print("torch-cluster", torch_cluster.__version__, "torch", torch.__version__)
row, col = torch.tensor([[0, 1, 0, 2, 1, 2, 1, 3], [1, 0, 2, 0, 2, 1, 3, 1]])
roots = torch.zeros(40_000, dtype=torch.long)
shares = {}
for p, q in ((4, 0.25), (1, 0.01), (0.25, 4)):
    walks = torch_cluster.random_walk(row, col, roots, 2, p, q).numpy()
    third = walks[walks[:, 1] == 1, 2]
    found = np.bincount(third, minlength=4)[[0, 2, 3]] / third.size
    law = np.array([1 / p, 1, 1 / q])
    law, shares[p, q] = law / law.sum(), found
    print(f"p={p} q={q}:", *found.round(3), "by the paper", *law.round(3))
seeded = []
for _ in range(2):
    torch.manual_seed(0)
    seeded.append(torch_cluster.random_walk(row, col, roots, 2, 4.0, 0.25))
print("the same walks after the same torch.manual_seed:", torch.equal(*seeded))
assert abs(shares[4, 0.25] - 1 / 3).max() < 0.02, "changed: p and q are heeded where q is small"
assert abs(shares[1, 0.01] - 1 / 3).max() < 0.02, "changed: q is heeded where it is small"
PROGRAM
