"""Draws by relation: the runs of each node's edges, and the fanouts of relations.

Rows are sorted by edge type, so the edges of one relation into a node are a stretch of its row,
a *run*. A node draws from each of its runs by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jgs.graph import Graph, Schema, as_device
from jgs.graph.rows import row_chunks

# The number and the fanout of each relation that a hop draws, ascending.
Relations = tuple[tuple[int, int], ...]

_BITS = 15  # a relation's number is below 2**15


class RelationIndex(NamedTuple):
    """Where the runs of each node begin. It takes 8 bytes a node and 8 bytes a run: one for
    each node and relation that has an edge.

    Fields:
      indptr: int64 `[N+1]`; node `v` has the runs `indptr[v]:indptr[v+1]`, ascending by
        relation.
      runs: int64 `[M+1]`; each run's first edge times 2**15, plus its relation. The last entry
        stands for the end of all.
    """

    indptr: jax.Array
    runs: jax.Array


def index_of(graph: Graph) -> RelationIndex:
    """The index of a graph with edge types. It reads `edge_type` once, in pieces."""
    indptr, types = np.asarray(graph.indptr), np.asarray(graph.edge_type)
    counts, runs = [np.zeros(1, np.int64)], []
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        piece = types[begin:end]
        starts = np.ones(end - begin, bool)
        starts[1:] = piece[1:] != piece[:-1]
        rows = indptr[first:stop] - begin
        starts[rows[rows < end - begin]] = True  # a row without edges marks the next one's
        before = np.concatenate([[0], np.cumsum(starts)])
        counts.append(np.diff(before[indptr[first : stop + 1] - begin]))
        at = np.flatnonzero(starts)
        runs.append((at + begin) << _BITS | piece[at].astype(np.int64))
    runs.append(np.array([graph.num_edges << _BITS], np.int64))
    of_nodes = np.cumsum(np.concatenate(counts))
    return RelationIndex(as_device(of_nodes), as_device(np.concatenate(runs)))


def relations_of(fanout: int | Relations) -> tuple[int, ...] | None:
    """The numbers of the relations that a hop draws by themselves; None for one that draws
    from all edges."""
    return None if isinstance(fanout, int) else tuple(relation for relation, _ in fanout)


def relation_draws(fanouts: Sequence[Any], schema: Schema | None) -> np.ndarray:
    """int64 `[L * R]`: the fanout of each of the `R` relations at each of the `L` hops, 0 for
    one that is not drawn and for a hop that draws from all edges. Empty without a schema."""
    if schema is None:
        return np.zeros(0, np.int64)
    table = np.zeros((len(fanouts), len(schema.relations)), np.int64)
    for h, fanout in enumerate(fanouts):
        if not isinstance(fanout, int):
            for relation, k in fanout:
                table[h, relation] = k
    return table.reshape(-1)
