"""Vanilla mode: topology is split over ranks, and a node's owner draws its neighbours.

The sample is that of `sample_neighbors` on the whole graph, bit for bit. Every hop after the
seeds' own takes two rounds, as in DistDGL (Zheng et al. 2020, section III-D): a rank asks for
nodes, and their neighbours come back. Seeds that may be any nodes are asked for too.

Of seeds with times a node with its cutoff is one, and who asks for a node says its cutoff.

The edges that a batch leaves out are those of all ranks' seeds. No message names them: each
rank finds those among the rows that it has, and leaves them out of whatever it draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.batches.answers import asked_for, merged, reply, route_rows, with_cutoffs
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows.owners import check_offsets
from jgs.errors import InputError
from jgs.graph import Block, Graph, MiniBatch
from jgs.graph.foreign import edge_targets
from jgs.sampling import ByNode, Sampler, Seeds
from jgs.sampling.capacity import Capacities, Capacity, GraphShape, check_capacity, round_up
from jgs.sampling.checks import checked_seeds, require_int
from jgs.sampling.edges.columns import with_elapsed
from jgs.sampling.edges.hops import bad_seeds, block_of, empty_if
from jgs.sampling.loading.items import Stage, seeds_of
from jgs.sampling.shorthand import as_sampler
from jgs.settings import exact_integers

_MOST = np.int32(2**31 - 1)
_COLUMNS = {"type", "time", "elapsed"}  # of edges, that blocks may carry


class RowCapacity(NamedTuple):
    """The padded sizes of what two ranks exchange, with an entry for each hop that is asked
    for: all but the first, or with `any_seeds` all.

    Fields:
      nodes: the most nodes that one rank asks another for.
      edges: the most edges of the answer. Of weighted draws, edges without weight count too,
        although they are left out later.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]


def check_vanilla(sampler: Sampler) -> None:
    """Raises `InputError` for a sampler whose batches cannot be drawn by the nodes' owners."""
    if not sampler.by_node or not isinstance(sampler, ByNode):
        whose = "nodes draw among their own in-edges"
        if not sampler.by_node:
            whose = "draws belong to a node"
        raise InputError(
            f"vanilla mode must have a sampler whose {whose}",
            repr(sampler),
            "Use hybrid mode, in which every rank has the whole topology.",
        )
    half_life = getattr(sampler, "half_life", None)
    if half_life is not None:
        raise InputError(
            "vanilla mode must have a sampler that needs no state of the whole graph",
            f"half_life={half_life}",
            "Leave half_life out, or use hybrid mode.",
        )
    if sampler.edge_ids or sampler.edge_weights or {*sampler.edges} - _COLUMNS:
        raise InputError(
            "vanilla mode must have a sampler that returns no ids, weights or columns of edges "
            "but their types and times",
            f"edge_ids={sampler.edge_ids}, edge_weights={sampler.edge_weights}, "
            f"edges={sampler.edges}",
            "Leave these out, or use hybrid mode.",
        )


