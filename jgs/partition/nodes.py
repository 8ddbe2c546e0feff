"""`partition_nodes`: the part of each node of a graph; and partitions that the user has made.

A partition is good when few edges have their ends in different parts. It is even when all parts
have equally many nodes, edges, and training, validation and test nodes (DistDGL, Zheng et al.
2020, section III-B).

DistDGL splits a graph over machines, and what a machine has over its trainers (section III-E).
Here the parts are made first, one for each rank. Then those that share the most edges become
neighbours: machine `m` has the parts from `m T` to `(m + 1) T - 1`. So ranks that are started
in order, `T` on each machine, send most of what they exchange within a machine.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError, check_choice, refusing
from jgs.files.npy import map_npy
from jgs.graph import Graph
from jgs.graph.rows import row_chunks
from jgs.partition import balance, memory
from jgs.partition.min_cut import (
    check_kaminpar,
    check_metis,
    is_symmetric,
    kaminpar_partition,
    metis_partition,
)

METHODS = ("metis", "kaminpar", "ldg", "random")
_MULTILEVEL = ("metis", "kaminpar")
# A part's largest share over the mean: with more a warning is logged, and what is aimed at.
TOLERANCE, _AIM = 1.05, 1.04
# With fewer nodes a part, multilevel methods cannot coarsen the graph and leave parts empty.
_NODES_A_PART = 16
_CHUNKS = 1024  # the number of chunks of ldg's pass, which is more if one would exceed these:
_NODES, _COUNTS = 1 << 16, 1 << 23  # nodes of a chunk, and nodes times parts
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
    ranks_per_machine: int = 1,
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
      ranks_per_machine: how many consecutive parts one machine has (`jgs.partition.nodes`).

    The method balances all constraints at once: nodes that have an edge, in-edges, training,
    validation and test nodes; and in a graph of several node types the nodes and the training
    nodes of each type. Where a part exceeds its even share by more than 4 %, nodes are
    moved, those first that add the least to the cut. Nodes without edges add nothing to the
    cut. They are dealt out last, to even out the training, validation and test nodes, then the
    nodes of each type, and then the nodes of all parts. A warning is logged for what stays more
    than 5 % uneven, for example because a hub has most of the edges. Raises `InputError`.
    """
    check_partition(num_parts, method, seed, graph)
    check_machines(num_parts, ranks_per_machine)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    adjacency = balance.in_neighbors(graph)
    all_weights = balance.constraint_weights(graph, train_idx, val_idx, test_idx)
    has_edge = all_weights.connected
    weights = replace(all_weights, only_connected=True)
    total = sum(weights[some].sum(axis=0) for some in balance.pieces(has_edge.size))
    limit = balance.limits(total, num_parts, _AIM)
    weights = replace(weights, limit=limit)
    used = _used(method, num_parts, int(np.count_nonzero(has_edge)))
    if used != method:
        log.info("fewer than %d nodes a part: %s instead of %s", _NODES_A_PART, used, method)
    if used == "metis":
        parts = _metis(adjacency, weights, num_parts, seed)
    elif used == "kaminpar":
        folder = Path(scratch or tempfile.gettempdir())
        parts = kaminpar_partition(adjacency, weights, num_parts, seed, threads, folder)
    elif used == "random":
        parts = _random(has_edge, num_parts, seed)
    else:
        parts = ldg_partition(adjacency, weights, num_parts, limit)
    parts = balance.rebalance(adjacency, weights, parts, num_parts, limit)
    _spread(parts, ~has_edge, all_weights, num_parts)
    if ranks_per_machine > 1:
        order = machine_order(edges_between(adjacency, parts, num_parts), ranks_per_machine)
        for some in balance.pieces(parts.size):
            parts[some] = order[parts[some]]
    _warn_uneven(parts, all_weights, num_parts)
    return parts


