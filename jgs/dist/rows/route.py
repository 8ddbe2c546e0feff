"""`route`: which rank to ask for the row of each node of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import fits
from jgs.errors import InputError
from jgs.kernels.call import handler, where_it_is

_MOST = 2**31 - 1


def check_offsets(offsets: Any, size: int) -> np.ndarray:
    """`offsets` as int32 `[size + 1]`. Raises `InputError` unless each rank has its range."""
    array = np.asarray(offsets)
    good = fits(array, "integers [n + 1]", n=size)
    if good:
        array = array.astype(np.int64)  # differences of unsigned numbers are never below 0
        good = array[0] == 0 and array[-1] <= _MOST and min(np.diff(array)) >= 0
    if not good:
        raise InputError(
            f"offsets must be {size + 1} ints that do not decrease, from 0 to the number of "
            f"nodes, at most {_MOST}",
            array.tolist(),
            "Give where each rank's own nodes begin, and the number of nodes.",
        )
    return array.astype(np.int32)


def route(
    nodes: jax.Array,
    offsets: jax.Array,
    cache_slot: jax.Array,
    rank: jax.Array,
    round: jax.Array,
    *,
    capacity: int,
    num_own: int,
    num_cached: int,
) -> tuple[jax.Array, jax.Array]:
    """The requests of one round, and where each node's row will be.

    Args:
      nodes: int32 `[S]`; what lies outside `[0, N)` is padding.
      offsets: int32 `[R+1]`, not decreasing, from 0 to `N`: rank `r` owns the nodes from
        `offsets[r]` to `offsets[r+1]`.
      cache_slot: int32 `[N]`, each node's row in this rank's cache or -1; `[0]`: no cache.
      rank, round: int32 scalars; the first round is 0.
      capacity: `c`, the most nodes to ask a rank for in a round.
      num_own, num_cached: the rows of the own tables, at least the rank's nodes, and of the
        cache.

    Returns:
      requests int32 `[R, c+1]`: the nodes to ask each rank for, in order, padded with `N`. The
      last column holds the most nodes that one rank must be asked for, in all rounds.
      place int32 `[S]`: the node's row in a table of the own rows, then the cache's, then the
      replies `[R * c]`; -1 for padding, and for the nodes of other rounds. Own and cached nodes
      belong to the first round.
    """
    static = {"capacity": capacity, "num_own": num_own, "num_cached": num_cached}
    shapes = ((offsets.shape[0] - 1, capacity + 1), nodes.shape)

    def kernel(*operands):
        results = [jax.ShapeDtypeStruct(s, jnp.int32) for s in shapes]
        sizes = {"num_own": np.int64(num_own), "num_cached": np.int64(num_cached)}
        return tuple(handler("jgs_route", results)(*operands, **sizes))

    return where_it_is(
        kernel, partial(_plain, **static), nodes, offsets, cache_slot, rank, round
    )


def _plain(nodes, offsets, cache_slot, rank, round, *, capacity, num_own, num_cached):
    num_ranks, last = offsets.shape[0] - 1, offsets[-1]
    real = (nodes >= 0) & (nodes < last)
    owner = jnp.searchsorted(offsets, nodes, side="right").astype(jnp.int32) - 1
    slot = jnp.full_like(nodes, -1)
    if cache_slot.shape[0] > 0:
        slot = jnp.where(real, cache_slot.at[nodes].get(mode="clip"), -1)
    own = real & (owner == rank)
    remote = real & ~own & (slot < 0)
    mine = remote[:, None] & (owner[:, None] == jnp.arange(num_ranks))
    before = jnp.cumsum(mine, axis=0, dtype=jnp.int32)
    nth = jnp.sum(jnp.where(mine, before, 0), axis=1) - 1 - round * capacity
    now = remote & (nth >= 0) & (nth < capacity)
    most = jnp.max(before[-1:], initial=0)
    requests = jnp.full((num_ranks, capacity + 1), last, jnp.int32).at[:, capacity].set(most)
    at = (jnp.where(now, owner, num_ranks), jnp.where(now, nth, 0))
    requests = requests.at[at].set(nodes, mode="drop")
    place = jnp.where(now, num_own + num_cached + owner * capacity + nth, -1)
    first = round == 0
    place = jnp.where(first & own, nodes - offsets[rank], place)
    place = jnp.where(first & real & ~own & (slot >= 0), num_own + slot, place)
    return requests, place.astype(jnp.int32)
