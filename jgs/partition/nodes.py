"""`partition_nodes`: the part that each node of a graph belongs to.

A partition is good when few edges have their ends in different parts. It is even when all parts
have equally many nodes, edges, and training, validation and test nodes (DistDGL, Zheng et al.
2020, section 5.3).
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.adjacency import Adjacency, connected, in_neighbors, subgraph, symmetric
from jgs.partition import memory
from jgs.partition.deal import fill
from jgs.partition.kaminpar import check_kaminpar, kaminpar_partition
from jgs.partition.metis import check_metis, metis_partition
from jgs.partition.rebalance import rebalance
from jgs.partition.streaming import ldg_partition
from jgs.partition.undirected import is_symmetric
from jgs.partition.weights import (
    CONSTRAINTS,
    NodeWeights,
    ids_where,
    limits,
    node_weights,
    part_loads,
    pieces,
    total_and_heaviest,
)

METHODS = ("metis", "kaminpar", "ldg", "random")
_MULTILEVEL = ("metis", "kaminpar")
# A part's largest share over the mean: with more a warning is logged, and what is aimed at.
TOLERANCE, _AIM = 1.05, 1.04
# With fewer nodes a part, multilevel methods cannot coarsen the graph and leave parts empty.
_NODES_A_PART = 16
log = logging.getLogger(__name__)


def partition_nodes(
    graph: Graph,
    num_parts: int,
    method: str = "metis",
    *,
    train_idx: Any = (),
    val_idx: Any = (),
    test_idx: Any = (),
    seed: int = 0,
    threads: int = 1,
    scratch: str | os.PathLike | None = None,
) -> np.ndarray:
    """int32 `[N]`: the part of each node, in `[0, num_parts)`.

    Args:
      graph: directed or not. METIS gets a symmetric copy in memory; the other methods read the
        graph where it lies.
      num_parts: from 1 to the number of nodes.
      method: `metis` (a small edge cut; needs the extra `partition`), `kaminpar` (a small edge
        cut in much less memory; needs the extra `kaminpar`), `ldg` (one pass, little memory, a
        larger cut) or `random`. See `jgs.partition.memory` for the memory of each.
      train_idx, val_idx, test_idx: integer node ids.
      seed: random seed in `[0, 2**31)`, for all methods but `ldg`. The same arguments give the
        same parts.
      threads: threads of `kaminpar`; with more than one the parts differ from run to run.
      scratch: a folder for the file of `kaminpar`; None: the system's temporary folder.

    The method balances all `CONSTRAINTS` at once: nodes that have an edge, in-edges, training,
    validation and test nodes. Where a part exceeds its even share by more than 4 %, nodes are
    moved, those first that add the least to the cut. Nodes without edges add nothing to the
    cut. They are dealt out last, to even out the training, validation and test nodes and then
    the nodes of all parts. A warning is logged for what stays more than 5 % uneven, for example
    because a hub has most of the edges. Raises `InputError`.
    """
    check_partition(graph, num_parts, method, seed)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    adjacency = in_neighbors(graph)
    all_weights = constraint_weights(graph, train_idx, val_idx, test_idx)
    has_edge = all_weights.connected
    weights = all_weights.replace(only_connected=True)
    total, _ = total_and_heaviest(weights)
    limit = limits(total, num_parts, _AIM)
    weights = weights.replace(limit=limit)
    if (used := method_used(graph, num_parts, method)) != method:
        log.info("fewer than %d nodes a part: %s instead of %s", _NODES_A_PART, used, method)
    if used == "metis":
        parts = _metis(adjacency, weights, num_parts, seed)
    elif used == "kaminpar":
        folder = Path(scratch or tempfile.gettempdir())
        parts = kaminpar_partition(adjacency, weights, num_parts, seed, threads, folder)
    elif used == "random":
        parts = _random(has_edge, num_parts, seed)
    else:
        parts = ldg_partition(adjacency, has_edge, weights, num_parts, limit)
    parts = rebalance(adjacency, weights, parts, num_parts, limit)
    _spread(parts, ~has_edge, all_weights.splits, num_parts)
    warn_uneven(part_loads(parts, all_weights, num_parts))
    return parts


def _metis(adjacency: Adjacency, weights: NodeWeights, num_parts: int, seed: int) -> np.ndarray:
    nodes = np.flatnonzero(weights.connected)
    counted = weights[nodes]
    # With fewer units than parts in a constraint METIS makes empty parts.
    counted = counted[:, counted.sum(axis=0) >= num_parts]
    parts: np.ndarray = np.zeros(adjacency.num_nodes, np.int32)
    whole = symmetric(adjacency)
    parts[nodes] = metis_partition(subgraph(whole, nodes), counted, num_parts, seed)
    return parts


def _random(has_edge: np.ndarray, num_parts: int, seed: int) -> np.ndarray:
    nodes: np.ndarray = np.empty(np.count_nonzero(has_edge), np.int32)
    at = 0
    for some in ids_where(has_edge, has_edge.size):
        nodes[at : at + some.size] = some
        at += some.size
    np.random.default_rng(seed).shuffle(nodes)
    parts: np.ndarray = np.zeros(has_edge.size, np.int32)
    for piece in pieces(nodes.size):
        parts[nodes[piece]] = np.arange(piece.start, piece.stop) % num_parts
    return parts


def method_used(graph: Graph, num_parts: int, method: str) -> str:
    """The method that `partition_nodes` uses: `method`, or another where the graph is too small
    for it."""
    if method in _MULTILEVEL and num_parts > 1:
        num_connected = np.count_nonzero(connected(in_neighbors(graph)))
        return "ldg" if num_connected < _NODES_A_PART * num_parts else method
    return method


def counted(graph: Graph, method: str, splits: Iterable[np.ndarray]) -> memory.Graph:
    """The numbers of a graph that `jgs.partition.memory` takes. For multilevel methods they
    need one or two passes over the graph."""
    in_splits = sum(ids.size for ids in splits)
    if method not in _MULTILEVEL:
        return memory.Graph(graph.num_nodes, graph.num_edges, None, in_splits)
    adjacency = in_neighbors(graph)
    both_ways = graph.num_edges * (1 if is_symmetric(adjacency) else 2)
    num_connected = int(np.count_nonzero(connected(adjacency)))
    return memory.Graph(graph.num_nodes, both_ways, num_connected, in_splits)


def check_choice(num_parts: int, method: str, seed: int) -> None:
    """Raises `InputError` for arguments that no graph could be partitioned with, and for a
    method whose package is not installed."""
    if method not in METHODS:
        raise InputError(
            f"the method must be one of {', '.join(METHODS)}", repr(method), "Choose one."
        )
    if type(num_parts) is not int or num_parts < 1:
        raise InputError(
            "the number of parts must be a positive int", repr(num_parts), "Give one a rank."
        )
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise InputError("the seed must be an int in [0, 2**31)", repr(seed), "Choose another.")
    if method == "metis":
        check_metis(0)
    elif method == "kaminpar":
        check_kaminpar()


def check_partition(graph: Graph, num_parts: int, method: str, seed: int) -> None:
    """Raises `InputError` unless `partition_nodes` can partition `graph` with these
    arguments."""
    check_choice(num_parts, method, seed)
    if graph.num_nodes == 0:
        raise InputError("a graph to partition must have nodes", "none", "Check the data set.")
    if num_parts > graph.num_nodes:
        raise InputError(
            f"there must be no more parts than nodes, {graph.num_nodes:,}",
            f"{num_parts:,}",
            "Give one part for each rank.",
        )
    if method == "metis":
        check_metis(2 * graph.num_edges)


def constraint_weights(
    graph: Graph, train_idx: Any, val_idx: Any, test_idx: Any
) -> NodeWeights:
    """Each node's weight in each of `CONSTRAINTS`. Raises `InputError`."""
    splits = {"train_idx": train_idx, "val_idx": val_idx, "test_idx": test_idx}
    return node_weights(in_neighbors(graph), **splits)


