"""The weights of nodes in the constraints, in four bytes a node, and the parts' sums of
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jgs.graph import Graph, Schema
from jgs.graph.adjacency import connected, in_neighbors
from jgs.graph.checks import node_ids

CONSTRAINTS = ("connected_nodes", "edges", "train", "val", "test")
_NODES_AT_ONCE = 1 << 18  # bounds the temporaries of a pass over all nodes
_BESIDE = 25  # a part with a node above a limit may hold another 25th of the limit


@dataclass(frozen=True)
class NodeWeights:
    """The weights of nodes. Indexing by a slice or by node ids gives int64 `[n, C]`, with a
    column for each of the `constraints`: `CONSTRAINTS`; and where a graph has several node
    types, the nodes of each type, and the training nodes of each type that has some if several
    have. This is what DistDGL's `balance_ntypes` does (Zheng et al. 2020, section III-B).

    Fields:
      indptr: int64 `[N+1]`, may be memory-mapped. A node's weight in edges is the length of its
        row.
      connected: bool `[N]`, whether the node has an edge, in or out.
      splits: for each of `train`, `val` and `test` an unsigned array `[N]`, how often the node
        is in it.
      only_connected: whether nodes without an edge have no weight.
      limit: int64 `[C]` or None. A weight above the limit counts as a little less than the
        limit, so that a part with such a node is almost full. A weight that cannot be divided
        must not keep the rest from being evened out.
      schema: that of a graph of several node types, or None.
      trained: the numbers of the types that have training nodes, if these are several.
    """

    indptr: np.ndarray
    connected: np.ndarray
    splits: tuple[np.ndarray, ...]
    only_connected: bool = False
    limit: np.ndarray | None = None
    schema: Schema | None = None
    trained: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        return self.connected.size, len(self.constraints)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The name of each column."""
        if self.schema is None:
            return CONSTRAINTS
        names = [name for name, _ in self.schema.node_types]
        of_types = (f"nodes of {name}" for name in names)
        return (*CONSTRAINTS, *of_types, *(f"train of {names[kind]}" for kind in self.trained))

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.connected.size)
            degree = np.diff(self.indptr[first : stop + 1])
        else:
            degree = self.indptr[rows + 1] - self.indptr[rows]
        found = self.connected[rows]
        weights = np.empty((degree.size, len(self.constraints)), np.int64)
        weights[:, 0], weights[:, 1] = found, degree
        for column, counts in enumerate(self.splits, 2):
            weights[:, column] = counts[rows]
        if self.schema is not None:
            kind = self.schema.numbers(
                np.arange(first, stop) if isinstance(rows, slice) else rows
            )
            every = range(len(self.schema.node_types))
            for column, number in enumerate((*every, *self.trained), len(CONSTRAINTS)):
                weights[:, column] = kind == number
            weights[:, len(CONSTRAINTS) + len(every) :] *= weights[:, 2:3]
        if self.only_connected:
            weights *= found[:, None]
        if self.limit is not None:
            lowered = self.limit - self.limit // _BESIDE
            weights = np.where(weights > self.limit, lowered, weights)
        return weights

    def spread_by(self) -> Iterator[np.ndarray]:
        """Yields unsigned arrays `[N]`: how often each node counts in what is evened out, one
        after the other, by the nodes without edges."""
        if self.trained:
            for number in self.trained:
                yield self._of_type(number) * self.splits[0]
        yield from self.splits
        if self.schema is not None:
            for number in range(len(self.schema.node_types)):
                yield self._of_type(number)
        yield np.broadcast_to(np.uint8(1), self.connected.shape)

    def _of_type(self, number: int) -> np.ndarray:
        """uint8 `[N]`: 1 for the nodes of a type."""
        assert self.schema is not None
        found: np.ndarray = np.zeros(self.connected.size, np.uint8)
        for ids in self.schema.ranges(self.schema.node_types[number][0]):
            found[ids.start : ids.stop] = 1
        return found


def constraint_weights(
    graph: Graph, train_idx: Any, val_idx: Any, test_idx: Any
) -> NodeWeights:
    """Each node's weight in each constraint of `NodeWeights`. Raises `InputError`."""
    splits = {"train_idx": train_idx, "val_idx": val_idx, "test_idx": test_idx}
    adjacency, n = in_neighbors(graph), graph.num_nodes
    counts = tuple(_counts(node_ids(name, ids, n), n) for name, ids in splits.items())
    weights = NodeWeights(adjacency.indptr, connected(adjacency), counts)
    schema = graph.schema
    if schema is None or len(schema.node_types) < 2:
        return weights
    trained = np.unique(schema.numbers(np.asarray(train_idx, np.int64))).tolist()
    several = tuple(trained) if len(trained) > 1 else ()
    return replace(weights, schema=schema, trained=several)


def _counts(ids: np.ndarray, num_nodes: int) -> np.ndarray:
    counts: np.ndarray = np.zeros(num_nodes, np.uint8)
    counts[ids] = 1
    if np.count_nonzero(counts) == ids.size:
        return counts
    counts = np.zeros(num_nodes, np.uint32)  # some ids are there more than once
    np.add.at(counts, ids, 1)
    return counts


def pieces(num_nodes: int) -> Iterator[slice]:
    """Yields slices of the nodes from 0 to `num_nodes - 1`, some hundred thousand at a time."""
    for first in range(0, num_nodes, _NODES_AT_ONCE):
        yield slice(first, min(first + _NODES_AT_ONCE, num_nodes))


def ids_where(mask: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Yields int64 arrays: the positions where `mask` is true, ascending, at most `most` at a
    time."""
    for some in pieces(mask.size):
        found = some.start + np.flatnonzero(mask[some])
        for first in range(0, found.size, most):
            yield found[first : first + most]


def part_loads(parts: np.ndarray, weights: Any, num_parts: int) -> np.ndarray:
    """int64 `[num_parts, C]`: the sum of the weights of each part's nodes in each constraint.

    `weights` are `NodeWeights`, or integers `[N, C]`."""
    load = np.zeros((num_parts, weights.shape[1]), np.int64)
    for some in pieces(parts.size):
        own = parts[some]
        for column, counts in enumerate(weights[some].T):
            load[:, column] += np.bincount(own, counts, num_parts).astype(np.int64)
    return load


def limits(total: np.ndarray, num_parts: int, tolerance: float) -> np.ndarray:
    """int64 `[C]`: the most that a part may hold of each constraint: `tolerance` times the even
    share, and at least the even share rounded up."""
    return np.maximum(total * tolerance // num_parts, -(-total // num_parts)).astype(np.int64)
