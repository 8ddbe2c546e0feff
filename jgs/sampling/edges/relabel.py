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
    cutoff: jax.Array | None = None,
    neighbor_cutoff: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """The sources of a hop, and the position of each neighbour among them.

    Args:
      targets: int32 `[T]`; the first `num_targets` are real. They may repeat.
      neighbors: int32 `[E]`, real where `valid` (bool `[E]`).
      source_capacity: int; `S`.
      padding: int; fills the sources after the real ones.
      cutoff, neighbor_cutoff: int64 `[T]` and `[E]`, or None. With them two nodes are the same
        where their cutoffs are too.

    Returns:
      sources, int32 `[S]`: the targets, then every other neighbour in order of first
      appearance; the number of sources, int32, which may exceed `S` (the rest is then dropped);
      the neighbours' positions, int32 `[E]`: the first position of a repeated target, and `S`
      where not valid; and the sources' cutoffs, int64 `[S]` or None, 0 in padding.

    The cost depends on the sample only, not on the graph: one sort of `T + E` ids.
    """
    num = targets.shape[0]
    real = jnp.concatenate([jnp.arange(num) < num_targets, valid])
    ids = jnp.concatenate([targets, neighbors])
    ids = jnp.where(real, ids, jnp.iinfo(jnp.int32).max)
    slot = jnp.arange(ids.shape[0], dtype=jnp.int32)

    cutoffs = None
    if cutoff is not None and neighbor_cutoff is not None:
        cutoffs = jnp.concatenate([cutoff, neighbor_cutoff])
    keys = [ids] if cutoffs is None else [ids, jnp.where(real, cutoffs, 0)]
    *ordered, order = jax.lax.sort([*keys, slot], num_keys=len(keys), is_stable=True)
    new_key = jnp.zeros(max(ids.size - 1, 0), bool)
    for key in ordered:
        new_key |= key[1:] != key[:-1]
    starts = jnp.concatenate([jnp.ones(1, bool), new_key])[: ids.size]
    group_start = jax.lax.cummax(jnp.where(starts, slot, 0))
    first = jnp.zeros_like(slot).at[order].set(order[group_start])  # stable: the earliest

    new = (first == slot) & real & (slot >= num)
    place = num_targets + jnp.cumsum(new, dtype=jnp.int32) - 1
    place = jnp.where(slot < num, slot, place)
    num_sources = num_targets + jnp.sum(new, dtype=jnp.int32)
    keep = jnp.where(new | ((slot < num) & real), place, source_capacity)
    sources = jnp.full(source_capacity, padding, jnp.int32).at[keep].set(ids, mode="drop")
    local = jnp.where(valid, place[first[num:]], source_capacity).astype(jnp.int32)
    if cutoffs is not None:
        empty = jnp.zeros(source_capacity, jnp.int64)
        cutoffs = empty.at[keep].set(cutoffs, mode="drop")
    return sources, num_sources, local, cutoffs
