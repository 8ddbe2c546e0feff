"""The adjacency that a partitioner reads: a graph's in-neighbours, or symmetric for METIS."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from jgs.graph.graph import Graph
from jgs.graph.rows import row_chunks, row_offsets, row_positions


class Adjacency(NamedTuple):
    """The neighbours of every node, in NumPy arrays that may be memory-mapped.

    Fields:
      indptr: int64 `[N+1]`; the neighbours of `v` are `indices[indptr[v]:indptr[v+1]]`.
      indices: integer `[E]`, node ids.
      edge_weight: integer `[E]`, what cutting each edge costs. None: 1 for every edge.
    """

    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray | None = None

    @property
    def num_nodes(self) -> int:
        return self.indptr.size - 1


def in_neighbors(graph: Graph) -> Adjacency:
    """The in-neighbours of each node, without a copy."""
    return Adjacency(np.asarray(graph.indptr), np.asarray(graph.indices))


def symmetric(graph: Adjacency) -> Adjacency:
    """The graph with every edge in both directions once and without self-loops; an edge's
    weight is the number of given edges between its ends."""
    n = graph.num_nodes
    if graph.indices.size == 0:
        return graph._replace(edge_weight=np.empty(0, np.int32))
    ones = np.ones(graph.indices.size, np.int32)
    matrix = scipy.sparse.csr_array((ones, graph.indices, graph.indptr), shape=(n, n))
    both = (matrix + matrix.T).tocsr()  # adds up what is there more than once
    row = np.repeat(np.arange(n, dtype=both.indices.dtype), np.diff(both.indptr))
    no_loop = both.indices != row
    degree = np.bincount(row[no_loop], minlength=n)
    return Adjacency(row_offsets(degree), both.indices[no_loop], both.data[no_loop])


def subgraph(graph: Adjacency, nodes: np.ndarray) -> Adjacency:
    """The graph of the ascending ids `nodes`, which must be the ends of all edges."""
    new_id = np.zeros(graph.num_nodes, graph.indices.dtype)
    new_id[nodes] = np.arange(nodes.size)
    degree = np.diff(graph.indptr)
    assert degree[nodes].sum() == graph.indices.size
    return graph._replace(indptr=row_offsets(degree[nodes]), indices=new_id[graph.indices])


def connected(graph: Adjacency) -> np.ndarray:
    """bool `[N]`: whether each node has an edge, in or out."""
    found: np.ndarray = np.empty(graph.num_nodes, bool)
    for first, stop in row_chunks(graph.indptr):
        np.greater(
            graph.indptr[first + 1 : stop + 1], graph.indptr[first:stop], out=found[first:stop]
        )
    for first, stop in row_chunks(graph.indptr):
        found[graph.indices[graph.indptr[first] : graph.indptr[stop]]] = True
    return found


def neighbors_per_part(
    graph: Adjacency, rows: np.ndarray, parts: np.ndarray, num_parts: int
) -> np.ndarray:
    """int64 `[n, num_parts]`: the weight of the edges into each of `rows` int `[n]` from each
    part. A node whose entry in `parts` int `[N]` is -1 has no part yet and counts nowhere."""
    counts = np.empty((rows.size, num_parts), np.int64)
    bounds = row_offsets(graph.indptr[rows + 1] - graph.indptr[rows])
    for first, stop in row_chunks(bounds):
        chunk = rows[first:stop]
        positions = row_positions(graph.indptr, chunk)
        slot = np.repeat(np.arange(chunk.size), np.diff(bounds[first : stop + 1]))
        part = parts[graph.indices[positions]]
        cost = None if graph.edge_weight is None else graph.edge_weight[positions]
        if (part < 0).any():
            known = part >= 0
            slot, part = slot[known], part[known]
            cost = None if cost is None else cost[known]
        flat = np.bincount(slot * num_parts + part, cost, chunk.size * num_parts)
        counts[first:stop] = flat.reshape(chunk.size, num_parts)
    return counts


def edge_cut(graph: Adjacency, parts: np.ndarray) -> float:
    """The share of the edges whose ends are in different parts; 0 without edges."""
    cut = 0
    for first, stop in row_chunks(graph.indptr):
        begin, end = graph.indptr[first], graph.indptr[stop]
        target_part = np.repeat(parts[first:stop], np.diff(graph.indptr[first : stop + 1]))
        cut += int(np.count_nonzero(target_part != parts[graph.indices[begin:end]]))
    return cut / max(1, graph.indices.size)
