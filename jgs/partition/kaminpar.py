"""KaMinPar's multilevel partitioner on compressed graphs: faster than METIS, in less memory.

Gottesbüren et al., "Deep multilevel graph partitioning" (2021); Salwasser et al., "Tera-scale
multilevel graph partitioning" (2025). It balances one weight for each node. It runs in a
process of its own, which reads the graph from a file. So its memory is freed at its end, Ctrl-C
ends it, and a system that kills it for its memory does not kill jgs.
"""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph.adjacency import Adjacency
from jgs.partition import kaminpar_run
from jgs.partition.undirected import undirected_rows
from jgs.partition.weights import CONSTRAINTS, pieces

# The header of a ParHiP file with 32-bit ids, 64-bit offsets, and edges that all weigh 1.
_VERSION = 1 | 8 | 16 | 32
_HEADER = 24
_EDGES = CONSTRAINTS.index("edges")


def check_kaminpar() -> None:
    """Raises `InputError` unless KaMinPar is installed."""
    if importlib.util.find_spec("kaminpar") is None:
        raise InputError(
            "the method kaminpar needs the package kaminpar",
            "none here",
            "Run: pip install 'jgs[kaminpar]'. Or use --method ldg.",
        )


def kaminpar_partition(
    graph: Adjacency, weights: Any, num_parts: int, seed: int, threads: int, scratch: Path
) -> np.ndarray:
    """int32 `[N]`: the part of each node, with a small edge cut. Nodes without edges are in
    part 0.

    Args:
      graph: directed or not. Repeated edges count once.
      weights: `NodeWeights`. A node's weight is its number of edges plus 1, and parts are
        balanced in it to 3 %. `jgs.partition.rebalance` balances the other constraints.
      num_parts: at least 2.
      seed: the random seed.
      threads: with 1 thread the same arguments give the same parts.
      scratch: an existing folder for the graph's file. It takes 4 bytes for each direction of
        an edge and 12 for a node. If the graph is not symmetric, another 16 bytes for an edge
        are needed for a while.

    Raises `InputError`, and `OSError` where the disk is full.
    """
    check_kaminpar()
    with tempfile.TemporaryDirectory(prefix="jgs-kaminpar-", dir=scratch) as folder:
        file, found = Path(folder) / "graph.parhip", Path(folder) / "parts.npy"
        _write(file, graph, weights, Path(folder))
        # The file is started, not the module, as the process needs no JAX. With -P Python does
        # not look for packages beside the file, where kaminpar.py would hide KaMinPar.
        command = [sys.executable, "-P", kaminpar_run.__file__]
        arguments = map(str, (file, num_parts, seed, threads, found))
        done = subprocess.run(
            [*command, *arguments], stdout=2, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise InputError(
                "KaMinPar must be able to partition the graph in the memory there is",
                f"its process ended with {done.returncode}, and said {said[0]}",
                "Use --method ldg, which streams through the graph once.",
            )
        of_connected = np.load(found)
    parts: np.ndarray = np.zeros(graph.num_nodes, np.int32)
    parts[weights.connected] = of_connected
    return parts


def _write(path: Path, graph: Adjacency, weights: Any, workspace: Path) -> None:
    """Writes the nodes that have an edge, with new numbers, in ParHiP's binary format: a
    header, the place in the file where each row begins, neighbours, and weights of nodes."""
    connected = weights.connected
    new_id: np.ndarray = np.empty(graph.num_nodes, np.int32)
    num_nodes = 0
    for some in pieces(graph.num_nodes):
        ends = np.cumsum(connected[some])
        new_id[some] = num_nodes + ends - 1
        num_nodes += int(ends[-1])
    begin = _HEADER + 8 * (num_nodes + 1)
    with open(path, "wb") as file, open(path, "rb+") as offsets:
        file.seek(begin)
        offsets.seek(_HEADER)
        np.uint64(begin).tofile(offsets)
        num_edges = 0
        for first, degree, neighbors in undirected_rows(graph, workspace):
            own = degree[connected[first : first + degree.size]]
            ends = begin + 4 * (num_edges + np.cumsum(own))
            ends.astype(np.uint64).tofile(offsets)
            new_id[neighbors].tofile(file)
            num_edges += neighbors.size
        for some in pieces(graph.num_nodes):
            own = weights[some][connected[some], _EDGES] + 1
            np.minimum(own, 2**32 - 1).astype(np.uint32).tofile(file)
        offsets.seek(0)
        offsets.write(struct.pack("<3Q", _VERSION, num_nodes, num_edges))
