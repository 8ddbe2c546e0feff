"""`edge_scores`: the logits of additive attention, one an edge and head."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import FILL
from jgs.ops.aggregate_plain import edge_targets
from jgs.ops.checks import check_block, check_rows


def edge_scores(
    block: Block,
    x: jax.Array,
    y: jax.Array,
    attention: jax.Array,
    negative_slope: float = 0.2,
) -> jax.Array:
    """For every edge of `block`, `attention . LeakyReLU(x_source + y_target)`, head by head.

    Args:
      block: a `jgs.Block` with `T` targets and `E` edges (capacities); without its weights.
      x: float `[S, H * D]`, a row for every source.
      y: float `[T, H * D]`, a row for every target.
      attention: float `[H, D]`.
      negative_slope: of the LeakyReLU.

    Returns:
      `[E, H]`; 0 in padding. Differentiable in `x`, `y` and `attention`.

    Raises `InputError` for shapes that do not match.
    """
    num_targets, _, num_edges = check_block(block)
    check_rows("x", x)
    check_rows("y", y)
    check_rows("attention", attention)
    num_heads, head_width = attention.shape
    shape = (block.target_capacity, num_heads * head_width)
    if y.shape != shape or x.shape[0] < shape[0] or x.shape[1] != shape[1]:
        raise InputError(
            f"edge_scores takes x [S, {shape[1]}] and y {list(shape)} for attention of "
            f"{num_heads} heads of {head_width}",
            f"shapes {list(x.shape)} and {list(y.shape)}",
            "Give every source and every target, padding included, a row.",
        )
    row, real = edge_targets(block.edge_capacity, block.indptr, num_targets, num_edges)
    source = jnp.where(real, block.indices, x.shape[0])
    total = x.at[source].get(**FILL) + y.at[row].get(**FILL)
    return leaky_scores(total, attention, negative_slope)


def leaky_scores(total: jax.Array, attention: jax.Array, negative_slope: float) -> jax.Array:
    """`attention . LeakyReLU(total)`, `[n, H]` from `[n, H * D]` and `[H, D]`."""
    parts = jax.nn.leaky_relu(total, negative_slope).reshape(-1, *attention.shape)
    return jnp.sum(parts * attention, axis=-1)
