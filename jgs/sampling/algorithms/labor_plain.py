"""What `Labor` draws, in plain JAX: a pass over all candidates decides about each separately.

The candidates of a hop are all neighbours of all targets. Their number is not static, so a pass
goes over them in a loop, a chunk at a time. Sums are of integers, so that their order does not
matter, and no float is added to another: so a compiler cannot round differently here and in the
kernel.
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
from jgs.sampling.edges.eligible import Eligible
from jgs.sampling.edges.hops import DrawnEdges, Hop, sample_hops
from jgs.sampling.edges.random import cutoff_keys, fold, node_bits
from jgs.sampling.edges.slots import fold_slots

_CHUNK = 1 << 12  # candidates in a chunk
_UNIT = 1 << 12  # 1.0 in the fixed-point sums of inverse importances
_NODE_UNIT = 1 << 30  # 1.0 in the fixed-point expected number of nodes
_TOLERANCE = 10_000  # LABOR-* has converged when the nodes fall by less than one part in this
_MOST_RARE = 2.0**20  # the largest inverse of an importance
_MOST_INVERSE = 2.0**31  # the largest inverse of a probability


class NumberKeys(NamedTuple):
    """What names the random numbers of a hop's nodes: the key uint32 `[2]`, or with cutoffs
    that of each row `[T, 2]`; the same for the next group of dependent batches; and uint32, the
    part of the period that has passed, in units of 2**-32."""

    now: jax.Array
    later: jax.Array | None = None
    phase: jax.Array | None = None

    @classmethod
    def of(cls, key_data: jax.Array, hop: int, cutoff: jax.Array | None = None) -> NumberKeys:
        """From the batch's key, and the cutoff of each row, int64 `[T]` or None. A key of five
        words comes from `Labor.step_keys`: two keys and a phase."""
        now = cutoff_keys(fold(key_data[:2], hop), cutoff)
        if key_data.shape[0] == 2:
            return cls(now)
        return cls(now, cutoff_keys(fold(key_data[2:4], hop), cutoff), key_data[4])

    def numbers(self, node: jax.Array, row: jax.Array | None = None) -> jax.Array:
        """uint64, the shape of `node`: each node's random number, which all targets of a cutoff
        share. `row` has the row of each, where rows have keys of their own. It is draw number 0
        of the node. In dependent batches it is that of the next group if the phase exceeds the
        upper half of draw number 1."""

        def bits(keys: jax.Array, draw: int) -> jax.Array:
            return node_bits(keys if keys.ndim == 1 else keys[row], node, draw)

        if self.later is None or self.phase is None:
            return bits(self.now, 0)
        moved = (bits(self.now, 1) >> jnp.uint64(32)) < self.phase.astype(jnp.uint64)
        return jnp.where(moved, bits(self.later, 0), bits(self.now, 0))


class _Candidates(NamedTuple):
    """A chunk of a hop's candidates: the row, the edge and its source; not all are real."""

    row: jax.Array
    edge: jax.Array
    neighbor: jax.Array
    real: jax.Array


class _Rows(NamedTuple):
    """The `T` rows that a hop draws from: their eligible `edges`; the `fanout` int64 `[T]` of
    each, -1 for all, and float32 one over it; and whether all neighbours are taken, bool `[T]`.
    """

    graph: Graph
    edges: Eligible
    fanout: jax.Array
    per_fanout: jax.Array
    whole: jax.Array

    @property
    def degree(self) -> jax.Array:
        return self.edges.num

    def where(self, keep: jax.Array) -> _Rows:
        """The same rows, without edges where `keep` bool `[T]` is False."""
        length, num = (jnp.where(keep, a, 0) for a in (self.edges.length, self.edges.num))
        return self._replace(edges=self.edges._replace(length=length, num=num))

    def walk(self, look: Callable[[Any, _Candidates], Any], begin: Any) -> Any:
        """A fold over all candidates, a chunk at a time: `look(value, candidates)` returns the
        next value, and `begin` is the first. Returns the last value."""

        def at(value: Any, row: jax.Array, nth: jax.Array, real: jax.Array) -> Any:
            edge = self.edges.edge(nth, row)
            neighbor = self.graph.indices.at[edge].get(mode="clip")
            return look(value, _Candidates(row, edge, neighbor, real))

        return fold_slots(at, begin, self.degree, _CHUNK, self)


