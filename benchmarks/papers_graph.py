"""A graph shaped like ogbn-papers100M, scaled to this machine.

papers100M has 111 million nodes and 1.6 billion citations, which are 3.2 billion stored edges
once every one is stored in both directions: 29 a node. The graph here has as many a node, and a
degree distribution with a heavy tail. It is the model of Chung and Lu ("Connected components in
random graphs with given expected degree sequences", 2002): both ends of every edge are drawn in
proportion to log-normal weights. It has no communities. Self-loops are dropped, and parallel
edges are kept once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jgs
from benchmarks.graph import connected_nodes

DEGREE = 29
_SIGMA = 1.2  # of the weights' logarithms
_PIECE = 1 << 22  # edges drawn at once


class Size(NamedTuple):
    """The graph has 2**scale nodes."""

    scale: int

    @property
    def num_nodes(self) -> int:
        return 1 << self.scale

    @property
    def name(self) -> str:
        return f"papers-{self.scale}"


FULL, QUICK = Size(22), Size(15)


def edges(size: Size) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of undirected edges, int32, in pieces; `DEGREE / 2` a node."""
    weight = np.random.default_rng(0).lognormal(0, _SIGMA, size.num_nodes)
    ends = np.cumsum(weight)
    left = size.num_nodes * DEGREE // 2
    for number in range(-(-left // _PIECE)):
        rng = np.random.default_rng([1, number])
        count = min(_PIECE, left - number * _PIECE)
        # Sorted numbers are looked up fast; one side is then shuffled.
        a, b = (
            np.searchsorted(ends, np.sort(rng.random(count)) * ends[-1]).astype(np.int32)
            for _ in range(2)
        )
        yield a, rng.permutation(b)


def cached(cache: Path, size: Size) -> Path:
    """The folder of the graph, written by `jgs.Graph.save` when missing."""
    from jgs.data.edge_stream import build_graph

    folder = cache / size.name
    if not (folder / "manifest.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache) as workspace:
            of = (edges(size), size.num_nodes, Path(workspace))
            built: jgs.Graph = build_graph(*of, symmetric=True, what="papers")
            built.save(folder)
    return folder


def seeds(cache: Path, size: Size) -> Path:
    """A file of int32 `[n]`: the nodes of degree > 0, shuffled."""
    path = cache / f"{size.name}-seeds.npy"
    if not path.is_file():
        np.save(path, connected_nodes(cached(cache, size)))
    return path


def describe(folder: Path) -> dict:
    """The distribution of the degrees, in stored edges."""
    degree = np.diff(np.load(folder / "indptr.npy", mmap_mode="r"))
    half, nine, last = np.percentile(degree, (50, 90, 99))
    return {
        "nodes": degree.size,
        "edges": int(degree.sum()),
        "mean": float(degree.mean()),
        "median": float(half),
        "90 %": float(nine),
        "99 %": float(last),
        "largest": int(degree.max()),
        "without_edges": float((degree == 0).mean()),
    }
