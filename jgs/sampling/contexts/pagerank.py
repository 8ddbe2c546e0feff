"""Contexts by personalised PageRank: `ByPageRank`, by push. What a context has is defined in
plain JAX. On CPU devices jgs/kernels/push.cc finds the same bits, and reads only the rows of
nodes that push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import FILL, call, vary_alike, where_it_is
from jgs.sampling.checks import check_graph, checked_seeds, require_int
from jgs.sampling.contexts.way import Found, Way
from jgs.sampling.edges.columns import column_at
from jgs.sampling.edges.eligible import row_of_slots
from jgs.sampling.edges.hops import bad_seeds, longs_or_empty
from jgs.sampling.fanouts import ByName
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

_WHOLE = 62  # a seed's mass is 2**62, which no sum exceeds: int64 has room for it
_PARTS = 31  # `restart` is counted in parts of 2**-31
Scored = tuple[Found, jax.Array]  # contexts, and scores in units, int64 `[B, T]`, 0 in padding


class RelationWeights(ByName):
    """Weights of relations, by name or triple. Raises `InputError` for what is no weight."""

    def __init__(self, weights: Mapping[Any, Any]):
        listed = {tuple(n) if isinstance(n, list) else n: k for n, k in weights.items()}
        if not all(map(_is_weight, listed.values())) or not any(listed.values()):
            raise InputError(
                "weights of relations must be ints from 0 to 65535, not all 0",
                dict(weights),
                "Give their proportions, as in {'writes': 3, '*': 1}.",
            )
        super().__init__(listed)

    def numbers(self, graph: Graph) -> tuple[int, ...]:
        """The weight of each relation of the graph. Raises `InputError` for a relation that the
        graph does not have."""
        if graph.schema is None or graph.edge_type is None:
            raise InputError(
                "weights of relations must be for a graph with relations",
                f"{self} for a graph without",
                "Leave them out, or make the graph with Graph.from_relations.",
            )
        return self._in_order(len(graph.schema.relations), graph.schema.relation)


@dataclass(frozen=True, repr=False)
class ByPageRank(Way):
    """The seed, then the nodes of the largest personalised PageRank, by push (Andersen, Chung
    and Lang, "Local Graph Partitioning using PageRank Vectors", FOCS 2006, section 3).

    A walk from the seed stops at each node with the probability `restart`, and always at one
    without eligible edges. Otherwise it goes to an in-neighbour along an eligible edge, drawn
    by the weights of relations. A node's PageRank is the probability that the walk stops there.
    Push finds it without drawing, so the key changes nothing.

    The seed has a mass of `2**62` units. In each round those nodes push whose mass is at least
    `epsilon` of this for each of their eligible edges, and for at least one. The part `restart`
    of a pushing node's mass stops there. The rest is divided by the weight of all its eligible
    edges. Each edge carries the quotient times its weight, and the remainder is left, to be
    pushed later. The rounds end when no node pushes. Units are integers, so sums depend on no
    order.

    A node's score is the mass that has stopped there, and the part `restart` of what is left
    there. So a hub, which has more edges than its mass is pushed along, is in contexts too. A
    score is at most the PageRank, and too small by at most `epsilon` for each node that was
    reached and each of its eligible edges. Rounding `restart` changes it by less than 1e-7.

    A context has the nodes of positive score by (score descending, hop, id). A node's edge is
    one of those that carried mass to it in the first round in which any did: that which carried
    most; then that of the parent with the smallest id; then the last in the row, which is the
    latest of its relation. Its hop is its parent's plus 1.

    At most `1 / (restart * epsilon)` times does an edge carry mass, or a node push, for a seed.
    The kernel needs at most 350 bytes a thread for each node that was reached.

    Fields:
      restart: from 0.01 to 1.
      epsilon: from 1e-9 to 1. The time that a seed takes is in proportion to its inverse.
      weights: the weights of relations by name or triple, ints from 0 to 65535; `"*"` stands
        for all that are not named. Edges of a relation of weight 0, or without one, are not
        eligible. None: all edges weigh the same.

    Raises `InputError` for fields that break these rules.
    """

    restart: float = 0.15
    epsilon: float = 1e-4
    weights: Any = None

    takes_excluded = takes_time = by_relation = True

    def __post_init__(self) -> None:
        for name, least in (("restart", 0.01), ("epsilon", 1e-9)):
            value = getattr(self, name)
            if not is_real(value) or not least <= value <= 1:
                rule = f"{name} must be a number from {least:g} to 1"
                raise InputError(rule, repr(value), "Change it.")
            object.__setattr__(self, name, float(value))
        if self.weights is not None:
            if not isinstance(self.weights, Mapping):
                rule = "weights must be a dict of ints by relation, or None"
                raise InputError(rule, repr(self.weights), "Give e.g. {'writes': 3, '*': 1}.")
            object.__setattr__(self, "weights", RelationWeights(self.weights))

    def init(self, graph: Graph) -> tuple[()]:
        check_graph(graph, False)
        self._numbers(graph)
        return ()

    def find(
        self, key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, size: int
    ) -> Found:
        return _found(graph, seeds, self, size)[0]

    def _numbers(self, graph: Graph) -> tuple[int, ...]:
        return () if self.weights is None else self.weights.numbers(graph)

    @property
    def _units(self) -> tuple[int, int]:
        """`restart`, and the mass for each of its edges from which on a node pushes."""
        return round(self.restart * 2**_PARTS), round(self.epsilon * 2**_WHOLE)


def page_rank(
    way: ByPageRank, graph: Graph, seeds: Any, size: int
) -> tuple[jax.Array, jax.Array]:
    """The nodes of the contexts of `seeds` `[B]`, int32 `[B, size]` as in `Found`, and their
    scores as parts of the whole, float64 `[B, size]`, 0 in padding. Raises `InputError`."""
    way.init(graph)
    size, seeds = require_int("size", size, 1), checked_seeds(way, graph, seeds)
    with exact_integers():
        found, score = _found(graph, seeds, way, size)
        return found.nodes, score / 2.0**_WHOLE


@partial(jax.jit, static_argnums=(2, 3))
def _found(graph: Graph, seeds: Seeds, way: ByPageRank, size: int) -> Scored:
    kernel, plain = (partial(form, way=way, size=size) for form in (push_kernel, push_plain))
    return where_it_is(kernel, plain, *vary_alike(graph, seeds))


def push_kernel(graph: Graph, seeds: Seeds, way: ByPageRank, size: int) -> Scored:
    """The result of `push_plain`."""
    timed, weights, (restart, least) = seeds.time is not None, way._numbers(graph), way._units
    types = graph.edge_type if weights or timed else None
    types = jnp.zeros(0, jnp.int16) if types is None else types
    longs = (graph.edge_time if timed else None, seeds.time, seeds.excluded)
    time, *limits = map(longs_or_empty, longs)
    forms = (jnp.int32, jnp.int32, jnp.int32, jnp.int64, jnp.int64)
    *found, score = call(
        "jgs_push",
        [jax.ShapeDtypeStruct((*seeds.nodes.shape, size), form) for form in forms],
        (graph.indptr, graph.indices, types, time, seeds.nodes, *limits),
        kernels.NUM_THREADS,
        restart=np.int64(restart),
        least=np.int64(least),
        weights=np.array(weights, np.int64),
    )
    return Found(*found), score


class _Masses(NamedTuple):
    """The mass of every node that has stopped there and that is left, `[N]`, and as in `Found`
    how mass first came there; before that `hop` is -1."""

    stopped: jax.Array
    left: jax.Array
    hop: jax.Array
    parent: jax.Array
    edge: jax.Array


def push_plain(graph: Graph, seeds: Seeds, way: ByPageRank, size: int) -> Scored:
    """The contexts of `seeds` `[B]` one after the other; each round reads all edges."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    row, real = row_of_slots(graph.indptr, num_edges)
    weight = real.astype(jnp.int64)
    if weights := way._numbers(graph):
        weight *= jnp.array(weights).at[graph.edge_type].get(**FILL)
    if seeds.excluded is not None:
        weight = weight.at[seeds.excluded].set(0, mode="drop")
    bad = bad_seeds(seeds, num_nodes, num_edges)

    def one(of: Any) -> Scored:
        seed, cutoff = of
        own = weight if cutoff is None else jnp.where(graph.edge_time < cutoff, weight, 0)
        return _best(_pushed(graph, row, own, seed, way), seed, num_edges, way, size)

    return jax.lax.map(one, (jnp.where(bad, num_nodes, seeds.nodes), seeds.time))


