"""What `Labor` draws, in plain JAX: a pass over all candidates decides each on its own.

The candidates of a hop, all neighbours of all targets, are as many as they are: passes go over
them a stretch at a time, in a loop. Sums are of integers, so that their order is free, and no
float is added to another: a compiler cannot round differently here and in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph
from jgs.kernels.call import vary_alike
from jgs.sampling.capacity import Capacity
from jgs.sampling.hops import Sample, sample_hops
from jgs.sampling.random import fold, node_bits

_STRETCH = 1 << 12  # candidates looked at together
_UNIT = 1 << 12  # fixed point of sums of inverse importances: of 1
_NODE_UNIT = 1 << 30  # of an expected number of nodes: of 1
_TOLERANCE = 10_000  # LABOR-*: fewer nodes by less than this part is convergence
_MOST_RARE = 2.0**20  # the least importance is its inverse
_MOST_INVERSE = 2.0**31  # and this that of a probability


class Spec(NamedTuple):
    """What is static about a sample, see `jgs.sampling.hops.Spec`; one compiled program for
    each. The other fields are those of `jgs.sampling.algorithms.labor.Labor`."""

    fanouts: tuple[int, ...]
    capacity: Capacity
    importance: int
    layer_dependency: bool
    edge_ids: bool
    edge_weights: bool
    unbiased: bool
    relabel_inputs: bool
    separate: bool = False
    first_hop: int = 0


def sample_plain(
    key_data: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec
) -> list[Sample]:
    """See `jgs.sampling.hops.sample_hops`."""
    return sample_hops(key_data, graph, seeds, spec, partial(_draw, spec))


def node_numbers(key_data: jax.Array, hop: int, node: jax.Array) -> jax.Array:
    """uint64 like `node`: each node's random number at `hop`, which all targets share.

    By a key of two words it is the node's draw number 0. By five, `Labor.step_keys`, it is that
    of the first key's or of the second's: of the second's once the phase, the fifth word, has
    passed the upper half of the node's draw number 1 of the first.
    """
    now = fold(key_data[:2], hop)
    bits = node_bits(now, node, 0)
    if key_data.shape[0] == 2:
        return bits
    moved = (node_bits(now, node, 1) >> jnp.uint64(32)) < key_data[4].astype(jnp.uint64)
    return jnp.where(moved, node_bits(fold(key_data[2:4], hop), node, 0), bits)


class _Candidates(NamedTuple):
    """Some candidates of a hop: each one's target's number, its edge (int64), the node at the
    edge's other end, and whether it is there at all."""

    row: jax.Array
    edge: jax.Array
    neighbor: jax.Array
    real: jax.Array


class _Rows(NamedTuple):
    """The rows that a hop draws from, `T` of them: see `jgs.sampling.hops.Draw`.

    Fields: graph; start, degree: int64 `[T]`; whole: bool `[T]`, whether all are taken.
    """

    graph: Graph
    start: jax.Array
    degree: jax.Array
    whole: jax.Array

    def walk(self, look: Callable[[Any, _Candidates], Any], begin: Any) -> Any:
        """`look(value, candidates)` for all candidates, a stretch after the other: the last
        value that it returns, the first being `begin`."""
        ends = jnp.cumsum(self.degree)
        total = jnp.max(ends, initial=0)

        def body(state: tuple) -> tuple:
            first, value = state
            slot = first + jnp.arange(_STRETCH, dtype=jnp.int64)
            row = jnp.searchsorted(ends, slot, side="right").astype(jnp.int32)
            row = jnp.minimum(row, ends.shape[0] - 1)
            edge = self.start[row] + slot - (ends - self.degree)[row]
            neighbor = self.graph.indices.at[edge].get(mode="clip")
            return first + _STRETCH, look(value, _Candidates(row, edge, neighbor, slot < total))

        # Under jax.shard_map what the loop carries must vary as what it reads does.
        begin, *_ = vary_alike((jnp.int64(0), begin), self)
        return jax.lax.while_loop(lambda state: state[0] < total, body, begin)[1]


