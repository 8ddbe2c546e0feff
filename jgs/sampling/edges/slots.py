"""Slots of rows that follow each other, without searches: row `r` has the slots before
`ends[r]` that no earlier row has. Traced under `jax.enable_x64(True)`."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def row_of_slot(ends: jax.Array, room: int) -> jax.Array:
    """int32 `[room]`: the row of each slot; `T` after the last one.

    Args:
      ends: int `[T]`, ascending.
      room: the number of slots. Rows may have more; those are left out.
    """
    at = jnp.minimum(ends, room).astype(jnp.int32)
    passed = jnp.zeros(room + 1, jnp.int32).at[at].add(1, indices_are_sorted=True)
    return jnp.cumsum(passed[:room], dtype=jnp.int32)


def offsets_of(row: jax.Array, real: jax.Array, num_rows: int) -> jax.Array:
    """int32 `[num_rows + 1]`: where the slots of each row begin, and their number.

    Args:
      row: int `[n]`, the row of each slot, ascending where `real`.
      real: bool `[n]`, true in the first slots.
    """
    at = jnp.where(real, row.astype(jnp.int32) + 1, num_rows + 1)
    counts = jnp.zeros(num_rows + 1, jnp.int32).at[at].add(1, mode="drop")
    return jnp.cumsum(counts, dtype=jnp.int32)
