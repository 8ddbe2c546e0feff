"""Local ids in order of first appearance, in plain `jax.numpy`."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def relabel(
    targets: jax.Array,
    num_targets: jax.Array,
    neighbors: jax.Array,
    valid: jax.Array,
    source_capacity: int,
    padding: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The sources of a hop, and the position of each neighbour among them.

    Args:
      targets: int32 `[T]`; the first `num_targets` are real. They may repeat.
      neighbors: int32 `[E]`, real where `valid` (bool `[E]`).
      source_capacity: int; `S`.
      padding: int; fills the sources after the real ones.

    Returns:
      sources, int32 `[S]`: the targets, then every other neighbour in order of first
      appearance; the number of sources, int32, which may exceed `S` (the rest is then dropped);
      and the neighbours' positions, int32 `[E]`: the first position of a repeated target, and
      `S` where not valid.

    The cost depends on the sample only, not on the graph: one sort of `T + E` ids.
    """
    num = targets.shape[0]
    real = jnp.concatenate([jnp.arange(num) < num_targets, valid])
    ids = jnp.concatenate([targets, neighbors])
    ids = jnp.where(real, ids, jnp.iinfo(jnp.int32).max)
    slot = jnp.arange(ids.shape[0], dtype=jnp.int32)

    order = jnp.argsort(ids, stable=True).astype(jnp.int32)
    ordered = ids[order]
    starts = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])[: ids.size]
    group_start = jax.lax.cummax(jnp.where(starts, slot, 0))
    first = jnp.zeros_like(slot).at[order].set(order[group_start])  # stable: the earliest

    new = (first == slot) & real & (slot >= num)
    place = num_targets + jnp.cumsum(new, dtype=jnp.int32) - 1
    place = jnp.where(slot < num, slot, place)
    num_sources = num_targets + jnp.sum(new, dtype=jnp.int32)
    keep = jnp.where(new | ((slot < num) & real), place, source_capacity)
    sources = jnp.full(source_capacity, padding, jnp.int32).at[keep].set(ids, mode="drop")
    local = jnp.where(valid, place[first[num:]], source_capacity)
    return sources, num_sources, local.astype(jnp.int32)
