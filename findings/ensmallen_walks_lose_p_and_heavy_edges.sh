#!/usr/bin/env bash
# One would guess: the walks of GRAPE (ensmallen) are those of Node2Vec: from t to v, and back to t in
# proportion to return_weight = 1/p, also with q = 1. In a graph with weights a node's edge of half its
# weight is walked half of the time.
#
# What happens: where explore_weight is 1, return_weight is ignored and the walks are uniform, whatever it
# is. With explore_weight = 1.001 it is heeded. And a node with more than 100 neighbours steps to one of 100
# that were chosen without regard to their weights (max_neighbours=100 by default, which the documentation
# calls an approximation). Of a hub with 1,000 edges the one that has half of the weight is walked in a
# tenth of the steps. max_neighbours=None is 100 too; 1,000 is exact.
#
# Seen on 2026-12-01, ensmallen 0.8.100, Python 3.11. Edges 0-1, 0-2, 1-2, 1-3, walks 0, 1, x: shares of x =
# 0 (back), 2 (near 0), 3 (away); then a hub of 1,000 edges, one of the weight 999, the others of 1:
#   p=4 q=1: 0.333 0.328 0.339; by the paper 0.111 0.444 0.444
#   p=0.25 q=1: 0.333 0.328 0.339; by the paper 0.667 0.167 0.167
#   p=0.25 q=0.999: 0.660 0.170 0.170; by the paper 0.667 0.167 0.167
#   the hub's heavy edge, by weight 0.500: by default 0.090, with None 0.090, with 1000 0.501
#
# What jgs does: `Node2Vec` heeds p for any q, and reads all edges of a node, with their weights, by
# rejection; its laws are tested by chi-square (`python -m benchmarks.battery`, tests/sampling).
set -euo pipefail
python=${PYTHON:-python3.11}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ensmallen==0.8.100 numpy==2.4.6
cd "$folder"
env/bin/python - <<'PROGRAM'
from importlib.metadata import version

import numpy as np
from ensmallen import GraphBuilder

print("ensmallen", version("ensmallen"))


def graph_of(edges):
    """An undirected graph of (node, node, weight or None)."""
    builder = GraphBuilder()
    builder.set_name("walks")
    builder.set_directed(False)
    for node in range(1 + max(max(edge[:2]) for edge in edges)):
        builder.add_node(f"{node:06d}")
    for first, second, weight in edges:
        more = {} if weight is None else {"weight": float(weight)}
        builder.add_edge(f"{first:06d}", f"{second:06d}", **more)
    graph = builder.build()
    return graph, np.array([int(name) for name in graph.get_node_names()])


def walks(graph_and_names, length, times, **how):
    graph, names = graph_and_names
    found = graph.complete_walks(walk_length=length, iterations=times, random_state=1, **how)
    return names[np.asarray(found)]


small = graph_of([(0, 1, None), (0, 2, None), (1, 2, None), (1, 3, None)])
shares = {}
for p, q in ((4, 1), (0.25, 1), (0.25, 0.999)):
    weights = {"return_weight": 1 / p, "explore_weight": 1 / q}
    drawn = walks(small, 3, 20_000, **weights)
    third = drawn[(drawn[:, 0] == 0) & (drawn[:, 1] == 1), 2]
    shares[p, q] = np.bincount(third, minlength=4)[[0, 2, 3]] / third.size
    law = np.array([1 / p, 1, 1 / q])
    print(f"p={p} q={q}:", *(f"{share:.3f}" for share in shares[p, q]), end="; by the paper ")
    print(*(f"{share:.3f}" for share in law / law.sum()))
hub = graph_of([(0, 1, 999)] + [(0, leaf, 1) for leaf in range(2, 1001)])
heavy = []
for how in ({}, {"max_neighbours": None}, {"max_neighbours": 1000}):
    drawn = walks(hub, 20, 5, **how)
    after = drawn[:, 1:][drawn[:, :-1] == 0]
    heavy.append((after == 1).mean())
default, none, all_of_them = (f"{share:.3f}" for share in heavy)
print(f"the hub's heavy edge, by weight 0.500: by default {default}, with None {none}", end=", ")
print(f"with 1000 {all_of_them}")
for p in (4, 0.25):
    assert abs(shares[p, 1] - 1 / 3).max() < 0.02, "changed: p is heeded where q is 1"
assert shares[0.25, 0.999][0] > 0.6
assert max(heavy[:2]) < 0.2 and heavy[2] > 0.45, "changed: weights of hubs"
PROGRAM
