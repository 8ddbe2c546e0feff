"""Plans of a `FeatureExchange` of node types: how many nodes of each to ask for, and which rows
of other ranks to keep, where a row of each type has another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jgs.data.by_type import nodes_of
from jgs.dist.batches.plan import (
    TRIALS,
    RemoteNodes,
    degree_counts,
    evenly,
    most_read,
    read_counts,
)
from jgs.dist.communicators.comm import all_gather_rows
from jgs.dist.rows.demand import Demand, rounded
from jgs.dist.rows.exchange import FeatureExchange
from jgs.graph import Graph, Schema


def typed_capacities(
    remote: RemoteNodes,
    epoch: int,
    num_steps: int,
    schema: Schema,
    cached: Sequence[np.ndarray] | None = None,
) -> tuple[int, ...]:
    """As `jgs.dist.batches.plan.request_capacity`, for each node type of `schema`."""
    comm, num_types = remote.comm, len(schema.node_types)
    if comm.size == 1:  # one rank has no remote nodes
        return (1,) * num_types
    needs = []
    for nodes in remote.nodes(epoch, evenly(num_steps, TRIALS)):
        if cached is not None:
            nodes = [np.setdiff1d(n, c) for n, c in zip(nodes, cached, strict=True)]
        asked = np.zeros((len(nodes), comm.size, num_types), np.int32)
        for of_rank, some in zip(asked, nodes, strict=True):
            owner = np.searchsorted(remote.offsets, some, "right") - 1
            np.add.at(of_rank, (owner, schema.numbers(some)), 1)
        needs.append(asked.max(axis=(0, 1)))
    mine = np.array(needs, np.int32).reshape(-1)
    most = all_gather_rows(comm, [mine] * comm.num_local).max(axis=0).reshape(-1, num_types)
    return tuple(rounded(Demand(of_type.tolist()).most()) for of_type in most.T)


def typed_keeper(
    remote: RemoteNodes,
    exchange: FeatureExchange,
    graphs: Sequence[Graph],
    num_steps: int,
    policy: str,
    memory: int,
) -> Callable[[int], None]:
    """A function that caches rows for an epoch, in at most `memory` bytes on each rank.

    The policies are those of `jgs.dist.batches.ranks.rank_loader`. The types share the memory
    by use: the rows that are read most often for each byte they take come first. How many rows
    a type has is decided at first and where an epoch needs more of it, as long as there is
    memory. All ranks keep equally many of each type.
    """
    chooser = _Chooser(remote, exchange, memory, spare=policy == "planned")

    def counted(epoch: int) -> tuple[Sequence[np.ndarray], int]:
        """How often each local rank reads each node, and the most rows to keep."""
        if policy == "degree":
            return degree_counts(remote.comm, remote.offsets, graphs), 1 << 62
        if policy == "trial":
            found, most = read_counts(remote, 1, evenly(num_steps, TRIALS))
            return list(found), most
        return list(read_counts(remote, epoch, range(num_steps))[0]), 1 << 62

    def keep(epoch: int) -> None:
        first = chooser.rooms is None
        found, most = counted(epoch)
        nodes = chooser.chosen(found, most)
        if first:  # later on the epochs themselves show what they ask for
            cached = chooser.ids(nodes)
            capacities = typed_capacities(remote, epoch, num_steps, exchange.schema, cached)
            if capacities != exchange.capacity:
                exchange.resize(capacities)
        exchange.cache(nodes)

    return keep


class _Chooser:
    """Chooses the rows of a cache by how often each is read."""

    def __init__(
        self, remote: RemoteNodes, exchange: FeatureExchange, memory: int, spare: bool
    ) -> None:
        self._comm, self._memory, self._spare = remote.comm, memory, spare
        self._bytes = np.array(exchange.row_bytes, np.int64)
        names = [name for name, _ in exchange.schema.node_types]
        self._nodes = [nodes_of(exchange.schema, name) for name in names]
        self.rooms: np.ndarray | None = None
        self._full = False

    def chosen(self, counts: Sequence[np.ndarray], most: int) -> list[list[np.ndarray]]:
        """For each type and each local rank the places within the type of the rows to keep, as
        `FeatureExchange.cache` takes them. `counts` has for each local rank how often it reads
        each node. At most about `most` rows are kept."""
        by_type = [[count[own] for own in self._nodes] for count in counts]
        if not self._full:
            self._make_room([self._needed(each, most) for each in by_type])
        assert self.rooms is not None
        return [
            [most_read(each[number], room) for each in by_type]
            for number, room in enumerate(self.rooms.tolist())
        ]

    def ids(self, nodes: list[list[np.ndarray]]) -> list[np.ndarray]:
        """For each local rank the ids of the nodes that `chosen` returned."""
        found = []
        for of_types in zip(*nodes, strict=True):
            each = zip(self._nodes, of_types, strict=True)
            found.append(
                np.concatenate([own[places[places < own.size]] for own, places in each])
            )
        return found

    def _needed(self, counts: list[np.ndarray], most: int) -> np.ndarray:
        """int64 `[T]`: how many rows of each type are among those that are read most for each
        of their bytes, as many as there is memory for."""
        kinds, value = [], []
        for number, (count, size) in enumerate(zip(counts, self._bytes.tolist(), strict=True)):
            reads = count[count > 0] if size else count[:0]
            kinds.append(np.full(reads.size, number))
            value.append(reads / max(size, 1))
        kind, worth = np.concatenate(kinds), np.concatenate(value)
        kind = kind[np.argsort(-worth, kind="stable")]
        fits = np.cumsum(self._bytes[kind]) <= self._memory
        return np.bincount(kind[fits][:most], minlength=self._bytes.size)

    def _make_room(self, needed: list[np.ndarray]) -> None:
        need = all_gather_rows(self._comm, needed).max(axis=0)
        before = np.zeros_like(need) if self.rooms is None else self.rooms
        if self.rooms is not None and (need <= before).all():
            return
        # Programs of each size are compiled, so there is some room to spare.
        room = np.maximum(need + need // 8 if self._spare else need, before)
        total = int((room * self._bytes).sum())
        if total > self._memory:
            room, self._full = room * self._memory // total, True
        self.rooms = room
