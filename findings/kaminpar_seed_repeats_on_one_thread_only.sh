#!/usr/bin/env bash
# One would guess: after `kaminpar.reseed(7)` the same graph gets the same parts, on any number of
# threads: METIS, which it replaces, and DistDGL's partitioner repeat for a seed.
#
# What happens: with one thread it does. With two the parts differ from call to call, in the same process
# and with the same seed, and from those of one thread. The cut stays within a percent. So features and
# checkpoints that lie by part fit one run of the partitioner only, and nothing says so.
#
# Seen on 2026-11-30, kaminpar 3.7.3, Python 3.11, two cores. Barabasi-Albert graph, 20,000 nodes, 8 parts:
#   1 thread: 1 kind of parts in 6 calls, cut 58008 to 58008
#   2 threads: 6 kinds of parts in 6 calls, cut 57949 to 58054
#
# What jgs does: `jgs partition --method kaminpar` takes one thread unless `--threads` is given, whose
# help and docstring say that parts then differ; the parts carry an id, which runs compare.
set -euo pipefail
python=${PYTHON:-python3.11}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet kaminpar==3.7.3 networkx==3.5 numpy
"$folder/env/bin/python" - "$folder/graph.metis" <<'PROGRAM'
import importlib.metadata
import sys

import kaminpar
import networkx as nx

print("kaminpar", importlib.metadata.version("kaminpar"))
graph = nx.barabasi_albert_graph(20_000, 5, seed=0)
with open(sys.argv[1], "w") as file:
    print(graph.number_of_nodes(), graph.number_of_edges(), file=file)
    for node in graph:
        print(*(other + 1 for other in sorted(graph[node])), file=file)
kinds = {}
for threads in (1, 2):
    parts, cuts = set(), []
    for _ in range(6):
        kaminpar.reseed(7)
        read = kaminpar.load_graph(sys.argv[1], kaminpar.GraphFileFormat.METIS)
        solver = kaminpar.KaMinPar(threads, kaminpar.default_context())
        found = list(solver.compute_partition(read, 8))
        parts.add(tuple(found))
        cuts.append(kaminpar.edge_cut(read, found))
    kinds[threads] = len(parts)
    name = "1 thread" if threads == 1 else f"{threads} threads"
    kind = "1 kind" if len(parts) == 1 else f"{len(parts)} kinds"
    print(f"{name}: {kind} of parts in 6 calls, cut {min(cuts)} to {max(cuts)}")
assert kinds[1] == 1, "changed: one thread does not repeat either"
assert kinds[2] > 1, "changed: two threads repeat for a seed"
PROGRAM
