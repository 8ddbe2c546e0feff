"""Which of its neighbours a node draws: positions within its row, decided in integers.

Every function is plain `jax.numpy`, to be traced under `jax.enable_x64(True)`, and is the
meaning of `jgs/kernels/draw.h`. Shapes: `T` targets, `k` the fanout.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs.kernels.call import vary_alike
from jgs.sampling.random import below, node_bits

_LARGEST = jnp.iinfo(jnp.int64).max


def distinct(key_data: jax.Array, node: jax.Array, degree: jax.Array, k: int) -> jax.Array:
    """int64 `[T, k]`: `k` distinct positions below `degree`, every subset equally likely.

    Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987): draw `i` is
    uniform in `[0, degree-k+i]`, and that upper end instead if it was drawn before. Rows
    with `degree <= k` hold nothing of use: there all neighbours are taken.
    """

    def draw(i, position):
        last = jnp.maximum(degree - k + i, 0).astype(jnp.int64)
        drawn = below(node_bits(key_data, node, i), last + 1)
        earlier = jnp.arange(k) < i
        taken = jnp.any((position == drawn[:, None]) & earlier, axis=1)
        return position.at[:, i].set(jnp.where(taken, last, drawn))

    start, _ = vary_alike(jnp.zeros((node.shape[0], k), jnp.int64), node)
    return jax.lax.fori_loop(0, k, draw, start)


def repeated(key_data: jax.Array, node: jax.Array, degree: jax.Array, k: int) -> jax.Array:
    """int64 `[T, k]`: `k` positions below `degree`, each uniform (0 where `degree` is)."""
    bits = node_bits(key_data, jnp.repeat(node[:, None], k, axis=1), jnp.arange(k))
    return below(bits, degree[:, None])


def find(prefix: jax.Array, start: jax.Array, degree: jax.Array, point: jax.Array) -> jax.Array:
    """int64: per row the first position whose prefix sum exceeds `point` (binary search)."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        above = prefix.at[start + middle].get(mode="clip") > point
        return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

    high = jnp.maximum(jnp.broadcast_to(degree, point.shape) - 1, 0)
    low, high, _ = vary_alike(jnp.zeros_like(point), high, prefix)
    return jax.lax.fori_loop(0, 32, halve, (low, high))[1]


def row_weight(prefix: jax.Array, start: jax.Array, position: jax.Array) -> jax.Array:
    """int64: the prefix sum through `position - 1` of each row (0 before the first)."""
    at = prefix.at[start + position - 1].get(
        mode="fill", fill_value=0, wrap_negative_indices=False
    )
    return jnp.where(position > 0, at, 0)


def weighted_repeated(
    key_data: jax.Array,
    node: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    prefix: jax.Array,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """Positions int64 `[T, k]`, each in proportion to its weight, and bool `[T, k]`: drawn.

    `start` int64 `[T]` is where the row begins among the edges, `prefix` int64 `[E]` the
    graph's `edge_weight_prefix`. Nothing is drawn from a row that weighs nothing.
    """
    total = row_weight(prefix, start, degree)[:, None]
    bits = node_bits(key_data, jnp.repeat(node[:, None], k, axis=1), jnp.arange(k))
    position = find(prefix, start[:, None], degree[:, None], below(bits, total))
    return position, jnp.broadcast_to(total > 0, position.shape)


def weighted_distinct(
    key_data: jax.Array,
    node: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    prefix: jax.Array,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """Up to `k` distinct positions by successive draws, each in proportion to what is left.

    The draw is a point below the weight not drawn yet. Stepping over the intervals of the
    earlier draws, in ascending order, makes it a point of the whole row: exact, with no draw
    repeated and no neighbour scanned. Arguments and results as `weighted_repeated`.
    """
    slots = jnp.arange(k)

    def draw(i, state):
        position, drawn, begin, weight, left = state  # begin: ascending, unused slots last
        point = below(node_bits(key_data, node, i), left)
        skipped = jnp.cumsum(weight, axis=1) - weight
        passed = point[:, None] >= begin - skipped
        passed &= slots < i
        point = point + jnp.sum(jnp.where(passed, weight, 0), axis=1)
        found = find(prefix, start, degree, point)
        before = row_weight(prefix, start, found)
        through = row_weight(prefix, start, found + 1)
        at = jnp.sum(passed, axis=1)[:, None]
        begin = _insert(begin, at, before, slots)
        weight = _insert(weight, at, through - before, slots)
        position = position.at[:, i].set(found)
        drawn = drawn.at[:, i].set(left > 0)
        return position, drawn, begin, weight, left - jnp.where(left > 0, through - before, 0)

    shape = (node.shape[0], k)
    start_state = (
        jnp.zeros(shape, jnp.int64),
        jnp.zeros(shape, bool),
        jnp.full(shape, _LARGEST, jnp.int64),
        jnp.zeros(shape, jnp.int64),
        row_weight(prefix, start, degree),
    )
    start_state = vary_alike(*start_state, node)[:-1]
    position, drawn, *_ = jax.lax.fori_loop(0, k, draw, start_state)
    return position, drawn


def _insert(values: jax.Array, at: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    shifted = jnp.roll(values, 1, axis=1)
    return jnp.where(slots < at, values, jnp.where(slots == at, new[:, None], shifted))