def _pushed(
    graph: Graph, row: jax.Array, weight: jax.Array, seed: jax.Array, way: ByPageRank
) -> _Masses:
    """What there is when no node pushes any more. Edge `i` is one of node `row[i]`, eligible if
    `weight[i]` is positive."""
    num_nodes, num_edges, heads = graph.num_nodes, graph.num_edges, graph.indices
    total = jax.ops.segment_sum(weight, row, num_nodes)
    degree = jax.ops.segment_sum((weight > 0).astype(jnp.int64), row, num_nodes)

    def pushes(left: jax.Array) -> jax.Array:
        return left // jnp.maximum(degree, 1) >= way._units[1]

    def after(masses: _Masses) -> _Masses:
        pushed = jnp.where(pushes(masses.left), masses.left, 0)
        stops = jnp.where(degree > 0, _stopping(pushed, way), pushed)
        share = (pushed - stops) // jnp.maximum(total, 1)
        carried = column_at(share, row) * weight
        got = jax.ops.segment_sum(carried, heads, num_nodes)
        best = carried == column_at(jax.ops.segment_max(carried, heads, num_nodes), heads)
        parent = jax.ops.segment_min(jnp.where(best, row, num_nodes), heads, num_nodes)
        best &= row == column_at(parent, heads)
        edge = jnp.where(best, jnp.arange(num_edges), -1)
        edge = jax.ops.segment_max(edge, heads, num_nodes)
        first, hop = (masses.hop < 0) & (got > 0), column_at(masses.hop, parent) + 1
        return _Masses(
            masses.stopped + stops,
            masses.left - stops - share * total + got,
            jnp.where(first, hop, masses.hop),
            jnp.where(first, parent, masses.parent),
            jnp.where(first, edge, masses.edge),
        )

    there, none = jnp.arange(num_nodes) == seed, jnp.zeros(num_nodes, jnp.int64)
    left, hop = jnp.where(there, 1 << _WHOLE, 0), jnp.where(there, 0, -1)
    masses = _Masses(none, left, hop, none + num_nodes, none + num_edges)
    begin = vary_alike(masses, graph, row, weight, seed)[0]
    return jax.lax.while_loop(lambda masses: jnp.any(pushes(masses.left)), after, begin)


