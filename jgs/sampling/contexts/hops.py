"""Contexts hop by hop: a node draws its neighbours once, at the hop after it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.graph.schema import Schema
from jgs.kernels.call import FILL, call, vary_alike, where_it_is
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.base import HopRows, State
from jgs.sampling.contexts.way import Found, Way
from jgs.sampling.edges.columns import column_at, column_of
from jgs.sampling.fanouts import ByRelation
from jgs.sampling.seeds import Seeds
from jgs.sampling.shorthand import as_sampler

ORDERS = ("hop", "latest")


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
        draws, latest = replace(self.draws, edge_ids=True), self.order == "latest"
        if latest and seeds.time is None:
            raise InputError(
                "contexts of the latest tokens are counted from the cutoffs of the seeds",
                "seeds without times",
                "Give jgs.sampling.Seeds(nodes, time), or order='hop'.",
            )
        shares = [width(k, graph.schema) for k in draws.fanouts]
        room, most, frontiers = 1, 1, []
        for share in shares:
            frontiers.append(most)
            most = most * share if latest else min(most * share, size)
            room += most
        room = room if latest else min(room, size)
        grown = Grown.of(seeds.nodes, graph, room)
        for hop, (share, frontier) in enumerate(zip(shares, frontiers, strict=True)):
            nodes = grown.frontier(frontier, graph.num_nodes)
            time = None if seeds.time is None else jnp.repeat(seeds.time, frontier)
            of = {"excluded": seeds.excluded, "time": time, "state": state}
            most = nodes.size * share
            rows = draws.draw_hop(key_data, graph, nodes.reshape(-1), hop, most, **of)
            grown = appended(grown, rows, hop + 1, graph, share)
        if latest:
            grown = by_age(grown, graph, len(shares), size)
        return grown.found(graph, size)


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


def appended(grown: Grown, rows: HopRows, hop: int, graph: Graph, share: int) -> Grown:
    """The contexts with what their frontiers drew: `rows` of at most `share` edges each."""
    num_nodes = graph.num_nodes

    def kernel(grown: Grown, rows: HopRows) -> Grown:
        shape = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype)  # noqa: E731
        operands = (*grown, rows.indptr, rows.neighbors, rows.ids)
        found = call(
            "jgs_context_append",
            [shape(a) for a in grown],
            operands,
            kernels.NUM_THREADS,
            hop=np.int64(hop),
            num_nodes=np.int64(num_nodes),
        )
        return Grown(*found)

    def plain(grown: Grown, rows: HopRows) -> Grown:
        return _append(grown, rows, hop, num_nodes, share)

    return where_it_is(kernel, plain, grown, rows)


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


def by_age(grown: Grown, graph: Graph, num_hops: int, size: int) -> Grown:
    """The first `size` tokens of each context in the order `"latest"` of `ByHops`."""
    size = min(size, grown.nodes.shape[1])

    def kernel(grown: Grown, time: jax.Array) -> Grown:
        out = [jax.ShapeDtypeStruct((a.shape[0], size), a.dtype) for a in grown[:4]]
        operands = (*grown[:4], grown.end, time)
        found = call("jgs_context_by_age", out, operands, kernels.NUM_THREADS)
        nodes, hop, parent, edge = found
        return Grown(nodes, hop, parent, edge, *_first(grown, size))

    def plain(grown: Grown, time: jax.Array) -> Grown:
        return _by_age(grown, time, num_hops, size)

    return where_it_is(kernel, plain, grown, column_of(graph, "time"))


def _first(grown: Grown, size: int) -> tuple[jax.Array, jax.Array]:
    return jnp.minimum(grown.begin, size), jnp.minimum(grown.end, size)


def _by_age(grown: Grown, time: jax.Array, num_hops: int, size: int) -> Grown:
    own = column_at(time, grown.edge)
    place = jnp.broadcast_to(jnp.arange(own.shape[1], dtype=jnp.int32), own.shape)
    oldest = jnp.where(grown.hop > 0, own, jnp.iinfo(jnp.int64).max)
    for _ in range(num_hops - 1):  # a hop more of the way from the seed
        oldest = jnp.minimum(oldest, jnp.take_along_axis(oldest, grown.parent, axis=1))
    padding = place >= grown.end[:, None]
    order = jax.lax.sort((padding, ~oldest, place), num_keys=3)[-1]
    parent = jnp.take_along_axis(jnp.argsort(order, axis=1), grown.parent, axis=1)
    nodes, hop, parent, edge = (
        jnp.take_along_axis(a, order[:, :size], axis=1)
        for a in (grown.nodes, grown.hop, parent.astype(jnp.int32), grown.edge)
    )
    real = jnp.arange(size) < grown.end[:, None]
    return Grown(nodes, hop, jnp.where(real, parent, 0), edge, *_first(grown, size))
