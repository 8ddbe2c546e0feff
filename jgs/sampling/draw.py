"""The neighbours that a node draws: positions within its row, decided in integers.

Every function is plain `jax.numpy`, to be traced under `jax.enable_x64(True)`. Together they
define what `jgs/kernels/draw.h` computes. Shapes: `T` targets, fanout `k`.
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
    uniform in `[0, degree-k+i]`; if that position was drawn before, it is `degree-k+i` instead.
    Rows with `degree <= k` are undefined: the caller takes all their neighbours.
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
    """int64 `[T, k]`: `k` positions below `degree`, each uniform (0 where `degree` is 0)."""
    bits = node_bits(key_data, jnp.repeat(node[:, None], k, axis=1), jnp.arange(k))
    return below(bits, degree[:, None])


def find(prefix: jax.Array, start: jax.Array, degree: jax.Array, point: jax.Array) -> jax.Array:
    """int64: for each row the first position whose prefix sum exceeds `point` (binary
    search)."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        above = prefix.at[start + middle].get(mode="clip") > point
        return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

    high = jnp.maximum(jnp.broadcast_to(degree, point.shape) - 1, 0)
    low, high, _ = vary_alike(jnp.zeros_like(point), high, prefix)
    return jax.lax.fori_loop(0, 32, halve, (low, high))[1]


def row_weight(prefix: jax.Array, start: jax.Array, position: jax.Array) -> jax.Array:
    """int64: the prefix sum of each row's weights before `position` (0 for position 0)."""
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
    """`k` positions in each row, each drawn in proportion to its weight.

    Args:
      key_data: uint32 `[2]`.
      node, degree: int `[T]`.
      start: int64 `[T]`, where the row begins among the edges.
      prefix: int64 `[E]`, the graph's `edge_weight_prefix`.

    Returns positions int64 `[T, k]`, and bool `[T, k]`, which of them were drawn: none in a row
    whose weights are all 0.
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
    """Up to `k` distinct positions by successive draws, each in proportion to its weight among
    the positions that are left.

    A draw is a point below the total weight not yet drawn. It becomes a point of the whole row
    by stepping over the intervals of the earlier draws, in ascending order. This is exact: no
    draw is repeated, and no neighbours are scanned. Arguments and results are those of
    `weighted_repeated`.
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
