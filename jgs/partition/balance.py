"""The adjacency that a partitioner reads: a graph's in-neighbours, or symmetric for METIS. The
weights of nodes in the constraints, in four bytes a node, the parts' sums of them, and moving
nodes, those first that add the least to the cut, until no part exceeds a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from jgs.graph import Graph, Schema
from jgs.graph.checks import node_ids
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


CONSTRAINTS = ("connected_nodes", "edges", "train", "val", "test")
_NODES_AT_ONCE = 1 << 18  # bounds the temporaries of a pass over all nodes
_BESIDE = 25  # a part with a node above a limit may hold another 25th of the limit
_ROUNDS = 500
_STEEPNESS = 2.0, 50.0  # the factor `k`, far from the limits and near them
# A round looks at so many nodes of a part, or at one 128th of the graph's if that is more.
_LOOKED_AT, _SHARE = 1 << 18, 128
_AT_LEAST = 1000  # a round moves at least one 1000th of a limit, if so much is above the limit


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


def rebalance(
    graph: Adjacency, weights: Any, parts: np.ndarray, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """`parts` int32 `[N]`, with nodes moved until no part holds more than `limit` int64 `[C]`.

    The cost of a move are the edges of the node into the part that it leaves, minus those into
    the part that it joins. The imbalance is the sum of `exp(k load / limit)` over all parts and
    constraints, where `k` grows as the loads come near the limits. In each of at most 500
    rounds the part that exceeds a limit the most gives nodes away, those first with the
    smallest cost for the imbalance that their move takes away. If none of its nodes helps, the
    next part does. The imbalance must fall, so parts may also swap, as a hub for many leaves.

    In a large part a round looks at some of the nodes and moves their share of what must go.
    The next round continues behind these nodes. So the edges of a part are read a few times,
    however many rounds there are.

    Where no move helps any part, the exceeded constraint with the heaviest node is given up:
    parts may keep what they hold of it, and the others can still be met. `weights` are
    `NodeWeights`, or integers `[N, C]`, none negative.
    """
    parts = parts.copy()
    load = part_loads(parts, weights, num_parts)
    limit = np.maximum(limit, 1)
    heaviest = np.max([weights[some].max(axis=0) for some in pieces(parts.size)], axis=0)
    most = np.tile(limit, (num_parts, 1))
    begin: np.ndarray = np.zeros(num_parts, np.int64)  # where each part's next round looks
    for _ in range(_ROUNDS):
        over = load / most
        if over.max() <= 1:
            break
        if not _move(graph, weights, parts, load, most, begin):
            given_up = np.argmax(np.where((over > 1).any(axis=0), heaviest / limit, -1))
            most[:, given_up] = np.maximum(most, load)[:, given_up]
    return parts


def _move(graph, weights, parts, load, limit, begin) -> bool:
    """Moves nodes out of the worst part that can be helped; False if there is none."""
    worst = (load / limit).max(axis=1)
    scale = np.clip(2 / (worst.max() - 1), *_STEEPNESS) / limit
    for source in np.argsort(-worst, kind="stable")[: np.count_nonzero(worst > 1)]:
        for least in (0.5, 0.0):  # at first no moves between parts that are equally full
            for nodes, stop in _candidates(parts, source, begin[source], len(load)):
                counts = weights[nodes]
                counting = counts.any(axis=1)  # nodes of no weight would only take memory
                nodes, counts = nodes[counting], counts[counting]
                near = neighbors_per_part(graph, nodes, parts, len(load))
                targets, score = _best_moves(near, counts, load, scale, source, least)
                order = np.argsort(score, kind="stable")[: np.count_nonzero(score < np.inf)]
                if order.size == 0:
                    continue
                share = counts.sum(axis=0) / np.maximum(load[source], 1)
                count = _useful(
                    counts[order], targets[order], load, limit, scale, source, share
                )
                moved = order[:count]
                parts[nodes[moved]] = targets[moved]
                load[source] -= counts[moved].sum(axis=0)
                np.add.at(load, targets[moved], counts[moved])
                begin[source] = stop
                return True
    return False


def _candidates(
    parts: np.ndarray, source: int, begin: int, num_parts: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields some nodes of the part `source`, once around from `begin`, and the next id."""
    size = max(_LOOKED_AT, parts.size // _SHARE) * num_parts
    for low, high in ((begin, parts.size), (0, begin)):
        for first in range(low, high, size):
            stop = min(first + size, high)
            nodes = first + np.flatnonzero(parts[first:stop] == source)
            if nodes.size:
                yield nodes, stop % parts.size


def _best_moves(near, weights, load, scale, source, least) -> tuple[np.ndarray, np.ndarray]:
    """Each node's best target part, and the score of its move: the cost over the fall of the
    imbalance.

    The score is infinite where the imbalance falls by at most `least` of its fall in the
    source.
    """
    top = (load * scale).max()  # keeps the exponentials finite
    had = np.exp(load * scale - top)
    left = had[source] - np.exp((load[source] - weights) * scale[source] - top)
    relief = left.sum(axis=1)
    best, lowest = np.zeros(len(near), np.int32), np.full(len(near), np.inf)
    for target in range(len(load)):
        if target == source:
            continue
        joined = np.exp((load[target] + weights) * scale[target] - top)
        gain = relief - (joined - had[target]).sum(axis=1)
        lost = near[:, source] - near[:, target]
        # Among moves that cost nothing, the one that evens out the most comes first.
        score = np.where(lost > 0, lost / np.maximum(gain, 1e-300), lost * 1.0 - gain)
        score[~(gain > np.maximum(least * relief, 1e-12))] = np.inf
        better = score < lowest
        best[better], lowest[better] = target, score[better]
    return best, lowest


def _useful(weights, targets, load, limit, scale, source: int, share: np.ndarray) -> int:
    """How many of the moves to make at once: enough to move `share` `[C]` of what the source
    must lose, or a little more. The number is halved until the imbalance falls: each move alone
    lowers it, but together they may overshoot."""
    excess = np.maximum(load[source] - limit[source], 0)
    given = np.maximum(np.ceil(share * excess), limit[source] // _AT_LEAST)
    enough = (np.cumsum(weights, axis=0) >= np.minimum(excess, given)).all(axis=1)
    count = int(np.argmax(enough)) + 1 if enough.any() else targets.size
    top = (load * scale).max()
    before = np.exp(load * scale - top).sum()
    while count > 1:
        after = load.copy()
        after[source] -= weights[:count].sum(axis=0)
        np.add.at(after, targets[:count], weights[:count])
        if np.exp(after * scale - top).sum() < before:
            break
        count //= 2
    return count
