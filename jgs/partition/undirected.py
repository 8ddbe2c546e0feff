"""The undirected form of a graph, in rows of distinct neighbours, made in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jgs.data.edges import build_graph
from jgs.graph.adjacency import Adjacency, in_neighbors
from jgs.graph.rows import row_chunks


def undirected_rows(
    graph: Adjacency, workspace: Path
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields the rows of the undirected graph in order, some million edges at a time.

    Each item is the first row's number, the rows' degrees int64 `[n]`, and the neighbours
    int32, one row after the other. A row's neighbours are ascending and distinct, without the
    node itself. Every edge is in the rows of both its ends. A symmetric graph is read twice
    where it lies. The edges of any other are sorted on the disk, in `workspace`, which takes 16
    bytes an edge for a while.
    """
    if not is_symmetric(graph):
        made = build_graph(_edges(graph), graph.num_nodes, workspace, symmetric=True, what="it")
        graph = in_neighbors(made)
    for first, stop, keys in _keys(graph):
        keys = np.unique(keys)
        rows, neighbors = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
        no_loop = rows != neighbors
        degree = np.bincount(rows[no_loop] - first, minlength=stop - first)
        yield first, degree, neighbors[no_loop]


def is_symmetric(graph: Adjacency) -> bool:
    """Whether every edge is there as often as its reverse. The sum of a 64-bit hash over the
    edges is compared with that over their reverses, in one pass."""
    forth = back = np.uint64(0)
    with np.errstate(over="ignore"):
        for _, _, keys in _keys(graph):
            reverse = (keys >> 32) | (keys & 0xFFFFFFFF) << 32
            forth += _hash(keys).sum(dtype=np.uint64)
            back += _hash(reverse).sum(dtype=np.uint64)
    return bool(forth == back)


def _hash(keys: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = keys.astype(np.uint64)
    for shift, odd in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(odd)
    return mixed ^ mixed >> np.uint64(31)


def _keys(graph: Adjacency) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yields `first`, `stop`, and for each edge of the rows from `first` to `stop - 1` an int64
    with the row in the upper 32 bits and the neighbour in the lower ones."""
    for first, stop in row_chunks(graph.indptr):
        degree = np.diff(graph.indptr[first : stop + 1])
        rows = np.repeat(np.arange(first, stop), degree)
        yield first, stop, rows << 32 | graph.indices[graph.indptr[first] : graph.indptr[stop]]


def _edges(graph: Adjacency) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _, _, keys in _keys(graph):
        yield keys & 0xFFFFFFFF, keys >> 32
