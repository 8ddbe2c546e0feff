"""The C++ kernel behind `relabel`: jgs/kernels/relabel_edges.cc, for edges already drawn."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, kernel_or_plain
from jgs.sampling.edges.relabel import relabel


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
