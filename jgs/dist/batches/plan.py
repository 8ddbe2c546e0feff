"""Plans of what ranks draw and exchange: capacities, and which remote rows to keep.

A sample is a function of its key, so what an epoch will need is known before it begins: its
samples are drawn once for counting (RapidGNN, arXiv 2509.05207).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jgs.data.values import nodes_of
from jgs.dist.batches.source import HybridSampler, RankSampler, steps
from jgs.dist.batches.vanilla import VanillaSampler
from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.owners import Demand, rounded
from jgs.graph import Graph, Schema
from jgs.graph.rows import neighbor_counts
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape, round_up
from jgs.sampling.loading.items import Stage
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.plan import SMALL, bound_of, capacities_for

_TRIALS, _VANILLA_TRIALS = 16, 4  # the batches that are drawn for a plan


class RemoteNodes:
    """The nodes of other ranks that each local rank's batches read.

    `sampler` draws the batches of the `schedules`, one for each local rank. `owner` tells the
    ranks that own some of the nodes below `offsets[-1]`; by default rank `r` owns those from
    `offsets[r]` to `offsets[r+1]`.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: np.ndarray,
        sampler: RankSampler,
        schedules: Sequence[Schedule],
        owner: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.comm, self.offsets = comm, np.asarray(offsets)
        self._sampler, self._schedules = sampler, schedules
        self.owner = owner or (lambda nodes: np.searchsorted(self.offsets, nodes, "right") - 1)

    def nodes(self, epoch: int, which: Sequence[int]) -> Iterator[list[np.ndarray]]:
        """Yields for each of these steps the distinct remote nodes, int32, of each local rank.

        All ranks call it alike, because drawing communicates in vanilla mode."""
        for key_data, seeds in steps(self.comm, self._schedules, epoch, which):
            drawn = self.comm.local(self.drawn(key_data, seeds).nodes)
            yield [self._remote(i, np.asarray(nodes)) for i, nodes in enumerate(drawn)]

    def drawn(self, key_data: np.ndarray, seeds: Any) -> Any:
        """The `OWN` batch of these seeds, with a capacity that is large enough on all ranks."""

        def attempt(capacity: Capacity) -> tuple[Any, bool]:
            batch = self._sampler(key_data, seeds, capacity)
            overflows = self.comm.local(batch.overflow)
            mine = [np.asarray(overflow, np.int32)[None] for overflow in overflows]
            return batch, bool(all_gather_rows(self.comm, mine).any())

        return self._sampler.capacities.fit(attempt)[0]

    def _remote(self, local: int, nodes: np.ndarray) -> np.ndarray:
        real = nodes[nodes < self.offsets[-1]]
        return np.unique(real[self.owner(real) != self.comm.rank + local])


def largest(comm: Communicator, capacities: Sequence[Capacity]) -> Capacity:
    """The largest capacities of all ranks; `capacities` has one for each local rank."""
    rows = [np.array(c, np.int32).reshape(-1) for c in capacities]
    edges, sources = all_gather_rows(comm, rows).max(axis=0).reshape(2, -1).tolist()
    return Capacity(tuple(edges), tuple(sources))


