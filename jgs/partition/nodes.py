"""Which part of the graph each node belongs to: `partition_nodes`.

A partition is good when few edges have their ends in two parts, and even when every part has
as many nodes, edges and training, validation and test nodes as any other (DistDGL, Zheng et
al. 2020, section 5.3).
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.adjacency import connected, in_neighbors, subgraph, symmetric
from jgs.graph.checks import node_ids
from jgs.partition.deal import fill
from jgs.partition.metis import check_metis, metis_partition
from jgs.partition.rebalance import capped, limits, part_loads, rebalance
from jgs.partition.streaming import ldg_partition

METHODS = ("metis", "random", "ldg")
CONSTRAINTS = ("connected_nodes", "edges", "train", "val", "test")
# What a part may exceed its even share by, and what is aimed at.
TOLERANCE, _AIM = 1.05, 1.04
# With fewer nodes a part METIS has nothing to coarsen, and leaves parts empty.
_METIS_NODES = 16
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
) -> np.ndarray:
    """int32 `[N]`: the part of each node, in `[0, num_parts)`.

    Args:
      graph: directed or not; METIS gets a symmetric copy in memory, the others read it where
        it lies.
      num_parts: from 1 to the number of nodes.
      method: `metis` (a small edge cut; needs the extra `partition`), `ldg` (one pass, little
        memory, a larger cut) or `random`.
      train_idx, val_idx, test_idx: integer node ids.
      seed: of `metis` and `random`, in `[0, 2**31)`; the same arguments give the same parts.

    Balanced at once are the `CONSTRAINTS`: nodes that have an edge, in-edges, training,
    validation and test nodes. What the method left uneven by more than 4 % is mended by moving
    the nodes that cost the least cut. Nodes without edges cost none and are dealt out last, so
    that the parts have as many training, validation and test nodes, then nodes, as can be.
    What ends more than 5 % uneven (a hub with most of the edges, say) is warned of. Raises
    `InputError`.
    """
    check_partition(graph, num_parts, method, seed)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    adjacency = in_neighbors(graph)
    all_weights = constraint_weights(graph, train_idx, val_idx, test_idx)
    has_edge = all_weights[:, 0] > 0
    nodes, splits = np.flatnonzero(has_edge), all_weights[:, 2:]
    weights = all_weights * has_edge[:, None]
    limit = limits(weights.sum(axis=0), num_parts, _AIM)
    weights = capped(weights, limit)
    if (used := method_used(graph, num_parts, method)) != method:
        log.info("fewer than %d nodes a part: %s instead of METIS", _METIS_NODES, used)
    if used == "metis":
        adjacency = symmetric(adjacency)
        parts = np.zeros(graph.num_nodes, np.int32)
        # Of fewer units than parts METIS makes nothing but empty parts.
        counted = weights[nodes][:, weights.sum(axis=0) >= num_parts]
        parts[nodes] = metis_partition(subgraph(adjacency, nodes), counted, num_parts, seed)
    elif used == "random":
        parts = np.zeros(graph.num_nodes, np.int32)
        shuffled = np.random.default_rng(seed).permutation(nodes)
        parts[shuffled] = np.arange(nodes.size) % num_parts
    else:
        parts = ldg_partition(adjacency, nodes, weights, num_parts, limit).clip(0)
    parts = rebalance(adjacency, weights, parts, num_parts, limit)
    _spread(parts, np.flatnonzero(~has_edge), splits, num_parts)
    _warn(part_loads(parts, all_weights, num_parts))
    return parts


def method_used(graph: Graph, num_parts: int, method: str) -> str:
    """`method`, or what `partition_nodes` uses instead where the graph is too small for it."""
    if method == "metis" and num_parts > 1:
        num_connected = np.count_nonzero(connected(in_neighbors(graph)))
        return "ldg" if num_connected < _METIS_NODES * num_parts else method
    return method


def check_choice(num_parts: int, method: str, seed: int) -> None:
    """Raises `InputError` unless there is a graph that these could partition, here."""
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


def check_partition(graph: Graph, num_parts: int, method: str, seed: int) -> None:
    """Raises `InputError` unless `partition_nodes` can be given these."""
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


def constraint_weights(graph: Graph, train_idx: Any, val_idx: Any, test_idx: Any) -> np.ndarray:
    """int64 `[N, 5]`: what each node counts in each of `CONSTRAINTS`."""
    adjacency, num_nodes = in_neighbors(graph), graph.num_nodes
    splits = (("train_idx", train_idx), ("val_idx", val_idx), ("test_idx", test_idx))
    columns = [connected(adjacency), np.diff(adjacency.indptr)]
    for name, ids in splits:
        columns.append(np.bincount(node_ids(name, ids, num_nodes), minlength=num_nodes))
    return np.stack(columns, axis=1).astype(np.int64)


def max_over_mean(counts: np.ndarray) -> float:
    """How much the largest part's count is of the mean; 1 where there is nothing."""
    mean = counts.mean()
    return float(counts.max() / mean) if mean else 1.0


def _warn(load: np.ndarray) -> None:
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


def _spread(parts: np.ndarray, nodes: np.ndarray, splits: np.ndarray, num_parts: int) -> None:
    """Gives each of `nodes` a part: first those of a split, to even it out, then the rest."""
    left = np.zeros(parts.size, bool)
    left[nodes] = True
    for column in (*splits.T, np.ones(parts.size, np.int64)):
        some = np.flatnonzero(left & (column > 0))
        load = np.bincount(parts[~left], column[~left], num_parts).astype(np.int64)
        parts[some] = np.repeat(np.arange(num_parts), fill(load, some.size))
        left[some] = False
