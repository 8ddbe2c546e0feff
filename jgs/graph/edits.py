"""The edges of changed graphs: sorted, symmetric, with self-loops, induced. NumPy, no loop over
edges.

Each function takes `indptr` and the graph's edge arrays by name, and returns those of the new
graph, all except `edge_weight_prefix`, which `Graph` computes again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph.grouping import order_by
from jgs.graph.rows import order_dtype, row_of_edges, row_offsets, row_positions

Arrays = dict[str, np.ndarray]


def sorted_rows(indptr: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, Arrays]:
    """See `Graph.sorted`."""
    rows, sources = row_of_edges(indptr), arrays["indices"]
    types, times = arrays.get("edge_type"), arrays.get("edge_time")
    order = order_by(rows, sources, indptr.size - 1, types, times)
    return indptr, _take(arrays, order)


def rows_by_type(indptr: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, Arrays]:
    """Each row sorted by edge type; edges of one type keep their order."""
    order = np.lexsort((arrays["edge_type"], row_of_edges(indptr)))
    return indptr, _take(arrays, order)


def both_ways(indptr: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, Arrays]:
    """See `Graph.symmetrized`."""
    arrays.pop("edge_type", None)
    targets, sources = row_of_edges(indptr), arrays["indices"]
    num_nodes, num_edges = indptr.size - 1, sources.size
    rows, sources = np.concatenate([targets, sources]), np.concatenate([sources, targets])
    times = np.tile(arrays.get("edge_time", np.zeros(num_edges, np.int64)), 2)
    # A given edge comes before an equal reverse.
    order = order_by(rows, sources, num_nodes, times=times if "edge_time" in arrays else None)
    rows, sources, times = rows[order], sources[order], times[order]
    first = np.ones(order.size, bool)
    first[1:] = (rows[1:] != rows[:-1]) | (sources[1:] != sources[:-1])
    first[1:] |= times[1:] != times[:-1]
    kept = np.flatnonzero(first)
    of_edge = order % max(num_edges, 1)
    both = _take(arrays, of_edge[kept])
    both["indices"] = sources[kept]
    if "edge_weight" in arrays and num_edges:
        both["edge_weight"] = np.maximum.reduceat(arrays["edge_weight"][of_edge], kept)
    return row_offsets(np.bincount(rows[kept], minlength=num_nodes)), both


def with_loops(indptr: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, Arrays]:
    """See `Graph.with_self_loops`."""
    arrays.pop("edge_type", None)
    if "edge_time" in arrays:
        raise InputError(
            "a graph that gets self-loops must have no edge times, for a loop has none",
            "one with edge_time",
            "Add the loops yourself, with the times that they shall have.",
        )
    targets, sources = row_of_edges(indptr), arrays["indices"]
    missing = np.ones(indptr.size - 1, bool)
    missing[targets[targets == sources]] = False
    nodes = np.flatnonzero(missing)
    order = arrays.get("edge_order")
    if order is None:
        order = np.arange(sources.size, dtype=order_dtype(sources.size))
    nowhere = np.iinfo(order.dtype).max
    added: Mapping = {"indices": nodes, "edge_weight": 1, "edge_order": nowhere}
    ends = indptr[nodes + 1]
    looped = {
        name: np.insert(array, ends, added.get(name, 0), axis=0)
        for name, array in {**arrays, "edge_order": order}.items()
    }
    return row_offsets(np.diff(indptr) + missing), looped


def only(indptr: np.ndarray, arrays: Arrays, kept: np.ndarray) -> tuple[np.ndarray, Arrays]:
    """See `Graph.edge_subgraph`."""
    form, num_edges = "bool [E], one for each edge", arrays["indices"].size
    require_array("kept", kept, form, "Give a mask of the edges.", E=num_edges)
    return row_offsets(kept)[indptr], _take(arrays, np.flatnonzero(kept))


def among(indptr: np.ndarray, arrays: Arrays, nodes: np.ndarray) -> tuple[np.ndarray, Arrays]:
    """See `Graph.subgraph`; `nodes` are distinct node ids."""
    positions = row_positions(indptr, nodes)
    sources = arrays["indices"][positions]
    new_id = np.argsort(nodes)  # the new id of each node in ascending order
    ascending = nodes[new_id]
    at = np.searchsorted(ascending, sources)
    inside = ascending[np.minimum(at, nodes.size - 1)] == sources
    induced = _take(arrays, positions[inside])
    induced["indices"] = new_id[at[inside]].astype(np.int32)
    begins = row_offsets(indptr[nodes + 1] - indptr[nodes])
    return row_offsets(inside)[begins], induced


def _take(arrays: Arrays, positions: np.ndarray) -> Arrays:
    """The arrays of the edges at `positions`, with `edge_order`, which is `positions` where
    the given edges had no `edge_order`."""
    taken = {name: array[positions] for name, array in arrays.items()}
    if "edge_order" not in arrays:
        taken["edge_order"] = positions.astype(order_dtype(arrays["indices"].size), copy=False)
    return taken
