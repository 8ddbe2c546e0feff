"""`RelationIndex`: where the edges of each relation are in each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jgs import kernels
from jgs.arrays import aligned_empty
from jgs.graph.device import as_device
from jgs.graph.grouping import longs, pointer, threads
from jgs.graph.rows import row_chunks, row_offsets

RUN_BITS = 15  # a relation's number is below 2**15


class RelationIndex(NamedTuple):
    """Where the runs of each node begin. It takes 8 bytes a node and 8 bytes a run: one for
    each node and relation that has an edge.

    Fields:
      indptr: int64 `[N+1]`; node `v` has the runs `indptr[v]:indptr[v+1]`, ascending by
        relation. `[2, N+1]` where rows have room: `indptr[0, v]:indptr[1, v]`.
      runs: int64 `[M+1]`; each run's first edge times 2**15, plus its relation. The next entry
        has where it ends. The last one stands for the end of all.
    """

    indptr: jax.Array
    runs: jax.Array


def index_of(graph: Any) -> RelationIndex:
    """The index of a graph with edge types. It reads `edge_type` in pieces, on all cores. A
    graph whose rows have room has its index with it."""
    if graph.has_room:
        return graph.relation_index
    indptr, types = np.asarray(graph.indptr), np.asarray(graph.edge_type)
    made = _by_kernel if kernels.available() else _plain
    counts, runs = made(np.ascontiguousarray(indptr), np.ascontiguousarray(types))
    runs[-1] = graph.num_edges << RUN_BITS
    return RelationIndex(as_device(row_offsets(counts)), as_device(runs))


def _plain(indptr: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of runs of each row int64 `[N]`, and the runs int64 `[M+1]`, of which the last
    entry is not set."""
    counts, found = [], []
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        piece = types[begin:end]
        starts = np.ones(end - begin, bool)
        starts[1:] = piece[1:] != piece[:-1]
        ends = indptr[first : stop + 1] - begin
        starts[ends[ends < end - begin]] = True  # a row without edges marks the next one's
        at = np.flatnonzero(starts)
        found.append((at + begin) << RUN_BITS | piece[at].astype(np.int64))
        counts.append(np.diff(row_offsets(starts)[ends]))
    none = np.zeros(1, np.int64)
    return np.concatenate([none[:0], *counts]), np.concatenate([*found, none])


def _by_kernel(indptr: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result of `_plain`."""
    counts, chunks = np.empty(indptr.size - 1, np.int64), [*row_chunks(indptr)]

    def find(rows: tuple[int, int], runs: np.ndarray | None = None) -> None:
        first, stop = rows
        given = pointer(indptr), pointer(types), *longs(types.size, first, stop, RUN_BITS)
        out = None if runs is None else pointer(runs)
        kernels.function("JgsRelationRuns", None)(*given, pointer(counts[first:stop]), out)

    with threads(len(chunks)) as run:
        for _ in run(find, chunks):
            pass
        runs = aligned_empty(int(counts.sum()) + 1, np.int64)
        ends = np.cumsum([counts[first:stop].sum() for first, stop in chunks])
        pieces = np.split(runs[:-1], ends[:-1]) if chunks else []
        for _ in run(lambda each: find(*each), zip(chunks, pieces, strict=True)):
            pass
    return counts, runs