def _metis(
    adjacency: balance.Adjacency, weights: balance.NodeWeights, num_parts: int, seed: int
) -> np.ndarray:
    nodes = np.flatnonzero(weights.connected)
    counted = weights[nodes]
    # With fewer units than parts in a constraint METIS makes empty parts.
    counted = counted[:, counted.sum(axis=0) >= num_parts]
    parts: np.ndarray = np.zeros(adjacency.num_nodes, np.int32)
    whole = balance.symmetric(adjacency)
    parts[nodes] = metis_partition(balance.subgraph(whole, nodes), counted, num_parts, seed)
    return parts


def _random(has_edge: np.ndarray, num_parts: int, seed: int) -> np.ndarray:
    nodes: np.ndarray = np.empty(np.count_nonzero(has_edge), np.int32)
    at = 0
    for some in balance.ids_where(has_edge, has_edge.size):
        nodes[at : at + some.size] = some
        at += some.size
    np.random.default_rng(seed).shuffle(nodes)
    parts: np.ndarray = np.zeros(has_edge.size, np.int32)
    for piece in balance.pieces(nodes.size):
        parts[nodes[piece]] = np.arange(piece.start, piece.stop) % num_parts
    return parts


def _used(method: str, num_parts: int, num_connected: int) -> str:
    too_few = method in _MULTILEVEL and num_connected < _NODES_A_PART * num_parts
    return "ldg" if too_few and num_parts > 1 else method


def used_and_size(
    graph: Graph, num_parts: int, method: str, splits: Iterable[np.ndarray]
) -> tuple[str, memory.Graph]:
    """The method that `partition_nodes` uses, and the numbers of the graph that
    `jgs.partition.memory` takes. Multilevel methods need two passes over the graph for them."""
    in_splits = sum(ids.size for ids in splits)
    size = memory.Graph(graph.num_nodes, graph.num_edges, graph.num_nodes, in_splits)
    if method not in _MULTILEVEL:
        return method, size
    adjacency = balance.in_neighbors(graph)
    both_ways = graph.num_edges * (1 if is_symmetric(adjacency) else 2)
    num_connected = int(np.count_nonzero(balance.connected(adjacency)))
    used = _used(method, num_parts, num_connected)
    return used, size._replace(edges=both_ways, connected=num_connected)


def check_partition(num_parts: int, method: str, seed: int, graph: Graph | None = None) -> None:
    """Raises `InputError` for arguments with which `graph`, or without one any graph, could not
    be partitioned, and for a method whose package is not installed."""
    check_choice("the method", method, METHODS)
    if type(num_parts) is not int or num_parts < 1:
        raise InputError(
            "the number of parts must be a positive int", repr(num_parts), "Give one a rank."
        )
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise InputError("the seed must be an int in [0, 2**31)", repr(seed), "Give e.g. 0.")
    if method == "metis":
        check_metis(2 * graph.num_edges if graph is not None else 0)
    elif method == "kaminpar":
        check_kaminpar()
    if graph is None:
        return
    if graph.num_nodes == 0:
        raise InputError("a graph to partition must have nodes", "none", "Check the data set.")
    if num_parts > graph.num_nodes:
        raise InputError(
            f"there must be no more parts than nodes, {graph.num_nodes:,}",
            f"{num_parts:,}",
            "Give one part for each rank.",
        )


def open_assignment(path: str | os.PathLike) -> np.ndarray:
    """The array `[N]` of a `.npy` file, of any integer dtype, memory-mapped. Raises
    `InputError`."""
    rule = "an assignment must be a .npy file of integers"
    with refusing((OSError, ValueError), rule, "Write it with numpy.save."):
        array = map_npy(Path(path))
    remedy = "Give the part of each node, in the order of the data set's ids."
    require_array("an assignment", array, "integers [N]", remedy)
    return array