def _draw(of: Hop, eligible: Eligible) -> DrawnEdges:
    how, fanout, room = of.spec.sampler, of.fanout, of.room
    ks = [fanout] if isinstance(fanout, int) else [k for _, k in fanout]
    eligible, key_data = vary_alike(eligible, of.key_data)
    degree = eligible.num
    # Each target has a row for each of these fanouts.
    of_rows = np.tile(np.array(ks, np.int64), degree.shape[0] // len(ks))
    k = jnp.asarray(of_rows)
    per_k = jnp.asarray(np.float32(1) / of_rows.astype(np.float32))
    rows = _Rows(of.graph, eligible, k, per_k, (k == -1) | (degree <= k))
    hop = 0 if how.layer_dependency else of.number
    keys = NumberKeys.of(key_data, hop, eligible.cutoff)
    nothing = _Taken(
        jnp.full(room, -1, jnp.int64),
        jnp.full(room, degree.shape[0], jnp.int32),
        jnp.ones(room, jnp.float32),
        jnp.int64(0),
    )
    if how.importance == 0 or all(k == -1 for k in ks):
        taken = _take(rows, keys, nothing)
    elif eligible.cutoff is None:
        taken = _take(rows, keys, nothing, _importances(rows, how.importance))
    else:
        taken = _take_by_cutoff(rows, keys, nothing, how.importance)
    edges, row, inverse, total = taken
    weight = None
    if of.spec.edge_weights:
        row_of_real = jnp.where(edges >= 0, row, degree.shape[0])
        weight = _weights(row_of_real, inverse, rows, how)
    return edges, row, total, weight, None


sample_plain = partial(sample_hops, draw=_draw)


class _Taken(NamedTuple):
    """The edges that a hop's rows take, in `room` slots: int64 `edges`, -1 in empty slots;
    their int32 `row`, `T` there; one over the probability that each is taken; and int64 their
    number. If it exceeds `room`, the last ones are not there."""

    edges: jax.Array
    row: jax.Array
    inverse: jax.Array
    total: jax.Array


def _take(
    rows: _Rows,
    keys: NumberKeys,
    taken: _Taken,
    importances: tuple[jax.Array, jax.Array] | None = None,
) -> _Taken:
    """`taken`, and after it the edges that the rows take: those of a row with equal
    probabilities, or with those of the `importances`, rates and rarities."""
    room = taken.edges.shape[0]
    # fanout / degree in units of 2**-64, rounded down, for degrees above the fanout
    half, low = jnp.uint64(32), jnp.uint64(0xFFFFFFFF)
    d = jnp.maximum(rows.degree, 1).astype(jnp.uint64)
    upper = jnp.maximum(rows.fanout, 0).astype(jnp.uint64) << half
    limit = ((upper // d) << half) | ((((upper % d) << half) // d) & low)

    def look(taken: _Taken, chunk: _Candidates) -> _Taken:
        if importances is not None:
            rate, rarity = importances
            inverse = _inverse(rate[chunk.row], rarity[chunk.neighbor])
            sure = inverse <= 1
            below = ((1 / jnp.where(sure, 2, inverse)) * 2.0**64).astype(jnp.uint64)
        else:
            inverse, sure, below = jnp.float32(1), rows.whole[chunk.row], limit[chunk.row]
        numbers = keys.numbers(chunk.neighbor, chunk.row)
        takes = chunk.real & (sure | (numbers < below))
        place = jnp.where(takes, taken.total + jnp.cumsum(takes) - 1, room)
        return _Taken(
            taken.edges.at[place].set(chunk.edge, mode="drop"),
            taken.row.at[place].set(chunk.row, mode="drop"),
            taken.inverse.at[place].set(inverse, mode="drop"),
            taken.total + jnp.sum(takes),
        )

    return rows.walk(look, taken)


def _take_by_cutoff(rows: _Rows, keys: NumberKeys, nothing: _Taken, rounds: int) -> _Taken:
    """The edges that the rows take by importance, where the rows of each cutoff are a hop of
    their own: their importances depend on no other rows."""
    cutoff = rows.edges.cutoff
    assert cutoff is not None
    least = jnp.iinfo(jnp.int64).min

    def of_cutoff(state: tuple) -> tuple:
        left, taken = state
        now = jnp.max(cutoff, initial=least, where=left)
        own = left & (cutoff == now)
        of_rows = rows.where(own)
        taken = _take(of_rows, keys, taken, _importances(of_rows, rounds))
        return left & ~own, taken

    begin, *_ = vary_alike((rows.degree > 0, nothing), rows, keys)
    taken = jax.lax.while_loop(lambda state: jnp.any(state[0]), of_cutoff, begin)[1]
    order = jnp.argsort(taken.row, stable=True)
    return _Taken(taken.edges[order], taken.row[order], taken.inverse[order], taken.total)


def _inverse(rate: jax.Array, rarity: jax.Array) -> jax.Array:
    """float32: one over the probability that a target takes a neighbour; at most 1 if
    certain."""
    return jnp.minimum(rate * rarity, _MOST_INVERSE)


def _importances(rows: _Rows, rounds: int) -> tuple[jax.Array, jax.Array]:
    """One over each target's `c`, float32 `[T]`, and one over each node's `pi`, float32 `[N]`.
    A round multiplies `pi` of every candidate by the largest `c` of its targets, and solves for
    `c` again; see `Labor`. With `rounds` -1 they go on until the expected number of nodes has
    converged."""
    num_nodes = rows.graph.num_nodes
    rarity = jnp.ones(num_nodes, jnp.float32)
    # A product with the inverse, for XLA turns a division by a constant into one, with
    # rounding.
    rate = jnp.maximum(rows.degree.astype(jnp.float32) * rows.per_fanout, 1)
    rate = jnp.where(rows.whole, 1, rate)

    def again(state: tuple) -> tuple:
        done, rate, rarity, before, _ = state

        def least_of(least: jax.Array, chunk: _Candidates) -> jax.Array:
            at = jnp.where(chunk.real, chunk.neighbor, num_nodes)
            return least.at[at].min(rate[chunk.row], mode="drop")

        least = rows.walk(least_of, jnp.full(num_nodes, jnp.inf, jnp.float32))
        known = least < jnp.inf
        rarity = jnp.where(known, jnp.minimum(rarity * least, _MOST_RARE), rarity)
        chance = ((1 / rarity) * _NODE_UNIT).astype(jnp.int64)
        expected = jnp.sum(jnp.where(known, chance, 0))
        converged = before - expected <= before // _TOLERANCE
        return done + 1, _solve(rows, rarity, rate), rarity, expected, converged

    def more(state: tuple) -> jax.Array:
        done, _, _, _, converged = state
        return ~converged if rounds == -1 else (done < rounds) & ~converged

    most = jnp.iinfo(jnp.int64).max
    begin = (jnp.int32(0), rate, rarity, jnp.int64(most), jnp.bool(False))
    begin, *_ = vary_alike(begin, rows)
    _, rate, rarity, _, _ = jax.lax.while_loop(more, again, begin)
    return rate, rarity


def _solve(rows: _Rows, rarity: jax.Array, rate: jax.Array) -> jax.Array:
    """The rate `y` of each target that does not take all its neighbours, float32 `[T]`, at
    least 1. It solves `sum(max(1, y * rarity)) = degree**2 / k`, which is convex and piecewise
    linear in `y`. Newton's method starts where no term is 1. It then descends to the solution,
    and every step makes more terms 1."""
    num_rows, degree, k = rate.shape[0], rows.degree, rows.fanout

    def step(state: tuple) -> tuple:
        rate, sure, _ = state

        def count(sums: tuple, chunk: _Candidates) -> tuple:
            sure, rest = sums
            neighbor_rarity = rarity[chunk.neighbor]
            one = _inverse(rate[chunk.row], neighbor_rarity) <= 1
            row = jnp.where(chunk.real & ~rows.whole[chunk.row], chunk.row, num_rows)
            parts = jnp.where(one, 0, (neighbor_rarity * _UNIT).astype(jnp.int64))
            return (
                sure.at[row].add(one.astype(jnp.int64), mode="drop"),
                rest.at[row].add(parts, mode="drop"),
            )

        zeros = jnp.zeros(num_rows, jnp.int64)
        now, rest = rows.walk(count, (zeros, zeros))
        moves = (now > sure) & (rest > 0) & ~rows.whole
        left = (degree * degree - k * now).astype(jnp.float32)
        parts = rest.astype(jnp.float32) * jnp.float32(1 / _UNIT) * k.astype(jnp.float32)
        solved = jnp.maximum(left / jnp.where(moves, parts, 1), 1)
        return jnp.where(moves, solved, rate), jnp.where(moves, now, sure), jnp.any(moves)

    # With an infinite rate no term is 1, so that is the start.
    begin = (
        jnp.where(rows.whole, rate, jnp.inf),
        jnp.full(num_rows, -1, jnp.int64),
        jnp.bool(True),
    )
    begin, *_ = vary_alike(begin, rows)
    return jax.lax.while_loop(lambda state: state[2], step, begin)[0]


def _weights(row: jax.Array, inverse: jax.Array, rows: _Rows, how: Any) -> jax.Array:
    """float32, the shape of `row`: the weight of each slot's edge, see `Labor`. `row` is the
    row of each slot, `T` where the slot is empty."""
    degree, k = rows.degree, rows.fanout
    num_rows = degree.shape[0]
    count = jnp.zeros(num_rows, jnp.int64).at[row].add(1, mode="drop")
    if how.unbiased:
        # LABOR-0 takes a neighbour with probability k / degree, or 1 if degree is at most k.
        all_of = degree
        if how.importance == 0:
            all_of = jnp.where(k == -1, degree, jnp.minimum(degree, k))
        over = all_of.astype(jnp.float32)
    elif how.importance != 0:
        parts = (inverse * _UNIT).astype(jnp.int64)
        sums = jnp.zeros(num_rows, jnp.int64).at[row].add(parts, mode="drop")
        over = sums.astype(jnp.float32) * jnp.float32(1 / _UNIT)
    else:
        over = jnp.maximum(count, 1).astype(jnp.float32)
    factor = count.astype(jnp.float32) / jnp.where(over > 0, over, 1)
    at = jnp.minimum(row, num_rows - 1)
    return jnp.where(row < num_rows, inverse * factor[at], 0)