def max_over_mean(counts: np.ndarray) -> float:
    """The largest part's count over the mean of all parts; 1 where all counts are 0."""
    mean = counts.mean()
    return float(counts.max() / mean) if mean else 1.0


def warn_uneven(load: np.ndarray) -> None:
    """Logs a warning of the constraints in which parts are uneven. `load` int64 `[P, 5]` is
    what each part holds of each constraint."""
    most = limits(load.sum(axis=0), len(load), TOLERANCE)
    uneven = [
        f"{max_over_mean(counts):.2f} of {name.replace('_', ' ')}"
        for name, counts, limit in zip(CONSTRAINTS, load.T, most, strict=True)
        if counts.max() > limit
    ]
    if uneven:
        log.warning(
            "the parts are uneven: the largest has, times the mean, %s", ", ".join(uneven)
        )


def _spread(
    parts: np.ndarray, left: np.ndarray, splits: tuple[np.ndarray, ...], num_parts: int
) -> None:
    """Gives a part to each node that is `left`, bool `[N]`: first to the nodes of each split,
    to even the splits out, then to the rest. Changes `parts` and `left`."""
    if not left.any():
        return
    ones = np.broadcast_to(np.uint8(1), left.shape)
    for column in (*splits, ones):
        load, count = np.zeros(num_parts, np.int64), 0
        for some in pieces(left.size):
            given = ~left[some]
            counted = np.bincount(parts[some][given], column[some][given], num_parts)
            load += counted.astype(np.int64)
            count += int(np.count_nonzero(column[some] * left[some]))
        ends, dealt = np.cumsum(fill(load, count)), 0
        for some in pieces(left.size):
            mine = some.start + np.flatnonzero(column[some] * left[some])
            ranks = np.arange(dealt, dealt + mine.size)
            parts[mine] = np.searchsorted(ends, ranks, "right")
            left[mine] = False
            dealt += mine.size