class VanillaSampler:
    """A `RankSampler` for ranks that each have the in-edges of their own nodes only.

    Args:
      comm: the communicator. A single rank has the whole graph. It draws and relabels each hop
        in separate calls, which the fused kernel of hybrid mode saves.
      graph: `OWN` `Graph`s of all `N` nodes, in which the nodes that a rank owns or holds have
        their in-edges.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`, and
        `offsets[R]` is `N`.
      num_edges: `E` of the whole graph.
      batch_size: `B`, a rank's seeds in a batch, distinct ones unless `Capacities` are given.
      sampler: a by-node `Sampler` (`jgs.sampling.base.ByNode`), or a tuple of ints with the
        `options` of `sample_neighbors`. Blocks carry no columns of edges but `"type"`, for
        which a reply is half as large again for each edge, and `"time"` and `"elapsed"`, for
        which it is three times as large.
      capacity: that of the mini-batches, equal on all ranks; by default the sampler's bound. Or
        `jgs.sampling.capacity.Capacities`, with a bound for seeds that repeat too.
      held: `OWN` bool `[N]`: the nodes that are not the rank's own and whose in-edges it has,
        such as other ranks' nodes among its seeds, and halo nodes. None: there are none.
      before: the stages that make seeds of items, as in `Loader`. Then it is called with an
        `OWN` `jgs.sampling.loading.items.Asked` in place of seeds. On each rank they find the
        edges to leave out in the rank's graph.
      any_seeds: whether seeds may be nodes whose in-edges the rank does not have, as those that
        stages make are.

    Attributes:
      capacities: those of the mini-batches; see `resize`.
      rows: the `RowCapacity` of what ranks exchange, at first twice what an even split of the
        capacity takes; see `plan`.
      extra_rounds: the rounds so far beyond the `2 (L-1)` of a batch of `L` hops, or the `2 L`
        with `any_seeds`. Where one rank needs more than `rows`, all ranks see that in what they
        receive, and draw the batch again with larger `rows`, which they keep: nothing is
        dropped.

    Every method that samples must be called by all ranks, in the same order. Raises
    `InputError`.
    """

    rows: RowCapacity

    def __init__(
        self,
        comm: Communicator,
        graph: Any,
        offsets: Sequence[int],
        num_edges: int,
        batch_size: int,
        sampler: Any = None,
        capacity: Capacity | Capacities | None = None,
        *,
        held: Any = None,
        before: Sequence[Stage] = (),
        any_seeds: bool = False,
        **options: Any,
    ):
        sampler = as_sampler(sampler, **options)
        check_vanilla(sampler)
        self._comm, self._graph, self._held = comm, graph, held
        if held is not None:
            self._held_here = [np.asarray(each) for each in comm.local(held)]
        self._bounds = check_offsets(offsets, comm.size)
        self._offsets = comm.same(self._bounds)
        self._batch_size = require_int("batch_size", batch_size, 1)
        shape = GraphShape.of(comm.local(graph)[0])._replace(num_edges=num_edges)
        self._sampler = sampler
        self._first = 0 if any_seeds or before else 1  # the first hop that is asked for
        bound = partial(sampler.bound, shape, self._batch_size, True)
        self.capacities = Capacities.of(capacity, bound)
        self.resize(self.capacities.capacity)
        self.extra_rounds = 0
        self._programs = cache(self._program)

        def make_seeds(graph: Graph, asked: Any) -> tuple[Seeds, Any]:
            seeds, items = seeds_of(before, graph, asked)
            return checked_seeds(sampler, graph, seeds), items

        self._make_seeds = comm.program(make_seeds, (OWN, OWN), OWN)

    def __call__(
        self, key_data: np.ndarray, seeds: Any, capacity: Capacity | None = None
    ) -> Any:
        """See `RankSampler`. A seed is a node, or `N` for padding. Without `any_seeds` the rank
        must have its in-edges."""
        capacity = capacity or self.capacities.capacity
        batch, _, rows = self._sample(key_data, seeds, capacity, self.rows)
        if capacity == self.capacities.capacity:
            self.rows = rows
        return batch

    def resize(self, capacity: Capacity) -> None:
        """Sets the capacity, and `rows`, as when the sampler was made."""
        capacity = check_capacity(capacity, self._batch_size, self._sampler.num_hops)
        self.capacities, most = (
            self.capacities._replace(capacity=capacity),
            self._most_rows(capacity),
        )
        self.rows = _rounded(-(-2 * most // self._comm.size), most)

    def plan(
        self, batches: Iterable[tuple[np.ndarray, Any]], margin: float = 0.1
    ) -> RowCapacity:
        """Sets `rows` to what `batches` need, and a margin. `batches` are pairs of key data and
        seeds.

        All ranks set the same, because each sees the largest need of all ranks.
        """
        capacity, rows = self.capacities.capacity, self.rows
        most = self._most_rows(capacity)
        needs = np.zeros(most.shape)
        for key_data, seeds in batches:
            _, need, rows = self._sample(key_data, seeds, capacity, rows)
            needs = np.maximum(needs, need)
        self.rows = _rounded((needs * (1 + margin)).astype(int) + 1, most)
        return self.rows

    def _sample(
        self, key_data: np.ndarray, asked: Any, capacity: Capacity, rows: RowCapacity
    ) -> tuple[Any, np.ndarray, RowCapacity]:
        """The batches; an int array of the form of `rows`, how much of these they needed; and
        the `rows` that were enough."""
        seeds, items = asked, None
        if self._first:
            self._check_seeds(seeds)
        else:  # in a program of its own, which is compiled once for all sizes
            with exact_integers():
                seeds, items = self._make_seeds(self._graph, asked)
        operands = (self._comm.same(key_data), self._graph, self._offsets, self._held, seeds)
        while True:
            with exact_integers():  # edge offsets are 64-bit
                batch, need = self._programs(capacity, rows)(*operands)
            # It is the same on all ranks, and so is what follows. One rank alone needs none.
            need, have = np.asarray(need), np.array(rows)
            if (need == _MOST).any():
                raise InputError(
                    "seeds must be nodes, and the edges that are left out must ascend and fit",
                    "others on some rank",
                    "Give node ids; where edges are excluded, give edges_between more room, or "
                    "Links more copies.",
                )
            if (need <= have).all():
                return replace(batch, items=items), need, rows
            self.extra_rounds += 2 * need.shape[1]
            more = _rounded(np.maximum(need, have + have // 2), self._most_rows(capacity))
            rows = RowCapacity(*map(tuple, np.where(need > have, more, have).tolist()))

    def _program(self, capacity: Capacity, rows: RowCapacity) -> Any:
        sample = partial(_sample_rows, self._comm, self._sampler, capacity, rows)
        return self._comm.program(sample, (SAME, OWN, SAME, OWN, OWN), (OWN, SAME))

    def _most_rows(self, capacity: Capacity) -> np.ndarray:
        """int `[2, H]`, for the hops that are asked for: the sizes that no batch that fits
        `capacity` exceeds. One rank is asked for everything."""
        nodes = (self._batch_size, *capacity.sources[:-1])
        return np.maximum([nodes[self._first :], capacity.edges[self._first :]], 1).astype(int)

    def _check_seeds(self, seeds: Any) -> None:
        """Raises `InputError` unless the rows of all seeds are here: a row that is not here
        would look empty."""
        for i, each in enumerate(self._comm.local(seeds)):
            ids, rank, num_nodes = np.asarray(each), self._comm.rank + i, self._bounds[-1]
            good = (ids >= self._bounds[rank]) & (ids < self._bounds[rank + 1])
            good |= ids == num_nodes
            if self._held is not None:
                good |= (ids >= 0) & self._held_here[i][np.clip(ids, 0, num_nodes - 1)]
            if ids.shape != (self._batch_size,) or not good.all():
                raise InputError(
                    f"the seeds of rank {rank} must be {self._batch_size} nodes that it owns "
                    f"or holds, or {num_nodes} for padding",
                    ids[~good].tolist()[:10] if ids.shape == good.shape else ids.shape,
                    "Deal each rank seeds whose in-edges its part has.",
                )


def _rounded(sizes: np.ndarray, most: np.ndarray) -> RowCapacity:
    """These sizes int `[2, H]`, rounded up to some that are compiled often, and at most
    `most`."""
    up = np.array([[round_up(size) for size in each] for each in sizes.tolist()], int)
    nodes, edges = np.minimum(up.reshape(most.shape), most).tolist()
    return RowCapacity(tuple(nodes), tuple(edges))


def _sample_rows(
    comm: Communicator,
    sampler: ByNode,
    capacity: Capacity,
    rows: RowCapacity,
    key_data: jax.Array,
    graph: Graph,
    offsets: jax.Array,
    held: jax.Array | None,
    seeds: Any,
) -> tuple[MiniBatch, jax.Array]:
    """One rank's mini-batch, and int32 `[2, H]`, how much of `rows` the rank with the largest
    need has needed. Where that is more than `rows`, the mini-batch is of no use. The last
    `H` hops are asked for."""
    seeds = Seeds.of(seeds)
    nodes, excluded, num_nodes = seeds.nodes, seeds.excluded, graph.num_nodes
    bad = bad_seeds(seeds, num_nodes, graph.num_edges)
    void = jnp.where(bad, _MOST, 0)  # all ranks see a need of this size
    nodes = jnp.where(bad, num_nodes, nodes)
    if excluded is not None:
        excluded = jnp.where(bad, graph.num_edges, excluded)
    cutoff = None if seeds.time is None else jnp.where(nodes < num_nodes, seeds.time, 0)
    held = jnp.zeros(0, bool) if held is None else held
    draw = partial(sampler.draw_hop, key_data, graph, excluded=excluded)
    num_hops, num_asked = sampler.num_hops, len(rows.nodes)
    first = num_hops - num_asked
    overflow, blocks, needed = jnp.zeros((), bool), [], []
    needs = [jnp.stack([void, 0])] * num_asked
    for h, room in enumerate(capacity.edges):
        if h < first or comm.size == 1:
            drawn = draw(nodes, h, room, time=cutoff)
            total = drawn.needed.astype(jnp.int64)
        else:
            num, num_edges = rows.nodes[h - first], rows.edges[h - first]
            own, requests, place = route_rows(nodes, offsets, held, comm.index(), num)
            requests = requests.at[:, 0].max(void)
            wanted = comm.all_to_all(with_cutoffs(requests, place, cutoff))
            theirs, times = asked_for(wanted, num)
            replies = comm.all_to_all(reply(draw(theirs, h, num_edges, time=times)))
            drawn = draw(own, h, room, time=cutoff)
            total = drawn.needed.astype(jnp.int64) + jnp.sum(replies[:, 1], dtype=jnp.int64)
            drawn = merged(place, drawn, replies, num, num_edges, num_nodes)
            # Edges beyond the room are an overflow, not a reason for further rounds.
            edges = jnp.minimum(jnp.max(replies[:, 0]), max(1, room))
            needs[h - first] = jnp.stack([jnp.max(wanted[:, 0]), edges])
        fits = total <= room
        relabelled = sampler.relabel_inputs or h + 1 < num_hops
        sources = capacity.sources[h] if relabelled else None
        slot = jnp.arange(1, nodes.shape[0] + 1, dtype=jnp.int32)
        num_targets = jnp.max(slot, initial=0, where=nodes < num_nodes)
        indptr, neighbors, of_edge = drawn.indptr, drawn.neighbors, None
        if cutoff is not None:
            row, _ = edge_targets(neighbors.shape[0], indptr, num_targets, indptr[-1])
            of_edge = cutoff.at[row].get(mode="clip")
        made = (nodes, num_targets, indptr, neighbors, sources, num_nodes, cutoff, of_edge)
        block, nodes, num_sources, cutoff = block_of(*made)
        need = [jnp.minimum(total, _MOST), jnp.where(fits, num_sources, 0)]
        needed.append(jnp.where(overflow, 0, jnp.stack(need)))
        overflow |= ~fits | (num_sources > capacity.sources[h])
        nodes = jnp.where(overflow, num_nodes, nodes)  # after an overflow nothing is drawn
        cutoff = None if cutoff is None else jnp.where(overflow, 0, cutoff)
        blocks.append(replace(block, edge_type=drawn.types, edge_time=drawn.times))
    blocks = [empty_if(overflow, block, graph.num_edges) for block in blocks]
    blocks = [_with_times(block, cutoff, sampler.edges) for block in blocks]
    batch = MiniBatch.drawn(
        seeds.nodes,
        nodes,
        tuple(blocks[::-1]),
        overflow,
        num_nodes,
        needed=jnp.stack(needed, axis=1).astype(jnp.int32),
        direct_inputs=not sampler.relabel_inputs,
        schema=graph.schema,
        cutoff=cutoff,
    )
    return batch, jnp.array(needs, jnp.int32).reshape(-1, 2).T


def _with_times(block: Block, cutoff: jax.Array | None, names: Sequence[str]) -> Block:
    """The block with the columns of `names`. It has the times of its edges where these need
    them."""
    if "elapsed" in names:
        assert block.edge_time is not None
        block = with_elapsed(block, cutoff, block.edge_time)
    return block if "time" in names else replace(block, edge_time=None)
