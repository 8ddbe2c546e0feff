"""Linear deterministic greedy: one pass over the nodes, for graphs too large for METIS.

Stanton & Kliot, "Streaming graph partitioning for large distributed graphs" (2012), section
4.1: each node in turn goes to the part that holds most of its neighbours, times the share
that is free there. Here a part is as full as its fullest constraint, and some hundred nodes
are placed at once: those do not see each other.
"""

from __future__ import annotations

import numpy as np

from jgs.graph.adjacency import Adjacency, neighbors_per_part

_CHUNKS = 1024  # the pass is cut into so many, of at most:
_NODES = 1 << 16


def ldg_partition(
    graph: Adjacency, nodes: np.ndarray, weights: np.ndarray, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """int32 `[N]`: the part of each of `nodes`, -1 for the others.

    Args:
      graph: whose neighbours are read, once each.
      nodes: ids in the order in which they come.
      weights: int64 `[N, C]`, none negative.
      limit: int64 `[C]`: what no part exceeds as long as another has room.
    """
    parts = np.full(graph.num_nodes, -1, np.int32)
    load = np.zeros((num_parts, limit.size), np.int64)
    size = int(np.clip(nodes.size // _CHUNKS, 1, _NODES))
    for first in range(0, nodes.size, size):
        some = nodes[first : first + size]
        near = neighbors_per_part(graph, some, parts, num_parts)
        while some.size:
            free = 1 - (load / np.maximum(limit, 1)).max(axis=1)
            targets = _best(near, free)
            placed = _placed(weights[some], targets, limit - load)
            if not placed.any():  # no room for the first of them anywhere
                targets[0], placed[0] = np.argmax(free), True
            parts[some[placed]] = targets[placed]
            np.add.at(load, targets[placed], weights[some[placed]])
            some, near = some[~placed], near[~placed]
    return parts


def _best(near: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The best part of each row; rows without neighbours go where there is room, evenly."""
    free = np.maximum(free, 0)
    targets = np.argmax(near * free, axis=1)
    alone = np.flatnonzero((near * free).max(axis=1) <= 0)
    shares = np.cumsum(free) if free.any() else np.arange(1.0, free.size + 1)
    at = (np.arange(alone.size) + 0.5) / max(1, alone.size) * shares[-1]
    targets[alone] = np.minimum(np.searchsorted(shares, at, "right"), free.size - 1)
    return targets


def _placed(weights: np.ndarray, targets: np.ndarray, room: np.ndarray) -> np.ndarray:
    """bool: which rows fit, each part filled in their order up to the first that does not."""
    placed = np.zeros(targets.size, bool)
    for part in np.unique(targets):
        mine = np.flatnonzero(targets == part)
        fits = (np.cumsum(weights[mine], axis=0) <= room[part]).all(axis=1)
        placed[mine[: mine.size if fits.all() else int(np.argmin(fits))]] = True
    return placed