def _best(masses: _Masses, seed: Any, num_edges: int, way: ByPageRank, size: int) -> Scored:
    num_nodes = masses.hop.shape[0]
    node, score = jnp.arange(num_nodes), masses.stopped + _stopping(masses.left, way)
    ordered = jax.lax.sort((node != seed, -score, masses.hop, node), num_keys=4)[3][:size]
    chosen = jnp.full(size, num_nodes).at[: ordered.size].set(ordered)
    score = column_at(score, chosen)

    def column(values: jax.Array, fill: int, dtype: Any = jnp.int32) -> jax.Array:
        return jnp.where(score > 0, column_at(values, chosen), fill).astype(dtype)

    nodes, parent = column(node, num_nodes), column(masses.parent, num_nodes)
    edge = column(masses.edge, num_edges, jnp.int64)
    return Found(nodes, column(masses.hop, 0), parent, edge), score


def _stopping(mass: jax.Array, way: ByPageRank) -> jax.Array:
    """The part `restart` of a mass, rounded down. No product exceeds `2**62`."""
    high, low, part = mass >> _PARTS, mass & (2**_PARTS - 1), way._units[0]
    return high * part + (low * part >> _PARTS)


def _is_weight(k: Any) -> bool:
    is_int = isinstance(k, int | np.integer) and not isinstance(k, bool)
    return is_int and 0 <= int(k) < 2**16
