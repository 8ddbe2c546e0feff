"""Linear deterministic greedy: one pass over the nodes, for graphs too large for METIS.

Stanton & Kliot, "Streaming graph partitioning for large distributed graphs" (2012), section
4.1: each node in turn goes to the part for which the number of its neighbours there, times the
free share of the part, is largest. Here a part is as full as its fullest constraint. Some
hundred nodes are placed at once, and do not count as each other's neighbours.
"""

from __future__ import annotations

import numpy as np

from jgs.graph.adjacency import Adjacency, neighbors_per_part
from jgs.partition.balance import NodeWeights, ids_where

_CHUNKS = 1024  # the number of chunks of the pass, which is more if one would exceed these:
_NODES, _COUNTS = 1 << 16, 1 << 23  # nodes of a chunk, and nodes times parts


def ldg_partition(
    graph: Adjacency, weights: NodeWeights, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """int32 `[N]`: the part of each node, of which none exceeds `limit` int64 `[C]` as long as
    another part has room. Nodes without edges are in part 0. The neighbours are read once, in
    the order of the nodes' ids."""
    parts = np.full(graph.num_nodes, -1, np.int32)
    load = np.zeros((num_parts, limit.size), np.int64)
    most = min(_NODES, max(1, _COUNTS // num_parts))
    size = int(np.clip(np.count_nonzero(weights.connected) // _CHUNKS, 1, most))
    for some in ids_where(weights.connected, size):
        near, counts = neighbors_per_part(graph, some, parts, num_parts), weights[some]
        while some.size:
            free = 1 - (load / np.maximum(limit, 1)).max(axis=1)
            targets = _best(near, free)
            placed = _placed(counts, targets, limit - load)
            if free.max() <= 0:  # no part has room for any; they are evened out later
                placed[:] = True
            elif not placed.any():  # no part has room for the first of them
                targets[0], placed[0] = np.argmax(free), True
            parts[some[placed]] = targets[placed]
            np.add.at(load, targets[placed], counts[placed])
            some, near, counts = some[~placed], near[~placed], counts[~placed]
    return np.maximum(parts, 0, out=parts)


def _best(near: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The best part of each row; rows without neighbours fill the room evenly."""
    free = np.maximum(free, 0)
    targets = np.argmax(near * free, axis=1)
    alone = np.flatnonzero((near * free).max(axis=1) <= 0)
    shares = np.cumsum(free) if free.any() else np.arange(1.0, free.size + 1)
    at = (np.arange(alone.size) + 0.5) / max(1, alone.size) * shares[-1]
    targets[alone] = np.minimum(np.searchsorted(shares, at, "right"), free.size - 1)
    return targets


def _placed(weights: np.ndarray, targets: np.ndarray, room: np.ndarray) -> np.ndarray:
    """bool: which rows fit, in order, up to the first of each part that does not."""
    placed = np.zeros(targets.size, bool)
    for part in np.unique(targets):
        mine = np.flatnonzero(targets == part)
        fits = (np.cumsum(weights[mine], axis=0) <= room[part]).all(axis=1)
        placed[mine[: mine.size if fits.all() else int(np.argmin(fits))]] = True
    return placed
