"""Slots of rows that follow each other: row `r` has the slots before `ends[r]` that no earlier
row has. Traced under `jax.enable_x64(True)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jgs.kernels.call import vary_alike


def fold_slots(
    look: Callable[..., Any], begin: Any, degree: jax.Array, at_once: int, reads: Any
) -> Any:
    """A fold over the slots of rows of the lengths `degree` int64 `[T]`, so many at a time.

    `look(value, row, nth, real)` returns the next value, and `begin` is the first. A slot is
    number `nth` int64 of `row`; those that are not `real` come after the last. `reads` is what
    `look` reads.
    """
    ends = jnp.cumsum(degree)
    total = jnp.max(ends, initial=0)

    def body(state: tuple) -> tuple:
        first, value = state
        slot = first + jnp.arange(at_once, dtype=jnp.int64)
        row = jnp.searchsorted(ends, slot, side="right").astype(jnp.int32)
        row = jnp.minimum(row, ends.shape[0] - 1)
        return first + at_once, look(value, row, slot - (ends - degree)[row], slot < total)

    # jax.shard_map requires the loop's state to vary over the same axes as what it reads.
    begin, *_ = vary_alike((jnp.int64(0), begin), degree, reads)
    return jax.lax.while_loop(lambda state: state[0] < total, body, begin)[1]


def row_of_slot(ends: jax.Array, room: int) -> jax.Array:
    """int32 `[room]`: the row of each slot, by the rows' `ends` int `[T]`; `T` after the last
    one. Rows may have more slots than `room`; those are left out."""
    at = jnp.minimum(ends, room).astype(jnp.int32)
    passed = jnp.zeros(room + 1, jnp.int32).at[at].add(1, indices_are_sorted=True)
    return jnp.cumsum(passed[:room], dtype=jnp.int32)


def offsets_of(row: jax.Array, real: jax.Array, num_rows: int) -> jax.Array:
    """int32 `[num_rows + 1]`: where the slots of each row begin, and their number. `row` int
    `[n]` is the row of each slot, ascending where `real`, which is true in the first slots."""
    at = jnp.where(real, row.astype(jnp.int32) + 1, num_rows + 1)
    counts = jnp.zeros(num_rows + 1, jnp.int32).at[at].add(1, mode="drop")
    return jnp.cumsum(counts, dtype=jnp.int32)
