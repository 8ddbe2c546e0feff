"""Plans of what ranks draw and exchange: capacities, and which remote rows to keep.

A sample is a function of its key, so what an epoch will need is known before it begins: its
samples are drawn once for counting (RapidGNN, arXiv 2509.05207).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jgs.dist.batches.source import HybridSampler, RankSampler, steps
from jgs.dist.batches.vanilla import VanillaSampler
from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.demand import Demand, rounded
from jgs.graph import Graph
from jgs.graph.rows import neighbor_counts
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import (
    Capacity,
    GraphShape,
    modest,
    until_it_fits,
    with_margin,
)
from jgs.sampling.loading.items import Stage
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.plan import SMALL, bound_of, room_for

TRIALS, _VANILLA_TRIALS = 16, 4  # the batches that are drawn for a plan


class RemoteNodes:
    """The nodes of other ranks that each local rank's batches read.

    Rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`. `sampler` draws the batches of
    the `schedules`, one for each local rank.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: np.ndarray,
        sampler: RankSampler,
        schedules: Sequence[Schedule],
    ):
        self.comm, self.offsets = comm, np.asarray(offsets)
        self._sampler, self._schedules = sampler, schedules

    def nodes(self, epoch: int, which: Sequence[int]) -> Iterator[list[np.ndarray]]:
        """Yields for each of these steps the distinct remote nodes, int32, of each local rank.

        All ranks call it alike, because drawing communicates in vanilla mode."""
        for key_data, seeds in steps(self.comm, self._schedules, epoch, which):
            drawn = self.comm.local(self.drawn(key_data, seeds).nodes)
            yield [self._remote(i, np.asarray(nodes)) for i, nodes in enumerate(drawn)]

    def drawn(self, key_data: np.ndarray, seeds: Any) -> Any:
        """The `OWN` batch of these seeds, with a capacity that is large enough on all ranks."""

        def attempt(level: int) -> tuple[Any, bool]:
            batch = self._sampler(key_data, seeds, level)
            overflows = self.comm.local(batch.overflow)
            mine = [np.asarray(overflow, np.int32)[None] for overflow in overflows]
            return batch, bool(all_gather_rows(self.comm, mine).any())

        return until_it_fits(attempt)[0]

    def _remote(self, local: int, nodes: np.ndarray) -> np.ndarray:
        first, last = self.offsets[self.comm.rank + local :][:2]
        real = nodes[nodes < self.offsets[-1]]
        return np.unique(real[(real < first) | (real >= last)])


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

    def room(own: Any) -> tuple[Capacity, Capacity, int]:
        return room_for(sampler, graph, own, batch_size, distinct, stages, state)

    rooms = everywhere(comm, lambda: [room(own) for own in seeds])
    planned, (_, worst, _) = [planned for planned, *_ in rooms], rooms[0]
    if len(planned) < comm.num_local:
        planned = planned * comm.num_local
    capacity = largest(comm, planned)
    return HybridSampler(comm, graph, batch_size, sampler, capacity, state, stages, worst)


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
    batch_size, worst = bound_of(sampler, graphs[0], *bounded)
    drawing = VanillaSampler(
        comm,
        comm.own(graphs),
        offsets.tolist(),
        num_edges,
        batch_size,
        sampler,
        modest(worst, batch_size),
        held=comm.own(held),
        before=stages,
        any_seeds=not distinct,
        worst=worst,
    )
    which = evenly(num_steps, _VANILLA_TRIALS)
    remote = RemoteNodes(comm, offsets, drawing, schedules)
    capacity = worst
    if sum(worst.edges) > SMALL:
        need = np.zeros((2, len(worst.edges)), np.int64)
        for key_data, asked in steps(comm, schedules, 0, which):
            for needed in comm.local(remote.drawn(key_data, asked).needed):
                need = np.maximum(need, np.asarray(needed))
        mine = with_margin(need, 0.05, batch_size, worst)
        capacity = largest(comm, [mine] * comm.num_local)
    drawing.resize(capacity)
    if comm.size > 1:  # one rank exchanges nothing
        drawing.plan(steps(comm, schedules, 0, which))
    return drawing


def request_capacity(
    remote: RemoteNodes,
    epoch: int,
    num_steps: int,
    cached: Sequence[np.ndarray] | None = None,
) -> int:
    """The most nodes that a rank asks another for, except in one of ten thousand steps (see
    `Demand`). It is at least 1, and equal on all ranks.

    Args:
      remote: draws the batches of a few of the epoch's `num_steps` steps.
      cached: for each local rank the nodes that it need not ask for.
    """
    if remote.comm.size == 1:  # one rank has no remote nodes
        return 1
    needs = []
    for nodes in remote.nodes(epoch, evenly(num_steps, TRIALS)):
        if cached is not None:
            nodes = [np.setdiff1d(n, c) for n, c in zip(nodes, cached, strict=True)]
        counts = [np.diff(np.searchsorted(np.sort(n), remote.offsets)) for n in nodes]
        needs.append(max(count.max() for count in counts))
    mine = [np.array(needs, np.int32)] * remote.comm.num_local
    return rounded(Demand(all_gather_rows(remote.comm, mine).max(axis=0).tolist()).most())


def planned_cache(
    remote: RemoteNodes, epoch: int, num_steps: int, num_rows: int
) -> list[np.ndarray]:
    """For each local rank the `num_rows` remote nodes that its batches of the epoch read most
    often, int32, padded with `N`. A row that is read once is worth its place too: it comes
    before the epoch, with all others, and no step waits for it."""
    counts, _ = read_counts(remote, epoch, range(num_steps))
    return [most_read(count, num_rows) for count in counts]


def trial_cache(remote: RemoteNodes, num_steps: int, num_rows: int) -> list[np.ndarray]:
    """For each local rank the remote nodes that a few of its batches read most often, int32
    `[num_rows]`, padded with `N`. They are at most as many as the largest of these batches
    reads, so a cache of them takes no more memory than a batch's remote rows.

    The batches are of epoch 1. So `request_capacity`, which draws those of epoch 0, does not
    count on the nodes by which the cache was chosen."""
    counts, largest = read_counts(remote, 1, evenly(num_steps, TRIALS))
    found = [most_read(count, num_rows) for count in counts]
    for nodes in found:
        nodes[largest:] = counts.shape[1]
    return found


def degree_cache(
    comm: Communicator, offsets: np.ndarray, graphs: Sequence[Graph], num_rows: int
) -> list[np.ndarray]:
    """For each local rank the `num_rows` remote nodes that are most often a neighbour in its
    graph, int32, padded with `N`. It takes some bytes of memory a node, and none an edge."""
    return [most_read(count, num_rows) for count in degree_counts(comm, offsets, graphs)]


def degree_counts(
    comm: Communicator, offsets: np.ndarray, graphs: Sequence[Graph]
) -> list[np.ndarray]:
    """For each local rank how often each node is a neighbour in its graph, `[N]`; 0 for its own
    nodes."""
    counts = []
    for local, graph in enumerate(graphs):
        count = neighbor_counts(np.asarray(graph.indices), int(offsets[-1]))
        count[offsets[comm.rank + local] : offsets[comm.rank + local + 1]] = 0
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
