"""`edge_dot`: dot products of the rows of each edge's source and target, one for each head."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs.arrays import described
from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import vary_alike
from jgs.ops import aggregate_passes as passes
from jgs.ops.checks import check_block, check_rows, threads_for
from jgs.ops.derivative import with_derivative


def edge_dot(block: Block, x: jax.Array, y: jax.Array, num_heads: int = 1) -> jax.Array:
    """For every edge of `block`, the dot product of its source's row of `x` and its target's
    row of `y`.

    Args:
      block: a `jgs.Block` with `T` targets and `E` edges (capacities). Its weights are not
        used.
      x: float `[S, F]`, a row for every source.
      y: float `[T, F]` of the same dtype, a row for every target.
      num_heads: int; the number of equal parts into which the columns are divided.

    Returns:
      `[E, num_heads]` of `x`'s dtype: for head `h` the sum over its columns `f` of
      `x[indices[e], f] * y[target(e), f]`; 0 in padding. This is the same computation as the
      derivative of `jgs.ops.aggregate` in `edge_weight`, with the same kernel on the CPU.

    Raises `InputError` as `jgs.ops.aggregate` does, and for a `num_heads` that does not divide
    the number of columns.
    """
    num_targets, _, num_edges = check_block(block)
    check_rows("x", x)
    check_rows("y", y)
    num_rows, width = block.target_capacity, x.shape[1]
    needed = num_rows if block.source_capacity is None else block.source_capacity
    if y.shape != (num_rows, width) or x.dtype != y.dtype or x.shape[0] < needed:
        raise InputError(
            f"edge_dot takes x [S, F] and, of its dtype, y [{num_rows}, F]",
            f"{described(x)} and {described(y)}",
            "Give every source and every target, padding included, a row.",
        )
    if num_heads < 1 or width % num_heads != 0:
        raise InputError(
            f"num_heads must cut the {width} columns of x into equal parts",
            num_heads,
            "Give a divisor of the width.",
        )
    if 0 in (num_rows, block.edge_capacity, width):
        return jnp.zeros((block.edge_capacity, num_heads), x.dtype)
    edges = (block.indptr, block.indices, num_targets, num_edges)
    return _edge_dot(num_heads, threads_for(num_rows, x), *vary_alike(x, y, edges))


def _forward(num_heads, num_threads, x, y, edges):
    no_weight = jnp.zeros((edges[1].shape[0], num_heads), x.dtype)  # only its shape matters
    return passes.grad_weight("sum", num_threads, y, _no_argmax(x), x, no_weight, *edges)


def _backward(num_heads, num_threads, operands, grad):
    x, y, edges = operands
    grad_x = passes.grad_x("sum", num_threads, y, _no_argmax(x), x, grad, *edges)
    grad_y, _ = passes.forward("sum", num_threads, x, grad, *edges)
    return grad_x, grad_y, None


def _no_argmax(x):
    return jnp.zeros((0, x.shape[1]), jnp.int32)


_edge_dot = with_derivative(_forward, lambda *operands: operands[:-1], _backward, 2)