def checked_assignment(
    given: np.ndarray, graph: Graph, num_parts: int, **splits: Any
) -> np.ndarray:
    """int32 `[N]`: the part of each node as `given`. No node is moved, and a part may be empty.

    Raises `InputError` unless each node has a part in `[0, num_parts)`. Warns of uneven parts.
    """
    if given.size != graph.num_nodes:
        raise InputError(
            f"an assignment must have a part for each of the {graph.num_nodes:,} nodes",
            f"{given.size:,}",
            "Give the part of each node, in the order of the data set's ids.",
        )
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= num_parts:
        raise InputError(
            f"an assignment's parts must be in [0, {num_parts})",
            f"{low} to {high}",
            "Correct them, or --parts.",
        )
    parts = given.astype(np.int32)
    _warn_uneven(parts, balance.constraint_weights(graph, **splits), num_parts)
    return parts


def max_over_mean(counts: np.ndarray) -> float:
    """The largest part's count over the mean of all parts; 1 where all counts are 0."""
    mean = counts.mean()
    return float(counts.max() / mean) if mean else 1.0


def _warn_uneven(parts: np.ndarray, weights: balance.NodeWeights, num_parts: int) -> None:
    load = balance.part_loads(parts, weights, num_parts)
    most = balance.limits(load.sum(axis=0), len(load), TOLERANCE)
    uneven = [
        f"{max_over_mean(counts):.2f} of {name.replace('_', ' ')}"
        for name, counts, limit in zip(weights.constraints, load.T, most, strict=True)
        if counts.max() > limit
    ]
    if uneven:
        log.warning(
            "the parts are uneven: the largest has, times the mean, %s", ", ".join(uneven)
        )


def _spread(
    parts: np.ndarray, left: np.ndarray, weights: balance.NodeWeights, num_parts: int
) -> None:
    """Gives a part to each node that is `left`, bool `[N]`: first to the nodes of each split,
    to even the splits out, then to those of each type, then to the rest. Changes `parts` and
    `left`."""
    if not left.any():
        return
    for column in weights.spread_by():
        load, count = np.zeros(num_parts, np.int64), 0
        for some in balance.pieces(left.size):
            given = ~left[some]
            counted = np.bincount(parts[some][given], column[some][given], num_parts)
            load += counted.astype(np.int64)
            count += int(np.count_nonzero(column[some] * left[some]))
        ends, dealt = np.cumsum(fill(load, count)), 0
        for some in balance.pieces(left.size):
            mine = some.start + np.flatnonzero(column[some] * left[some])
            ranks = np.arange(dealt, dealt + mine.size)
            parts[mine] = np.searchsorted(ends, ranks, "right")
            left[mine] = False
            dealt += mine.size


def fill(load: np.ndarray, count: int) -> np.ndarray:
    """int64 `[P]`: how many of `count` equal things each part gets, so that the sums with
    `load` are as even as possible. What does not divide goes to the first parts."""
    order = np.argsort(load, kind="stable")
    level = load[order].astype(np.int64)
    # Raising the i emptiest parts to the level of the next takes `used[i]` things.
    used = np.arange(level.size) * level - (np.cumsum(level) - level)
    raised = max(1, int(np.searchsorted(used, count, "right")))
    height, rest = divmod(int(level[:raised].sum()) + count, raised)
    added = np.zeros(level.size, np.int64)
    added[order[:raised]] = height - level[:raised]
    added[np.sort(order[:raised])[:rest]] += 1
    return added


def check_machines(num_parts: int, ranks_per_machine: int) -> None:
    """Raises `InputError` unless the parts can be divided evenly over machines."""
    if type(ranks_per_machine) is not int or ranks_per_machine < 1:
        raise InputError(
            "the ranks of a machine must be a positive int",
            repr(ranks_per_machine),
            "Give the number of ranks that each machine runs.",
        )
    if num_parts % ranks_per_machine:
        raise InputError(
            "the number of parts must be a multiple of the ranks of a machine",
            f"{num_parts} parts, {ranks_per_machine} ranks a machine",
            "Give every machine equally many parts.",
        )


