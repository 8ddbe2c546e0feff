"""The neighbours that a node draws: positions and edges, decided in integers.

Every function is plain `jax.numpy`, to be traced under `jax.enable_x64(True)`. Together they
define what `jgs/kernels/draw.h` computes. Shapes: `T` targets, fanout `k`. The key data is
uint32 `[2]`, or `[T, 2]` if each target has a key of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import vary_alike
from jgs.sampling.edges.eligible import Weights
from jgs.sampling.edges.random import below, below_word, node_bits, words

_UNROLLED = 32  # more draws are made by a loop: programs would be of k**2 / 2 operations
_LARGEST = jnp.iinfo(jnp.int64).max
_PIECE = 1 << 18


def distinct(
    key_data: jax.Array,
    node: jax.Array,
    degree: jax.Array,
    k: int,
    fanout: jax.Array | None = None,
) -> jax.Array:
    """int64 `[T, k]`: `k` distinct positions below `degree`, every subset equally likely.

    With `fanout` int64 `[T]`, at most `k`, these are the first so many of each row.

    Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987): draw `i` is
    uniform in `[0, degree-k+i]`; if that position was drawn before, it is `degree-k+i` instead.
    Rows with `degree <= k` are undefined: the caller takes all their neighbours.
    """
    of_row = jnp.int64(k) if fanout is None else fanout

    if 0 < k <= _UNROLLED:
        return _distinct_at_once(key_data, node, degree, k, of_row)

    def draw(i, position):
        last = jnp.maximum(degree - of_row + i, 0).astype(jnp.int64)
        drawn = below(node_bits(key_data, node, i), last + 1)
        earlier = jnp.arange(k) < i
        taken = jnp.any((position == drawn[:, None]) & earlier, axis=1)
        return position.at[:, i].set(jnp.where(taken, last, drawn))

    start, *_ = vary_alike(jnp.zeros((node.shape[0], k), jnp.int64), node, key_data)
    steps = jnp.where(jnp.any(degree > of_row), k, 0)  # a step costs as much for few rows
    return jax.lax.fori_loop(0, steps, draw, start)


def _distinct_at_once(
    key_data: jax.Array, node: jax.Array, degree: jax.Array, k: int, of_row: jax.Array
) -> jax.Array:
    """`distinct` for `k` up to 32, without a loop: three steps for all draws of all rows.

    Position `drawn[i]` was drawn before where an earlier draw gave the same number, or where it
    is the position that an earlier draw took for want of its own: the `j`-th of these is
    `degree - k + j`. So a bit for each draw, in one word, says which were drawn before.
    """
    index = jnp.arange(k, dtype=jnp.int32)[:, None]
    begin = jnp.broadcast_to(degree - of_row, node.shape).astype(jnp.int32)
    last = jnp.maximum(begin + index, 0)
    keys = jnp.broadcast_to(key_data, (k, *key_data.shape)) if key_data.ndim == 2 else key_data
    some = jnp.any(degree > of_row)
    high, low = words(keys, node[None], index)
    drawn = apart(below_word(high, low, (last + 1).astype(jnp.uint32)), some)
    before = jnp.zeros(node.shape, jnp.uint32)
    for i in range(k):
        at = drawn[i] - begin
        inside = (at >= 0) & (at < i)
        word = before >> jnp.where(inside, at, 31).astype(jnp.uint32)
        again = inside & ((word & 1) == 1)
        for j in range(i):
            again |= drawn[j] == drawn[i]
        before |= again.astype(jnp.uint32) << i
    before = apart(before, some)
    found = jnp.where((before >> index.astype(jnp.uint32)) & 1 == 1, last, drawn)
    return found.T.astype(jnp.int64)


def apart(made: jax.Array, some: jax.Array) -> jax.Array:
    """`made`, or on a CPU zeros unless there are `some`, bool `[]`. On a CPU it goes through a
    loop of at most one step, which XLA fuses nothing through: else it would make `made` again
    for each slot that reads it, also where an optimisation barrier stands between."""

    def loop(made: jax.Array, some: jax.Array) -> jax.Array:
        start, *_ = vary_alike(jnp.zeros_like(made), made, some)
        return jax.lax.fori_loop(0, some.astype(jnp.int32), lambda *_: made, start)

    if kernels.host_only():
        return loop(made, some)
    barrier = jax.lax.optimization_barrier
    return jax.lax.platform_dependent(
        made, some, cpu=loop, default=lambda made, _: barrier(made)
    )


def in_pieces(step: Callable[..., Any], num: int, width: int, state: Any, reads: Any) -> Any:
    """The state after `step(begin, n, state)`, which reads `reads`, for the `n` rows from
    `begin` on, of `num`. On a CPU there are pieces of about `_PIECE` numbers, `width` a row, so
    that few are in memory at once; the last may have rows of the one before. Elsewhere all rows
    are one piece."""
    size = max(1, _PIECE // max(width, 1))

    def loop(state: Any) -> Any:
        if num <= size:
            return step(0, num, state)
        pieces = -(-num // size)

        def one(i: jax.Array, state: Any) -> Any:
            return step(jnp.minimum(i * size, num - size), size, state)

        return jax.lax.fori_loop(0, pieces, one, vary_alike(state, reads)[0])

    if kernels.host_only():
        return loop(state)
    whole = partial(step, 0, num)
    return jax.lax.platform_dependent(state, cpu=loop, default=whole)


def repeated(key_data: jax.Array, node: jax.Array, degree: jax.Array, k: int) -> jax.Array:
    """int64 `[T, k]`: `k` positions below `degree`, each uniform (0 where `degree` is 0)."""
    return below(_bits(key_data, node, k), degree[:, None])


def repeated_by(
    key_data: jax.Array, node: jax.Array, law: Any, k: int
) -> tuple[jax.Array, jax.Array]:
    """`k` edges of each row, each drawn in proportion to its weight.

    Args:
      node: int32 `[T]`.
      law: the `Weights` of the rows `[T]`, or `jgs.sampling.edges.recency.Decayed`.

    Returns edges int64 `[T, k]`, and bool `[T, k]`, which of them were drawn: none in a row
    without edges to draw.
    """
    edge = law.along().drawn(_bits(key_data, node, k))
    return edge, jnp.broadcast_to(law.some[:, None], edge.shape)


def weighted_distinct(
    key_data: jax.Array, node: jax.Array, weights: Weights, k: int
) -> tuple[jax.Array, jax.Array]:
    """Up to `k` distinct edges by successive draws, each in proportion to its weight among the
    edges that are left.

    A draw is a point below the total weight not yet drawn. It becomes a point of the whole row
    by stepping over the parts of the earlier draws, in ascending order. This is exact: no
    draw is repeated, and no neighbours are scanned. Arguments and results are those of
    `repeated_by`. There are as many steps as the longest row has draws.
    """
    slots = jnp.arange(k)

    def draw(counted):
        i, state = counted
        edge, drawn, begin, weight, left = state  # begin: ascending, unused slots last
        point = below(node_bits(key_data, node, i), left)
        skipped = jnp.cumsum(weight, axis=1) - weight
        passed = point[:, None] >= begin - skipped
        passed &= slots < i
        found = weights.edge(point + jnp.sum(jnp.where(passed, weight, 0), axis=1))
        at = jnp.sum(passed, axis=1)[:, None]
        new_begin, new_weight = weights.part(found)
        begin = _insert(begin, at, new_begin, slots)
        weight = _insert(weight, at, new_weight, slots)
        edge = edge.at[:, i].set(found)
        drawn = drawn.at[:, i].set(left > 0)
        left -= jnp.where(left > 0, new_weight, 0)
        return i + 1, (edge, drawn, begin, weight, left)

    shape = (node.shape[0], k)
    start_state = (
        jnp.zeros(shape, jnp.int64),
        jnp.zeros(shape, bool),
        jnp.full(shape, _LARGEST, jnp.int64),
        jnp.zeros(shape, jnp.int64),
        weights.total,
    )
    start_state = vary_alike(*start_state, node, key_data)[:-2]
    _, (edge, drawn, *_) = jax.lax.while_loop(
        lambda counted: (counted[0] < k) & jnp.any(counted[1][-1] > 0), draw, (0, start_state)
    )
    return edge, drawn


def _bits(key_data: jax.Array, node: jax.Array, k: int) -> jax.Array:
    """uint64 `[T, k]`: the bits of the first `k` draws of each target."""
    keys = jnp.repeat(key_data[:, None], k, axis=1) if key_data.ndim == 2 else key_data
    return node_bits(keys, node[:, None], jnp.arange(k))


def _insert(values: jax.Array, at: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    shifted = jnp.roll(values, 1, axis=1)
    return jnp.where(slots < at, values, jnp.where(slots == at, new[:, None], shifted))
