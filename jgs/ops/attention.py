"""Attention over the edges of a block: `edge_dot` and `edge_scores` are its logits, one for
each edge and head, and `edge_softmax` its weights.

Forward passes and derivatives are jitted, so that eager calls compile once too. `num_threads`
None means that no kernel runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.foreign import edge_targets
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, vary_alike
from jgs.ops.aggregate import aggregate_forward, gradient_of_weight, gradient_of_x
from jgs.ops.checks import check_block, check_rows, check_sources, threads_for, with_derivative


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
    num_targets, num_sources, num_edges = check_block(block)
    check_rows("x", x)
    check_rows("y", y)
    check_sources(x, block, num_sources)
    num_rows, width = block.target_capacity, x.shape[1]
    if y.shape != (num_rows, width) or x.dtype != y.dtype:
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
    if 0 in (num_rows, block.edge_capacity, *x.shape):
        return jnp.zeros((block.edge_capacity, num_heads), x.dtype)
    edges = (block.indptr, block.indices, num_targets, num_edges)
    return _edge_dot(num_heads, threads_for(num_rows, x), *vary_alike(x, y, edges))


def _dot_forward(num_heads, num_threads, x, y, edges):
    no_weight = jnp.zeros((edges[1].shape[0], num_heads), x.dtype)  # only its shape matters
    return gradient_of_weight("sum", num_threads, y, _no_argmax(x), x, no_weight, *edges)


def _dot_backward(num_heads, num_threads, operands, grad):
    x, y, edges = operands
    grad_x = gradient_of_x("sum", num_threads, y, _no_argmax(x), x, grad, *edges)
    grad_y, _ = aggregate_forward("sum", num_threads, x, grad, *edges)
    return grad_x, grad_y, None


def _no_argmax(x):
    return jnp.zeros((0, x.shape[1]), jnp.int32)


_edge_dot = with_derivative(_dot_forward, lambda *operands: operands[:-1], _dot_backward, 2)


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
    num_targets, num_sources, num_edges = check_block(block)
    check_rows("x", x)
    check_rows("y", y)
    check_rows("attention", attention)
    check_sources(x, block, num_sources)
    num_heads, head_width = attention.shape
    shape = (block.target_capacity, num_heads * head_width)
    if y.shape != shape or x.shape[1] != shape[1]:
        raise InputError(
            f"edge_scores takes x [S, {shape[1]}] and y {list(shape)} for attention of "
            f"{num_heads} heads of {head_width}",
            f"shapes {list(x.shape)} and {list(y.shape)}",
            "Give every source and every target, padding included, a row.",
        )
    if 0 in (shape[0], x.shape[0], block.edge_capacity):
        dtype = jnp.result_type(x, y, attention)
        return jnp.zeros((block.edge_capacity, num_heads), dtype)
    num_threads = threads_for(block.edge_capacity, x, y, attention)
    edges = (block.indptr, block.indices, num_targets, num_edges)
    operands = vary_alike(x, y, attention, *edges)
    return _scores(num_threads, float(negative_slope), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _scores_forward(num_threads, slope, *operands):
    def kernel(*operands):
        out = floats((operands[4].shape[0], operands[2].shape[0]))
        slope_of = {"negative_slope": np.float32(slope)}
        return call("jgs_edge_scores", out, operands, num_threads, **slope_of)

    return kernel_or_plain(num_threads, kernel, partial(_scores_plain, slope), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _scores_grad(num_threads, slope, grad, *operands):
    """The gradients of `x`, `y` and `attention`."""

    def kernel(grad, x, y, attention, *edges):
        out = [floats(a.shape) for a in (x, y, y)]
        arguments = (grad.reshape(-1), x, y, attention, *edges)
        slope_of = {"negative_slope": np.float32(slope)}
        *grads, shares = call("jgs_edge_scores_grad", out, arguments, num_threads, **slope_of)
        return *grads, shares.sum(0).reshape(attention.shape)

    def plain(grad, x, y, attention, *edges):
        f = lambda *floats: _scores_plain(slope, *floats, *edges)  # noqa: E731
        return jax.vjp(f, x, y, attention)[1](grad)

    return kernel_or_plain(num_threads, kernel, plain, grad, *operands)


def _scores_backward(num_threads, slope, operands, grad):
    return *_scores_grad(num_threads, slope, grad, *operands), None, None, None, None


_scores = with_derivative(_scores_forward, lambda *operands: operands[:-1], _scores_backward, 2)


def _scores_plain(slope, x, y, attention, indptr, indices, num_targets, num_edges):
    row, real = edge_targets(indices.shape[0], indptr, num_targets, num_edges)
    real &= (indices >= 0) & (indices < x.shape[0])
    source = jnp.where(real, indices, x.shape[0])
    total = x.at[source].get(**FILL) + y.at[row].get(**FILL)
    return jnp.where(real[:, None], leaky_scores(total, attention, slope), 0)


def leaky_scores(total: jax.Array, attention: jax.Array, negative_slope: float) -> jax.Array:
    """`attention . LeakyReLU(total)`, `[n, H]` from `[n, H * D]` and `[H, D]`."""
    parts = jax.nn.leaky_relu(total, negative_slope).reshape(-1, *attention.shape)
    return jnp.sum(parts * attention[None], axis=-1)


def edge_softmax(block: Block, logits: jax.Array, own: jax.Array | None = None) -> Any:
    """For every target of `block`, the softmax of the logits of its edges.

    Args:
      block: a `jgs.Block` with `T` targets and `E` edges (capacities). Its weights are not
        used.
      logits: float `[E]`, or `[E, H]` with a separate softmax for each of `H` heads.
      own: None; or float `[T]` or `[T, H]`: one more logit for each target, for its self-loop.

    Returns the weights, with the shape and the dtype of `logits`. With `own`, a pair: those
    weights, and the weights of the targets' self-loops, with the shape of `own`. The weights of
    a target's edges and of its self-loop sum to 1. Padding gets 0 and is not read, NaN
    included. A logit of minus infinity has the weight 0, also where a target has no other
    logit. NaN or plus infinity makes all weights of its target and head NaN.

    The largest logit of each target is subtracted first, so that no exponential overflows. Half
    precision is computed in float32. Raises `InputError` for logits of another shape or dtype,
    and for a block whose arrays have other dtypes or shapes. Only the kernel checks the values
    in the arrays, as `jgs.ops.aggregate` says.
    """
    num_targets, _, num_edges = check_block(block)
    remedy = "Give every edge of the block, padding included, a logit for each head."
    form = "floats [E] or [E, H], one row for each edge"
    require_array("logits", logits, form, remedy, E=block.edge_capacity)
    shape = logits.shape
    num_heads = 1 if len(shape) == 1 else shape[1]
    logits = jnp.asarray(logits).reshape(shape[0], num_heads)
    own_logits = jnp.zeros((0, num_heads), logits.dtype)
    if own is not None:
        heads = f", {num_heads}" if len(shape) == 2 else ""
        form = f"floats [T{heads}], one row for each target, and as many heads as logits"
        remedy = "Give every target of the block, padding included, a logit for each head."
        require_array("own", own, form, remedy, T=block.target_capacity)
        own_logits = jnp.asarray(own, logits.dtype).reshape(own.shape[0], num_heads)
    if block.target_capacity == 0:
        weights = jnp.zeros(shape, logits.dtype)
        return weights if own is None else (weights, own_logits.reshape(own.shape))
    num_threads = threads_for(block.target_capacity, logits)
    operands = vary_alike(logits, own_logits, block.indptr, num_targets, num_edges)
    weights, own_weights = _softmax(num_threads, *operands)
    weights = weights.reshape(shape)
    return weights if own is None else (weights, own_weights.reshape(own.shape))


@partial(jax.jit, static_argnums=0)
def _softmax_forward(num_threads, logits, own, *rows):
    """`(weights, own_weights)`."""

    def kernel(logits, own, *rows):
        out = [floats(logits.shape), floats(own.shape)]
        return tuple(call("jgs_edge_softmax", out, (logits, own, *rows), num_threads))

    return kernel_or_plain(num_threads, kernel, _softmax_plain, logits, own, *rows)


@partial(jax.jit, static_argnums=0)
def _softmax_grad(num_threads, weights, grads, *rows):
    """The gradients of the logits and of `own`."""

    def kernel(weights, grads, *rows):
        out, arguments = [floats(a.shape) for a in weights], (*weights, *grads, *rows)
        return tuple(call("jgs_edge_softmax_grad", out, arguments, num_threads))

    return kernel_or_plain(num_threads, kernel, _softmax_grad_plain, weights, grads, *rows)


def _softmax_backward(num_threads, kept, grads):
    weights, rows = kept
    return *_softmax_grad(num_threads, weights, grads, *rows), None, None, None


_softmax = with_derivative(
    _softmax_forward, lambda a, b, *rest: (rest[-1], rest[:-1]), _softmax_backward, 1
)


def _real(num_slots, indptr, num_targets, num_edges):
    """The target of each edge, int32 `[E]`; and bool `[E, 1]` and `[T, 1]`: which edges and
    which targets are real."""
    row, real = edge_targets(num_slots, indptr, num_targets, num_edges)
    real_row = jnp.arange(indptr.shape[0] - 1) < num_targets
    return row, real[:, None], real_row[:, None]


def _softmax_plain(logits, own, *rows):
    row, real, real_row = _real(logits.shape[0], *rows)
    num_rows, dtype = real_row.shape[0], logits.dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    logits = jnp.where(real, logits.astype(wide), -jnp.inf)
    top = jax.ops.segment_max(jax.lax.stop_gradient(logits), row, num_rows)
    if own.shape[0]:
        own = jnp.where(real_row, own.astype(wide), -jnp.inf)
        top = jnp.maximum(top, jax.lax.stop_gradient(own))
    top = jnp.where(top == -jnp.inf, 0, top)
    values = jnp.exp(logits - top.at[row].get(**FILL))
    total = jax.ops.segment_sum(values, row, num_rows)
    if own.shape[0]:
        own = jnp.exp(own - top)
        total = total + own
    over = 1 / jnp.where(total == 0, 1, total)
    weights = (values * over.at[row].get(**FILL)).astype(dtype)
    return weights, (own * over).astype(dtype) if own.shape[0] else own


def _softmax_grad_plain(weights, grads, *rows):
    dtype = weights[0].dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    (weights, own), (grad, grad_own) = jax.tree.map(lambda a: a.astype(wide), (weights, grads))
    row, real, real_row = _real(weights.shape[0], *rows)
    grad = jnp.where(real, grad, 0)
    total = jax.ops.segment_sum(weights * grad, row, real_row.shape[0])
    if own.shape[0]:
        grad_own = jnp.where(real_row, grad_own, 0)
        total = total + own * grad_own
        grad_own = own * (grad_own - total)
    grad = weights * (grad - total.at[row].get(**FILL))
    return grad.astype(dtype), grad_own.astype(dtype)