def _draw(
    spec: Spec,
    graph: Graph,
    key_data: jax.Array,
    nodes: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    h: int,
    room: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """See `jgs.sampling.hops.Draw`."""
    k = spec.fanouts[h]
    start, degree, key_data = vary_alike(start, degree, key_data)
    whole = jnp.ones_like(degree, bool) if k == -1 else degree <= k
    rows = _Rows(graph, start, degree, whole)
    hop = 0 if spec.layer_dependency else spec.first_hop + h
    by_importance = spec.importance != 0 and k != -1
    if by_importance:
        rate, rarity = _importances(rows, k, spec.importance)
    else:
        limit = _fraction(k, degree)

    def take(drawn: tuple, some: _Candidates) -> tuple:
        edges, row, inverses, count = drawn
        if by_importance:
            inverse = _inverse(rate[some.row], rarity[some.neighbor])
            sure = inverse <= 1
            below = ((1 / jnp.where(sure, 2, inverse)) * 2.0**64).astype(jnp.uint64)
        else:
            inverse, sure, below = jnp.float32(1), whole[some.row], limit[some.row]
        taken = some.real & (sure | (node_numbers(key_data, hop, some.neighbor) < below))
        place = jnp.where(taken, count + jnp.cumsum(taken) - 1, room)
        return (
            edges.at[place].set(some.edge, mode="drop"),
            row.at[place].set(some.row, mode="drop"),
            inverses.at[place].set(inverse, mode="drop"),
            count + jnp.sum(taken),
        )

    nothing = (
        jnp.full(room, -1, jnp.int64),
        jnp.zeros(room, jnp.int32),
        jnp.ones(room, jnp.float32),
        jnp.int64(0),
    )
    edges, row, inverse, total = rows.walk(take, nothing)
    weight = None
    if spec.edge_weights:
        row_of_real = jnp.where(edges >= 0, row, degree.shape[0])
        weight = _weights(row_of_real, inverse, degree, k, spec)
    return edges, row, total, weight


def _fraction(k: int, degree: jax.Array) -> jax.Array:
    """uint64: `k / degree` in units of 2**-64, rounded down, where `degree` exceeds `k`."""
    half, low = jnp.uint64(32), jnp.uint64(0xFFFFFFFF)
    d = jnp.maximum(degree, 1).astype(jnp.uint64)
    upper = jnp.uint64(max(k, 0)) << half
    return ((upper // d) << half) | ((((upper % d) << half) // d) & low)


def _inverse(rate: jax.Array, rarity: jax.Array) -> jax.Array:
    """float32: one over the probability with which a target takes a neighbour, if above 1."""
    return jnp.minimum(rate * rarity, _MOST_INVERSE)


def _importances(rows: _Rows, k: int, rounds: int) -> tuple[jax.Array, jax.Array]:
    """float32: one over each target's `c` `[T]`, and one over each node's `pi` `[N]`.

    A round multiplies `pi` of every candidate by the largest `c` of its targets, and solves for
    the `c` again; see `Labor`. -1 goes on until the expected number of nodes converges.
    """
    num_nodes = rows.graph.num_nodes
    rarity = jnp.ones(num_nodes, jnp.float32)
    # Times the inverse: XLA makes that of a division by a constant, and rounds otherwise.
    rate = jnp.maximum(rows.degree.astype(jnp.float32) * (np.float32(1) / np.float32(k)), 1)
    rate = jnp.where(rows.whole, 1, rate)

    def again(state: tuple) -> tuple:
        done, rate, rarity, before, _ = state

        def least_of(least: jax.Array, some: _Candidates) -> jax.Array:
            at = jnp.where(some.real, some.neighbor, num_nodes)
            return least.at[at].min(rate[some.row], mode="drop")

        least = rows.walk(least_of, jnp.full(num_nodes, jnp.inf, jnp.float32))
        known = least < jnp.inf
        rarity = jnp.where(known, jnp.minimum(rarity * least, _MOST_RARE), rarity)
        chance = ((1 / rarity) * _NODE_UNIT).astype(jnp.int64)
        expected = jnp.sum(jnp.where(known, chance, 0))
        converged = before - expected <= before // _TOLERANCE
        return done + 1, _solve(rows, k, rarity, rate), rarity, expected, converged

    def more(state: tuple) -> jax.Array:
        done, _, _, _, converged = state
        return ~converged if rounds == -1 else (done < rounds) & ~converged

    most = jnp.iinfo(jnp.int64).max
    begin = (jnp.int32(0), rate, rarity, jnp.int64(most), jnp.bool(False))
    begin, *_ = vary_alike(begin, rows)
    _, rate, rarity, _, _ = jax.lax.while_loop(more, again, begin)
    return rate, rarity


def _solve(rows: _Rows, k: int, rarity: jax.Array, rate: jax.Array) -> jax.Array:
    """float32 `[T]`: of each target that leaves some neighbours the rate `y` with
    `sum(max(1, y * rarity)) = degree**2 / k`, at least 1.

    Newton's method on this convex and piecewise linear sum, from a `y` that makes no term 1: it
    comes down to the solution, and every step makes more terms 1.
    """
    num_rows, degree = rate.shape[0], rows.degree

    def step(state: tuple) -> tuple:
        rate, sure, _ = state

        def count(sums: tuple, some: _Candidates) -> tuple:
            sure, rest = sums
            its = rarity[some.neighbor]
            one = _inverse(rate[some.row], its) <= 1
            row = jnp.where(some.real & ~rows.whole[some.row], some.row, num_rows)
            parts = jnp.where(one, 0, (its * _UNIT).astype(jnp.int64))
            return (
                sure.at[row].add(one.astype(jnp.int64), mode="drop"),
                rest.at[row].add(parts, mode="drop"),
            )

        zeros = jnp.zeros(num_rows, jnp.int64)
        now, rest = rows.walk(count, (zeros, zeros))
        moves = (now > sure) & (rest > 0) & ~rows.whole
        left = (degree * degree - k * now).astype(jnp.float32)
        parts = rest.astype(jnp.float32) * jnp.float32(1 / _UNIT) * jnp.float32(k)
        solved = jnp.maximum(left / jnp.where(moves, parts, 1), 1)
        return jnp.where(moves, solved, rate), jnp.where(moves, now, sure), jnp.any(moves)

    # By an infinite rate no term is 1: the first step begins with that.
    begin = (
        jnp.where(rows.whole, rate, jnp.inf),
        jnp.full(num_rows, -1, jnp.int64),
        jnp.bool(True),
    )
    begin, *_ = vary_alike(begin, rows)
    return jax.lax.while_loop(lambda state: state[2], step, begin)[0]


def _weights(
    row: jax.Array, inverse: jax.Array, degree: jax.Array, k: int, spec: Spec
) -> jax.Array:
    """float32 like `row`, the target of each slot (`T` where it drew none): see `Labor`."""
    num_rows = degree.shape[0]
    count = jnp.zeros(num_rows, jnp.int64).at[row].add(1, mode="drop")
    if spec.unbiased:
        # LABOR-0 takes a neighbour with probability k / degree, and 1 where there are fewer.
        all_of = degree if spec.importance != 0 or k == -1 else jnp.minimum(degree, k)
        over = all_of.astype(jnp.float32)
    elif spec.importance != 0:
        parts = (inverse * _UNIT).astype(jnp.int64)
        sums = jnp.zeros(num_rows, jnp.int64).at[row].add(parts, mode="drop")
        over = sums.astype(jnp.float32) * jnp.float32(1 / _UNIT)
    else:
        over = jnp.maximum(count, 1).astype(jnp.float32)
    factor = count.astype(jnp.float32) / jnp.where(over > 0, over, 1)
    at = jnp.minimum(row, num_rows - 1)
    return jnp.where(row < num_rows, inverse * factor[at], 0)
