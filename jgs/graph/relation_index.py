"""`RelationIndex`: where the edges of each relation are in each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jgs.graph.device import as_device
from jgs.graph.grouping import threads
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
    """The index of a graph with edge types. It reads `edge_type` once, in pieces, on all
    cores. A graph whose rows have room has its index with it."""
    if graph.has_room:
        return graph.relation_index
    indptr, types = np.asarray(graph.indptr), np.asarray(graph.edge_type)

    def runs_of(rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        first, stop = rows
        begin, end = int(indptr[first]), int(indptr[stop])
        piece = types[begin:end]
        starts = np.ones(end - begin, bool)
        starts[1:] = piece[1:] != piece[:-1]
        ends = indptr[first : stop + 1] - begin
        starts[ends[ends < end - begin]] = True  # a row without edges marks the next one's
        at = np.flatnonzero(starts)
        runs = (at + begin) << RUN_BITS | piece[at].astype(np.int64)
        return np.diff(row_offsets(starts)[ends]), runs

    chunks = [*row_chunks(indptr)]
    with threads(len(chunks)) as run:
        pieces = list(run(runs_of, chunks))
    counts = np.concatenate([np.zeros(1, np.int64), *(count for count, _ in pieces)])
    last = np.array([graph.num_edges << RUN_BITS], np.int64)
    runs = np.concatenate([*(each for _, each in pieces), last])
    return RelationIndex(as_device(np.cumsum(counts)), as_device(runs))
