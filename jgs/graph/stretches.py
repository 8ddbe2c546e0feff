"""Stretches of ascending values, as rows of edges are, in JAX: where they lie, and searches in
them. All of it is traced under `jax.enable_x64(True)`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.kernels.call import vary_alike


def rows_of(
    indptr: jax.Array, nodes: jax.Array, real: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """int64, the shape of `nodes`: where the row of each node begins among the edges, and its
    length, by offsets as those of a `Graph`. Both are 0 where `real` is False; by default that
    is for ids of no nodes."""
    if real is None:
        real = (nodes >= 0) & (nodes < indptr.shape[-1] - 1)
    begin, end = ((nodes,), (nodes + 1,)) if indptr.ndim == 1 else ((0, nodes), (1, nodes))
    start = jnp.where(real, indptr.at[begin].get(mode="clip"), 0)
    return start, jnp.where(real, indptr.at[end].get(mode="clip"), 0) - start


def count_less(
    values: jax.Array, start: jax.Array, count: jax.Array, bound: jax.Array
) -> jax.Array:
    """int64 `[B]`: how many of the `count` ascending values from `start` on are less than
    `bound`, found by binary search."""
    if values.shape[0] == 0:
        return jnp.zeros_like(count)
    return first_where(lambda i: clipped(values, start + i) >= bound, count, (start, values))


def first_where(holds: Any, count: jax.Array, reads: Any) -> jax.Array:
    """int64, the shape of `count`: the first of `0, 1, .., count - 1` for which `holds` is
    True, else `count`. Where it holds for a number it must hold for all greater ones. `reads`
    is what `holds` reads."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        no = (low < high) & ~holds(middle)
        return jnp.where(no, middle + 1, low), jnp.where(no, high, middle)

    low, high, _ = vary_alike(jnp.zeros_like(count), count, reads)
    steps = 64 - jax.lax.clz(jnp.max(count, initial=0).astype(jnp.int64))
    return jax.lax.fori_loop(0, steps, halve, (low, high))[0]


def clipped(array: Any, at: jax.Array) -> jax.Array:
    """`array[at]`, where places out of bounds are the nearest ones within."""
    return array.at[at].get(mode="clip")
