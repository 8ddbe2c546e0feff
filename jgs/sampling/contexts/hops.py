"""Contexts hop by hop: a node draws its neighbours once, at the hop after it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError, check_choice
from jgs.graph import Graph, Schema
from jgs.graph.grouping import RelationIndex
from jgs.kernels.call import FILL, call, vary_alike, where_it_is
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.base import HopRows, State
from jgs.sampling.checks import check_timed
from jgs.sampling.contexts.way import Found, Way
from jgs.sampling.edges.columns import column_at, column_of
from jgs.sampling.edges.hops import longs_or_empty
from jgs.sampling.fanouts import ByRelation, relation_draws, relations_of
from jgs.sampling.seeds import Seeds
from jgs.sampling.shorthand import as_sampler

ORDERS = ("hop", "latest")
_MOST = 2**31 - 1


@dataclass(frozen=True)
class ByHops(Way):
    """Breadth first: the seed draws neighbours, these draw theirs, and so on. A node that was
    found before is not found again. A node draws once, at the hop after it was found.

    Fields:
      draws: what a node draws at each hop: `Neighbors`, or fanouts, which stand for it. The
        fanouts are the widths, and may be by relation. With `latest=True` nodes draw their
        latest edges.
      order: of the tokens after the seed. `"hop"`: as they were found, hop by hop; a node's
        neighbours stand together, in the order of its edges. `"latest"`: by age, the youngest
        first, for seeds with times. The age of a token is the largest age of the edges from
        the seed to it, so a parent comes before its children. Of equal ages the one that was
        found first is first.

    By hops, nodes that no longer fit draw nothing. By age, all hops are drawn, and the oldest
    tokens are left out: the fanouts bound the work then.

    Raises `InputError` for draws of another kind, or without a width (-1).
    """

    draws: Neighbors
    order: str = "hop"

    takes_excluded = takes_time = True

    def __post_init__(self) -> None:
        draws: Any = as_sampler(self.draws)
        check_choice("order", self.order, ORDERS)
        fanouts = getattr(draws, "fanouts", ())
        endless = any(-1 in k.values() if isinstance(k, ByRelation) else k < 0 for k in fanouts)
        if not isinstance(draws, Neighbors) or endless:
            raise InputError(
                "a context must be drawn by Neighbors, with a width at every hop",
                repr(draws),
                "Give fanouts such as (16, 8); -1 has no width.",
            )
        object.__setattr__(self, "draws", draws)

    @property
    def by_relation(self) -> bool:
        return self.draws.by_relation

    def init(self, graph: Graph) -> State:
        return self.draws.init(graph)

    def find(
        self, key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, size: int
    ) -> Found:
        if self.order == "latest" and seeds.time is None:
            raise InputError(
                "contexts of the latest tokens are counted from the cutoffs of the seeds",
                "seeds without times",
                "Give jgs.sampling.Seeds(nodes, time), or order='hop'.",
            )
        check_timed(self.draws, seeds)
        _, _, room = self._rooms(graph.schema, size)
        if room * seeds.nodes.shape[0] > _MOST:
            raise InputError(
                f"contexts must have at most {_MOST:,} tokens together before they are cut",
                f"{room:,} for each of {seeds.nodes.shape[0]:,} seeds",
                "Give smaller fanouts or fewer seeds, or order='hop'.",
            )
        kernel, plain = (partial(form, way=self, size=size) for form in (_kernel, _plain))
        return where_it_is(kernel, plain, key_data, graph, state, seeds)

    def _rooms(self, schema: Schema | None, size: int) -> tuple[list[int], list[int], int]:
        """For each hop the most edges that a node draws, and the most nodes that draw; and the
        most tokens that a context has before it is cut to its `size`."""
        most, frontiers, room = 1, [], 1
        shares = [width(k, schema) for k in self.draws.fanouts]
        for share in shares:
            frontiers.append(most)
            most *= share
            most = most if self.order == "latest" else min(most, size)
            room += most
        return shares, frontiers, room if self.order == "latest" else min(room, size)


def width(fanout: Any, schema: Schema | None) -> int:
    """The most neighbours that a node draws with a `fanout`, an int or a `ByRelation`."""
    if isinstance(fanout, int):
        return fanout
    into: dict[str, int] = {}
    drawn = fanout.drawn(schema)
    assert schema is not None
    for relation, k in drawn:
        target = schema.relations[relation][2]
        into[target] = into.get(target, 0) + k
    return max(into.values(), default=1)


def _kernel(
    key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, way: ByHops, size: int
) -> Found:
    draws, nothing = way.draws, jnp.zeros(0, jnp.int64)
    fanouts, reads = draws.fanouts_in(graph), draws._reads(graph, state)
    by_relation = any(relations_of(k) for k in fanouts)
    widths, _, room = way._rooms(graph.schema, size)
    index = reads.index if isinstance(reads.index, RelationIndex) else (nothing,) * 2
    shape = seeds.nodes.shape[0], size
    out = [jax.ShapeDtypeStruct(shape, dtype) for dtype in (jnp.int32,) * 3 + (jnp.int64,)]
    operands = (
        *(key_data, graph.indptr, graph.indices),
        longs_or_empty(graph.edge_weight_prefix if draws.weighted else None),
        longs_or_empty(reads.sums if draws.half_life else None),
        longs_or_empty(None if seeds.time is None else graph.edge_time),
        graph.edge_type if by_relation else jnp.zeros(0, jnp.int16),
        *(*index, seeds.nodes, longs_or_empty(seeds.time), longs_or_empty(seeds.excluded)),
    )
    found = call(
        *("jgs_context_hops", out, operands, kernels.NUM_THREADS),
        draws=np.array([0 if relations_of(k) else k for k in fanouts], np.int64),
        relation_draws=relation_draws(fanouts, graph.schema if by_relation else None),
        widths=np.array(widths, np.int64),
        room=np.int64(room),
        replace=np.bool_(draws.replace),
        weighted=np.bool_(draws.weighted),
        latest=np.bool_(draws.latest),
        by_age=np.bool_(way.order == "latest"),
        window=np.int64(-1 if draws.window is None else draws.window),
        half_life=np.int64(draws.half_life or 0),
    )
    return Found(*found)


def _plain(
    key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, way: ByHops, size: int
) -> Found:
    draws = replace(way.draws, edge_ids=True)
    shares, frontiers, room = way._rooms(graph.schema, size)
    grown = Grown.of(seeds.nodes, graph, room)
    for hop, (share, frontier) in enumerate(zip(shares, frontiers, strict=True)):
        nodes = grown.frontier(frontier, graph.num_nodes)
        time = None if seeds.time is None else jnp.repeat(seeds.time, frontier)
        of = {"excluded": seeds.excluded, "time": time, "state": state}
        rows = draws.draw_hop(key_data, graph, nodes.reshape(-1), hop, nodes.size * share, **of)
        grown = _append(grown, rows, hop + 1, graph.num_nodes, share)
    if way.order == "latest":
        grown = _by_age(grown, column_of(graph, "time"), len(shares))
    return grown.found(graph, size)


class Grown(NamedTuple):
    """Contexts `[B, R]` as far as they have grown, in the order in which nodes were found.

    Fields:
      nodes, hop: int32, as in `Found`.
      parent: int32; the position of the token that drew this one, 0 for the seed and in
        padding.
      edge: int64, as in `Found`.
      begin, end: int32 `[B]`; the positions of the tokens that were found last.
    """

    nodes: jax.Array
    hop: jax.Array
    parent: jax.Array
    edge: jax.Array
    begin: jax.Array
    end: jax.Array

    @classmethod
    def of(cls, seeds: jax.Array, graph: Graph, room: int) -> Grown:
        """The seeds alone."""
        shape, zero = (seeds.shape[0], room), jnp.zeros_like(seeds)
        nodes = jnp.full(shape, graph.num_nodes, jnp.int32).at[:, 0].set(seeds)
        none = jnp.zeros(shape, jnp.int32)
        edge = jnp.full(shape, graph.num_edges, jnp.int64)
        real = (seeds < graph.num_nodes).astype(jnp.int32)
        return vary_alike(cls(nodes, none, none, edge, zero, real), seeds)[0]

    def frontier(self, number: int, num_nodes: int) -> jax.Array:
        """int32 `[B, number]`: the nodes that were found last, padded with `N`."""
        at = self.begin[:, None] + jnp.arange(number, dtype=jnp.int32)
        nodes = jnp.take_along_axis(self.nodes, at, axis=1, mode="clip")
        return jnp.where(at < self.end[:, None], nodes, num_nodes)

    def found(self, graph: Graph, size: int) -> Found:
        """The first `size` tokens of each."""
        parent = jnp.take_along_axis(self.nodes, self.parent, axis=1)
        parent = jnp.where(self.hop > 0, parent, graph.num_nodes)
        fills = graph.num_nodes, 0, graph.num_nodes, graph.num_edges
        return Found(*(
            jnp.pad(a[:, :size], ((0, 0), (0, max(0, size - a.shape[1]))), constant_values=fill)
            for a, fill in zip((self.nodes, self.hop, parent, self.edge), fills, strict=True)
        ))  # fmt: skip


def _append(grown: Grown, rows: HopRows, hop: int, num_nodes: int, share: int) -> Grown:
    assert rows.ids is not None
    (num, room), frontier = grown.nodes.shape, (rows.indptr.shape[0] - 1)
    frontier //= num
    starts = rows.indptr[:-1].reshape(num, frontier, 1)
    slot = starts + jnp.arange(share, dtype=jnp.int32)
    real = slot < rows.indptr[1:].reshape(num, frontier, 1)
    drawn = jnp.where(real, rows.neighbors.at[slot].get(mode="clip"), num_nodes)
    edge = rows.ids.at[slot].get(**FILL).reshape(num, -1)
    by = grown.begin[:, None, None] + jnp.arange(frontier, dtype=jnp.int32)[:, None]
    by = jnp.broadcast_to(by, slot.shape).reshape(num, -1)
    every = jnp.concatenate([grown.nodes, drawn.reshape(num, -1)], axis=1)
    order = jnp.argsort(every, axis=1, stable=True)
    ordered = jnp.take_along_axis(every, order, axis=1)
    first = jnp.ones_like(ordered, bool).at[:, 1:].set(ordered[:, 1:] != ordered[:, :-1])
    row = jnp.arange(num)[:, None]
    new = jnp.zeros_like(first).at[row, order].set(first & (ordered < num_nodes))[:, room:]
    place = jnp.where(new, grown.end[:, None] + jnp.cumsum(new, axis=1) - 1, room)

    def put(array: jax.Array, values: Any) -> jax.Array:
        return array.at[row, place].set(values, mode="drop")

    added = jnp.sum(new, axis=1, dtype=jnp.int32)
    end = jnp.minimum(grown.end + added, room)
    drawn = every[:, room:]
    return Grown(
        *(put(grown.nodes, drawn), put(grown.hop, hop), put(grown.parent, by)),
        *(put(grown.edge, edge), grown.end, end),
    )


def _by_age(grown: Grown, time: jax.Array, num_hops: int) -> Grown:
    """The contexts in the order `"latest"` of `ByHops`."""
    own = column_at(time, grown.edge)
    place = jnp.broadcast_to(jnp.arange(own.shape[1], dtype=jnp.int32), own.shape)
    oldest = jnp.where(grown.hop > 0, own, jnp.iinfo(jnp.int64).max)
    for _ in range(num_hops - 1):  # a hop more of the way from the seed
        oldest = jnp.minimum(oldest, jnp.take_along_axis(oldest, grown.parent, axis=1))
    padding = place >= grown.end[:, None]
    order = jax.lax.sort((padding, ~oldest, place), num_keys=3)[-1]
    parent = jnp.take_along_axis(jnp.argsort(order, axis=1), grown.parent, axis=1)
    nodes, hop, parent, edge = (
        jnp.take_along_axis(a, order, axis=1)
        for a in (grown.nodes, grown.hop, parent.astype(jnp.int32), grown.edge)
    )
    return Grown(nodes, hop, parent, edge, grown.begin, grown.end)
