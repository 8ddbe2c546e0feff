"""Local ids in order of first appearance: in plain JAX (`relabel`), and by the kernel
jgs/kernels/relabel_edges.cc (`relabel_edges`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, kernel_or_plain


def equal_ones(ids: jax.Array, cutoff: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """int32 `[n]` each: the order that sorts `ids` `[n]`, and then the cutoffs if there are
    any, stably; and for each place in that order, where the run of equal ones begins."""
    place = jnp.arange(ids.shape[0], dtype=jnp.int32)
    keys = [ids] if cutoff is None else [ids, cutoff]
    *ordered, order = jax.lax.sort([*keys, place], num_keys=len(keys), is_stable=True)
    differs = jnp.zeros(max(ids.size - 1, 0), bool)
    for key in ordered:
        differs |= key[1:] != key[:-1]
    starts = jnp.concatenate([jnp.ones(1, bool), differs])[: ids.size]
    return order, jax.lax.cummax(jnp.where(starts, place, 0))


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
    order, begin = equal_ones(ids, None if cutoffs is None else jnp.where(real, cutoffs, 0))
    first = jnp.zeros_like(slot).at[order].set(order[begin])

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


def relabel_edges(
    targets: jax.Array,
    num_targets: jax.Array,
    neighbors: jax.Array,
    num_edges: jax.Array,
    source_capacity: int,
    padding: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As `relabel`, where the first `num_edges` of `neighbors` are real.

    If the sources do not fit, their number is `source_capacity + 1` and all are padding.
    """

    def plain(targets, num_targets, neighbors, num_edges):
        valid = jnp.arange(neighbors.shape[0]) < num_edges
        nodes, count, indices, _ = relabel(
            targets, num_targets, neighbors, valid, source_capacity, padding
        )
        fits = count <= source_capacity
        return (
            jnp.where(fits, nodes, padding),
            jnp.where(fits, count, source_capacity + 1).astype(jnp.int32),
            jnp.where(fits, indices, source_capacity),
        )

    def kernel(*operands):
        shapes = ((source_capacity,), (), neighbors.shape)
        out = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]
        return tuple(call("jgs_relabel", out, operands, kernels.NUM_THREADS, padding=padding))

    operands = (targets, num_targets, neighbors, num_edges)
    return kernel_or_plain(
        kernels.NUM_THREADS if kernels.available() else None, kernel, plain, *operands
    )
