"""`Node2Vec`: second-order walks, whose steps depend on the node before, drawn by rejection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.rows import row_chunks
from jgs.kernels.call import vary_alike
from jgs.options import Option
from jgs.sampling.algorithms.walks.walk import call_walks
from jgs.sampling.base import Weighted
from jgs.sampling.checks import check_graph, require_int
from jgs.sampling.edges.eligible import count_less, find, row_weight, rows_of
from jgs.sampling.edges.hops import source_at
from jgs.sampling.edges.random import below
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    LENGTH,
    Walker,
    Walks,
    sample_walks,
    step_bits,
    step_halves,
    walk,
)

_MOST = 1e6  # p and q are in [1 / _MOST, _MOST], because chances have units of 2**-32
_SEPARATE = 8  # steps back are drawn separately if fewer than 1 in this number were accepted


@dataclass(frozen=True)
class Node2Vec(Walker):
    """Walks whose steps go back, stay near or go on (Grover and Leskovec 2016, section 3.2).

    A walk that came from `t` to `v` steps to the in-neighbour `x` of `v` in proportion to the
    weight of that edge times 1/p if `x` is `t`, times 1 if `x` is in the row of `t`, and times
    1/q otherwise. Each parallel edge counts. The first step is that of `Walk`. Returns `Walks`;
    `Walker` says what a walk depends on.

    A neighbour is drawn by weight, and is accepted or drawn again (KnightKing, SOSP 2019,
    section 3). If 1/p is larger than the other chances (the paper's outlier) or much smaller,
    steps back are drawn separately, and their edge is found in the row. So each draw is
    accepted with at least 1/8 of the chance min(q, 1/q), and the distribution is exact to about
    2**-31.

    Fields:
      length: the largest number of steps of a walk.
      p, q: the paper's return and in-out parameters, each from 1e-6 to 1e6.
      weighted: whether edges have the weights `graph.edge_weight` instead of 1. A node whose
        edges all have weight 0 is then a dead end.

    The graph's rows must be sorted by source, see `Graph.sorted`. Raises `InputError` for a
    length below 1 and for `p` or `q` out of range.
    """

    length: Annotated[int, LENGTH]
    p: Annotated[float, Option("the larger, the less likely a step back is", above=0)] = 1.0
    q: Annotated[float, Option("the larger, the less likely a step away is", above=0)] = 1.0
    weighted: Weighted = False

    by_source = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", require_int("length", self.length, 1))
        object.__setattr__(self, "weighted", bool(self.weighted))
        for name in ("p", "q"):
            value = getattr(self, name)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not 1 / _MOST <= value <= _MOST:
                raise InputError(
                    f"{name} must be a number from {1 / _MOST:g} to {_MOST:g}",
                    repr(value),
                    "Change it: beyond that the likelier steps are all there are.",
                )
            object.__setattr__(self, name, float(value))

    def init(self, graph: Graph) -> jax.Array:
        """bool `[]`, True: the rows are sorted by source. This reads all edges, and raises
        `InputError` if they are not sorted."""
        check_graph(graph, self.weighted)
        _check_sorted(np.asarray(graph.indptr), np.asarray(graph.indices))
        return jax.device_put(np.True_)

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: None = None
    ) -> Walks:
        if getattr(state, "shape", None) != ():
            raise InputError(
                "the state must be a bool that says that the graph is sorted",
                repr(state),
                "Give what `init` returned for this graph.",
            )
        return sample_walks(node2vec_kernel, node2vec_plain, key, graph, state, seeds, self)


class Rule(NamedTuple):
    """`p` and `q` as integers: the fields of `SecondOrder` in jgs/kernels/walk.h.

    Fields:
      back, near, far: a candidate is accepted if a random uint32 is below this number: `back`
        if it is the node before, `near` if it is in that node's row, `far` otherwise.
      back_separately: whether steps back are drawn separately.
      area_back, area_on: with separate steps back, the factors of the weight of a step back and
        of the weight of the other candidates. The choice between the two is in proportion to
        the products. At most 2**31.
    """

    back: int
    near: int
    far: int
    back_separately: int
    area_back: int
    area_on: int


def rule_of(walker: Node2Vec) -> Rule:
    """The `Rule` of a walker."""
    back, far = 1 / walker.p, 1 / walker.q
    most = max(1.0, far)

    def limit(chance: float) -> int:
        return max(1, round(2**32 * min(1.0, chance / most)))

    def area(chance: float) -> int:
        return max(1, round(2**31 * chance / max(back, most)))

    separately = not most / _SEPARATE <= back <= most
    return Rule(limit(back), limit(1.0), limit(far), int(separately), area(back), area(most))


def node2vec_kernel(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Node2Vec
) -> Walks:
    """The result of `node2vec_plain`, by jgs/kernels/walk_second.cc."""
    return call_walks(key_data, graph, seeds, walker, second=rule_of(walker))


def node2vec_plain(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Node2Vec
) -> Walks:
    """See `jgs.sampling.walks.Implementation`."""
    rule, num_nodes = rule_of(walker), graph.num_nodes

    def step(keys: jax.Array, t: jax.Array, previous: jax.Array, here: jax.Array) -> jax.Array:
        start, degree = rows_of(graph.indptr, here)
        before, before_degree = rows_of(graph.indptr, previous)
        first = previous == num_nodes
        total = _weight(graph, start, degree, walker.weighted)
        back_before = back_weight = jnp.zeros_like(degree)
        if rule.back_separately:
            counts = (count_less(graph.indices, start, degree, previous + i) for i in (0, 1))
            back_before, through = (_weight(graph, start, n, walker.weighted) for n in counts)
            back_weight = jnp.where(first, 0, through - back_before)
        area_back, area = _areas(rule, total, back_weight)

        def attempt(state):
            j, there, waits = state
            side, chance = step_halves(keys, t, 2 * j + 1)
            goes_back = below(side.astype(jnp.uint64) << jnp.uint64(32), area) < area_back
            goes_back &= back_weight > 0
            point = below(step_bits(keys, t, 2 * j), total - back_weight)
            passed = (back_weight > 0) & (point >= back_before)
            point = jnp.where(passed, point + back_weight, point)
            candidate = _neighbor(graph, start, degree, point, walker.weighted)
            at = count_less(graph.indices, before, before_degree, candidate)
            near = (at < before_degree) & (source_at(graph, before + at) == candidate)
            limit = jnp.where(near, jnp.uint64(rule.near), jnp.uint64(rule.far))
            limit = jnp.where(candidate == previous, jnp.uint64(rule.back), limit)
            accepted = first | goes_back | (chance.astype(jnp.uint64) < limit)
            chosen = jnp.where(goes_back, previous, candidate)
            there = jnp.where(waits & accepted, chosen, there)
            return j + jnp.uint32(1), there, waits & ~accepted

        waits = total > 0
        nobody = jnp.full_like(here, num_nodes)
        state = vary_alike(jnp.uint32(0), nobody, waits, keys, graph)[:3]
        return jax.lax.while_loop(lambda state: jnp.any(state[2]), attempt, state)[1]

    return walk(key_data, graph, seeds, walker.length, step)


def _weight(graph: Graph, start: jax.Array, count: jax.Array, weighted: bool) -> jax.Array:
    """int64 `[B]`: the total weight of the first `count` edges of each row."""
    if not weighted or graph.num_edges == 0:
        return count
    assert graph.edge_weight_prefix is not None
    return row_weight(graph.edge_weight_prefix, start, count)


def _areas(rule: Rule, total: jax.Array, back_weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int64 `[B]` each: the area of a step back, and the total area. A step back is drawn with
    the probability of their ratio. Weights are reduced to 31 bits."""
    bits = 64 - jax.lax.clz(total)
    shift = jnp.maximum(bits - 31, 0)

    def scaled(weight: jax.Array) -> jax.Array:
        return jnp.maximum(weight >> shift, (weight > 0).astype(jnp.int64))

    back = scaled(back_weight) * rule.area_back
    return back, back + scaled(total - back_weight) * rule.area_on


def _neighbor(
    graph: Graph, start: jax.Array, degree: jax.Array, point: jax.Array, weighted: bool
) -> jax.Array:
    """int32 `[B]`: the neighbour whose part of the row's weight has the point `point`."""
    if weighted and graph.num_edges > 0:
        assert graph.edge_weight_prefix is not None
        point = find(graph.edge_weight_prefix, start, degree, point)
    return source_at(graph, start + point)


def _check_sorted(indptr: np.ndarray, indices: np.ndarray) -> None:
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        falls = 1 + np.flatnonzero(indices[begin : end - 1] > indices[begin + 1 : end]) + begin
        within = falls[~np.isin(falls, indptr[first : stop + 1])]
        if within.size:
            at = int(within[0])
            node = int(np.searchsorted(indptr, at, side="right")) - 1
            raise InputError(
                "Node2Vec needs rows sorted by source",
                f"{indices[at]} after {indices[at - 1]} in the row of node {node}",
                "Use graph.sorted().",
            )