def planned_hybrid(
    comm: Communicator,
    graph: Graph,
    batch_size: int,
    sampler: Sampler,
    state: State,
    seeds: Sequence[Any],
    stages: Sequence[Stage] = (),
    distinct: bool = True,
) -> HybridSampler:
    """A `HybridSampler` whose capacity is the largest that any rank plans for.

    Args:
      seeds: what batches are drawn from, for each local rank, or once for all ranks.
      stages, distinct: as `before` and `distinct` of `plan_capacity`.
      the rest: as for `HybridSampler`.
    """

    def plan() -> list[Any]:
        of_run = (batch_size, distinct, stages, state)
        return [capacities_for(sampler, graph, own, *of_run) for own in seeds]

    found = everywhere(comm, plan)
    planned = [capacities.capacity for capacities in found] * (comm.num_local // len(found))
    capacities = found[0]._replace(capacity=largest(comm, planned))
    return HybridSampler(comm, graph, batch_size, sampler, capacities, state, stages)


def planned_vanilla(
    comm: Communicator,
    graphs: Sequence[Graph],
    offsets: np.ndarray,
    num_edges: int,
    batch_size: int,
    sampler: Sampler,
    schedules: Sequence[Schedule],
    *,
    seeds: Sequence[np.ndarray],
    items: Any = None,
    stages: Sequence[Stage] = (),
) -> VanillaSampler:
    """A `VanillaSampler` whose capacities are planned from a few batches of epoch 0.

    Args:
      graphs: for each local rank its `Parts.local_graph`.
      seeds: for each local rank the training nodes of its parts. It has their in-edges, and
        draws its batches from them if there are no items.
      items, stages: what the schedules deal out, and the stages that make seeds of it.
      the rest: as for `VanillaSampler`.
    """
    num_nodes, num_steps = int(offsets[-1]), schedules[0].num_draws
    if comm.uniform:
        sizes = [np.array([g.num_edges], np.int64) for g in graphs]
        most = int(all_gather_rows(comm, sizes).max())  # on a mesh shapes must be equal
        padded = [
            Graph.from_edge_arrays(g.indptr, g.edge_arrays(), most, g.schema)._with(
                node_time=g.node_time
            )
            for g in graphs
        ]
        columns = [g.node_columns for g in graphs]
        graphs = [g.with_node_columns(**own) for g, own in zip(padded, columns, strict=True)]
    held = [np.zeros(num_nodes, bool) for _ in seeds]
    for mask, own in zip(held, seeds, strict=True):
        mask[own] = True
    shape = GraphShape.of(graphs[0])._replace(num_edges=num_edges)
    distinct = items is None
    if not distinct:
        degrees = [np.diff(np.asarray(g.indptr)).max(keepdims=True, initial=0) for g in graphs]
        shape = shape._replace(max_degree=int(all_gather_rows(comm, degrees).max()))
    bounded = (seeds[0] if distinct else items, batch_size, distinct, stages, shape)
    capacities = bound_of(sampler, graphs[0], *bounded)
    drawing = VanillaSampler(
        comm,
        comm.own(graphs),
        offsets.tolist(),
        num_edges,
        capacities.num_seeds,
        sampler,
        capacities,
        held=comm.own(held),
        before=stages,
        any_seeds=not distinct,
    )
    which = evenly(num_steps, _VANILLA_TRIALS)
    remote = RemoteNodes(comm, offsets, drawing, schedules)
    capacity = capacities.worst
    if sum(capacity.edges) > SMALL:
        need = np.zeros((2, len(capacity.edges)), np.int64)
        for key_data, asked in steps(comm, schedules, 0, which):
            for needed in comm.local(remote.drawn(key_data, asked).needed):
                need = np.maximum(need, np.asarray(needed))
        mine = capacities.with_margin(need, 0.05).capacity
        capacity = largest(comm, [mine] * comm.num_local)
    drawing.resize(capacity)
    if comm.size > 1:  # one rank exchanges nothing
        drawing.plan(steps(comm, schedules, 0, which))
    return drawing


def request_capacities(
    remote: RemoteNodes,
    epoch: int,
    num_steps: int,
    schema: Schema | None,
    cached: Sequence[np.ndarray] | None = None,
) -> tuple[int, ...]:
    """The most nodes that a rank asks another for, of each node type of `schema`, or of all,
    except in one of ten thousand steps (see `Demand`). They are at least 1, and equal on all
    ranks.

    Args:
      remote: draws the batches of a few of the epoch's `num_steps` steps.
      cached: for each local rank the nodes that it need not ask for.
    """
    comm, num_types = remote.comm, 1 if schema is None else len(schema.node_types)
    if comm.size == 1:  # one rank has no remote nodes
        return (1,) * num_types
    needs = []
    for nodes in remote.nodes(epoch, evenly(num_steps, _TRIALS)):
        if cached is not None:
            nodes = [np.setdiff1d(n, c) for n, c in zip(nodes, cached, strict=True)]
        asked = np.zeros((len(nodes), comm.size, num_types), np.int32)
        for of_rank, some in zip(asked, nodes, strict=True):
            owner = remote.owner(some)
            kind = np.zeros_like(owner) if schema is None else schema.numbers(some)
            np.add.at(of_rank, (owner, kind), 1)
        needs.append(asked.max(axis=(0, 1)))
    mine = np.array(needs, np.int32).reshape(-1)
    most = all_gather_rows(comm, [mine] * comm.num_local).max(axis=0).reshape(-1, num_types)
    return tuple(rounded(Demand(of_type.tolist()).most()) for of_type in most.T)


def keeper(
    remote: RemoteNodes,
    exchange: FeatureExchange,
    graphs: Sequence[Graph],
    num_steps: int,
    policy: str,
    memory: int,
) -> Callable[[int], None]:
    """A function that caches rows of other ranks for an epoch of `num_steps`, in at most
    `memory` bytes on each rank. All ranks keep equally many of each type.

    Args:
      exchange: reads the rows, with the `request_capacities` of epoch 0.
      policy: of `jgs.dist.batches.ranks.rank_loader`. A trial draws batches of epoch 1, so that
        the requests, which those of epoch 0 decide, do not count on the nodes by which the
        cache was chosen. It keeps at most as many rows as a batch reads. With a plan a row that
        is read once is worth its place too: it comes before the epoch, with all others, and no
        step waits for it.
    """
    num_nodes, schema = int(remote.offsets[-1]), exchange.schema
    of_tables = [exchange.row_bytes] if schema is None else exchange.row_bytes
    plan = CachePlan(remote.comm, schema, num_nodes, of_tables, memory, policy == "planned")

    def counted(epoch: int) -> tuple[Any, int]:
        """How often each local rank reads each node, and the most rows to keep."""
        if policy == "degree":
            return degree_counts(remote, graphs), num_nodes
        if policy == "trial":
            return read_counts(remote, 1, evenly(num_steps, _TRIALS))
        return read_counts(remote, epoch, range(num_steps))[0], num_nodes

    def keep(epoch: int) -> None:
        first = plan.rooms is None
        nodes = plan.chosen(*counted(epoch))
        if first:  # later on the epochs themselves show what they ask for
            ids = plan.ids(nodes)
            capacities = request_capacities(remote, epoch, num_steps, schema, ids)
            exchange.resize(capacities[0] if schema is None else capacities)
        exchange.cache(nodes[0] if schema is None else nodes)

    return keep


class CachePlan:
    """Chooses the rows of a cache by how often each is read. Types share the memory by use: the
    rows that are read most often for each byte they take come first. How many rows a type has
    is decided at first, and where an epoch needs more of it, as long as there is memory.

    Args:
      row_bytes: the bytes of a row of each type, 0 for a type without rows.
      spare: whether there is some room to spare, because other rows will be chosen later on.

    Attributes:
      rooms: int64 `[T]`, how many rows of each type are kept; None at first.
    """

    rooms: np.ndarray | None = None

    def __init__(
        self,
        comm: Communicator,
        schema: Schema | None,
        num_nodes: int,
        row_bytes: Sequence[int],
        memory: int,
        spare: bool,
    ):
        self._comm, self._memory, self._spare, self._full = comm, memory, spare, False
        self._bytes = np.array(row_bytes, np.int64)
        self._nodes = [np.arange(num_nodes, dtype=np.int32)]
        if schema is not None:
            self._nodes = [nodes_of(schema, name) for name, _ in schema.node_types]

    def chosen(self, counts: Sequence[np.ndarray], most: int) -> list[list[np.ndarray]]:
        """For each type and each local rank the places within the type of the rows to keep,
        padded with the type's number of nodes. `counts` has for each local rank how often it
        reads each node. At most about `most` rows are kept."""
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
        return [
            np.concatenate([i[p[p < i.size]] for i, p in zip(self._nodes, own, strict=True)])
            for own in zip(*nodes, strict=True)
        ]

    def _needed(self, counts: list[np.ndarray], most: int) -> np.ndarray:
        """int64 `[T]`: how many rows of each type are among those that are read most for each
        of their bytes, as many as there is memory for."""
        if len(counts) == 1:  # without sorting what is read
            row, used = int(self._bytes[0]), int(np.count_nonzero(counts[0]))
            return np.array([min(used, most, self._memory // row) if row else 0])
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
        if self._spare:  # programs of each size are compiled
            need = np.array([round_up(n + n // 8) if n else 0 for n in need.tolist()])
        room = np.maximum(need, before)
        total = int((room * self._bytes).sum())
        if total > self._memory:
            room, self._full = room * self._memory // total, True
        self.rooms = room


def degree_counts(remote: RemoteNodes, graphs: Sequence[Graph]) -> list[np.ndarray]:
    """For each local rank how often each node is a neighbour in its graph, `[N]`; 0 for its own
    nodes."""
    counts = []
    owners = remote.owner(np.arange(remote.offsets[-1]))
    for rank, graph in enumerate(graphs, remote.comm.rank):
        count = neighbor_counts(np.asarray(graph.indices), owners.size)
        count[owners == rank] = 0
        counts.append(count)
    return counts


def read_counts(
    remote: RemoteNodes, epoch: int, which: Sequence[int]
) -> tuple[np.ndarray, int]:
    """How many of these steps' batches read each remote node, unsigned ints `[num_local, N]`,
    and the most that one batch reads."""
    size = (remote.comm.num_local, int(remote.offsets[-1]))
    counts = np.zeros(size, np.min_scalar_type(len(which)))
    most = 0
    for nodes in remote.nodes(epoch, which):
        for count, some in zip(counts, nodes, strict=True):
            count[some] += 1
            most = max(most, some.size)
    return counts, most


def evenly(num_steps: int, num: int) -> list[int]:
    """At most `num` of an epoch's steps, evenly spaced."""
    return np.unique(np.linspace(0, num_steps - 1, min(num, num_steps)).astype(int)).tolist()


def most_read(count: np.ndarray, num: int) -> np.ndarray:
    """The positions of the `num` largest positive counts, padded with the number of counts. Of
    equal counts the first ones are taken."""
    found = np.full(num, count.size, np.int32)
    if num == 0:
        return found
    least = 1  # positions with smaller counts are not among the largest
    if num < count.size:
        least = max(1, int(np.partition(count, count.size - num)[count.size - num]))
    above, equal = np.flatnonzero(count > least), np.flatnonzero(count == least)
    some = np.concatenate([above, equal[: num - above.size]])
    best = some[np.argsort(-count[some].astype(np.int64), kind="stable")]
    found[: best.size] = best
    return found