def edges_between(graph: balance.Adjacency, parts: np.ndarray, num_parts: int) -> np.ndarray:
    """int64 `[P, P]`: the number of edges into each part (row) from each part (column)."""
    counts = np.zeros(num_parts * num_parts, np.int64)
    for first, stop in row_chunks(graph.indptr):
        begin, end = graph.indptr[first], graph.indptr[stop]
        degree = np.diff(graph.indptr[first : stop + 1])
        target = np.repeat(parts[first:stop].astype(np.int64), degree)
        pair = target * num_parts + parts[graph.indices[begin:end]]
        counts += np.bincount(pair, minlength=counts.size)
    return counts.reshape(num_parts, num_parts)


def machine_order(between: np.ndarray, ranks_per_machine: int) -> np.ndarray:
    """int64 `[P]`: the new number of each part, with which few of the edges `between` `[P, P]`,
    as `edges_between` returns them, are between machines. Each has `ranks_per_machine` parts.

    A machine begins with the part that has the most edges to parts without a machine. It takes
    the part that has the most edges to it, until it is full. Then parts of different machines
    change places as long as that saves edges. Machines are numbered by their least part. Where
    all this saves none, parts keep their numbers.
    """
    num_parts, size = len(between), ranks_per_machine
    if size in (1, num_parts):
        return np.arange(num_parts)
    affinity = (between + between.T).astype(np.int64)
    np.fill_diagonal(affinity, 0)
    machine = np.full(num_parts, -1)
    for number in range(num_parts // size):
        near = affinity[:, machine < 0].sum(axis=1)
        for _ in range(size):
            chosen = np.argmax(np.where(machine < 0, near, -1))
            machine[chosen] = number
            near = affinity[:, machine == number].sum(axis=1)
    _swap(affinity, machine)
    given = np.arange(num_parts) // size
    if affinity[given[:, None] == given].sum() >= affinity[machine[:, None] == machine].sum():
        return np.arange(num_parts)
    members = sorted(np.flatnonzero(machine == m).tolist() for m in range(num_parts // size))
    order = np.empty(num_parts, np.int64)
    order[np.concatenate(members)] = np.arange(num_parts)
    return order


def _swap(affinity: np.ndarray, machine: np.ndarray) -> None:
    """Exchanges the machines of two parts, those first that save the most."""
    every = np.arange(len(machine))
    while True:
        to = affinity @ (machine[:, None] == np.arange(machine.max() + 1))  # [P, M]
        moved = to[:, machine] - to[every, machine][:, None]  # what a gains in b's machine
        saved = moved + moved.T - 2 * affinity
        saved[machine[:, None] == machine] = 0
        a, b = np.unravel_index(np.argmax(saved), saved.shape)
        if saved[a, b] <= 0:
            return
        machine[[a, b]] = machine[[b, a]]


def ldg_partition(
    graph: balance.Adjacency, weights: balance.NodeWeights, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """int32 `[N]`: the part of each node, of which none exceeds `limit` int64 `[C]` as long as
    another part has room. Nodes without edges are in part 0. The neighbours are read once, in
    the order of the nodes' ids.

    Linear deterministic greedy (Stanton & Kliot, "Streaming graph partitioning for large
    distributed graphs", 2012, section 4.1): each node in turn goes to the part for which the
    number of its neighbours there, times the free share of the part, is largest. Here a part is
    as full as its fullest constraint. Some hundred nodes are placed at once, and do not count
    as each other's neighbours.
    """
    parts = np.full(graph.num_nodes, -1, np.int32)
    load = np.zeros((num_parts, limit.size), np.int64)
    most = min(_NODES, max(1, _COUNTS // num_parts))
    size = int(np.clip(np.count_nonzero(weights.connected) // _CHUNKS, 1, most))
    for some in balance.ids_where(weights.connected, size):
        near, counts = balance.neighbors_per_part(graph, some, parts, num_parts), weights[some]
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
