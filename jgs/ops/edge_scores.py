"""`edge_scores`: the logits of additive attention, one for each edge and head."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.formats.export import edge_targets
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, vary_alike
from jgs.ops.checks import check_block, check_rows, threads_for
from jgs.ops.derivative import with_derivative


def edge_scores(
    block: Block, x: jax.Array, y: jax.Array, attention: jax.Array, negative_slope: float = 0.2
) -> jax.Array:
    """For every edge of `block`, `attention . LeakyReLU(x_source + y_target)`, head by head.

    Args:
      block: a `jgs.Block` with `T` targets and `E` edges (capacities). Its weights are not
        used.
      x: float `[S, H * D]`, a row for every source.
      y: float `[T, H * D]`, a row for every target.
      attention: float `[H, D]`.
      negative_slope: float; the slope of the LeakyReLU below 0.

    Returns:
      `[E, H]`; 0 in padding. Edges from `num_edges` on and rows that no edge reads contribute
      nothing, whatever they hold.

    Differentiable in `x`, `y` and `attention`. Raises `InputError` for other shapes.
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
    num_threads = threads_for(block.edge_capacity, x, y, attention)
    edges = (block.indptr, block.indices, num_targets, num_edges)
    operands = vary_alike(x, y, attention, *edges)
    return _scores(num_threads, float(negative_slope), *operands)


# The forward pass and its derivative are jitted, so that eager calls compile once too.
# `num_threads` None means that no kernel runs. `edges` is
# `(indptr, indices, num_targets, num_edges)`.


@partial(jax.jit, static_argnums=(0, 1))
def _forward(num_threads, slope, *operands):
    def kernel(*operands):
        out = floats((operands[4].shape[0], operands[2].shape[0]))
        slope_of = {"negative_slope": np.float32(slope)}
        return call("jgs_edge_scores", out, operands, num_threads, **slope_of)

    return kernel_or_plain(num_threads, kernel, partial(_forward_plain, slope), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _grad(num_threads, slope, grad, *operands):
    """The gradients of `x`, `y` and `attention`."""

    def kernel(grad, x, y, attention, *edges):
        out = [floats(a.shape) for a in (x, y, y)]
        arguments = (grad.reshape(-1), x, y, attention, *edges)
        slope_of = {"negative_slope": np.float32(slope)}
        *grads, shares = call("jgs_edge_scores_grad", out, arguments, num_threads, **slope_of)
        return *grads, shares.sum(0).reshape(attention.shape)

    def plain(grad, x, y, attention, *edges):
        f = lambda *floats: _forward_plain(slope, *floats, *edges)  # noqa: E731
        return jax.vjp(f, x, y, attention)[1](grad)

    return kernel_or_plain(num_threads, kernel, plain, grad, *operands)


def _backward(num_threads, slope, operands, grad):
    return *_grad(num_threads, slope, grad, *operands), None, None, None, None


_scores = with_derivative(_forward, lambda *operands: operands[:-1], _backward, 2)


def _forward_plain(slope, x, y, attention, indptr, indices, num_targets, num_edges):
    row, real = edge_targets(indices.shape[0], indptr, num_targets, num_edges)
    real &= (indices >= 0) & (indices < x.shape[0])
    source = jnp.where(real, indices, x.shape[0])
    total = x.at[source].get(**FILL) + y.at[row].get(**FILL)
    return jnp.where(real[:, None], leaky_scores(total, attention, slope), 0)


def leaky_scores(total: jax.Array, attention: jax.Array, negative_slope: float) -> jax.Array:
    """`attention . LeakyReLU(total)`, `[n, H]` from `[n, H * D]` and `[H, D]`."""
    parts = jax.nn.leaky_relu(total, negative_slope).reshape(-1, *attention.shape)
    return jnp.sum(parts * attention[None], axis=-1)
