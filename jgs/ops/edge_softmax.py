"""`edge_softmax`: attention weights, a softmax over the edges of each target."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.graph import Block
from jgs.graph.formats.export import edge_targets
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, vary_alike
from jgs.ops.checks import check_block, threads_for
from jgs.ops.derivative import with_derivative


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
    num_threads = threads_for(block.target_capacity, logits)
    operands = vary_alike(logits, own_logits, block.indptr, num_targets, num_edges)
    weights, own_weights = _softmax(num_threads, *operands)
    weights = weights.reshape(shape)
    return weights if own is None else (weights, own_weights.reshape(own.shape))


# The forward pass and its derivative are jitted, so that eager calls compile once too.
# `num_threads` None means that no kernel runs. Without self-loops `own` has no rows.


@partial(jax.jit, static_argnums=0)
def _forward(num_threads, logits, own, *rows):
    """`(weights, own_weights)`."""

    def kernel(logits, own, *rows):
        out = [floats(logits.shape), floats(own.shape)]
        return tuple(call("jgs_edge_softmax", out, (logits, own, *rows), num_threads))

    return kernel_or_plain(num_threads, kernel, _forward_plain, logits, own, *rows)


@partial(jax.jit, static_argnums=0)
def _grad(num_threads, weights, grads, *rows):
    """The gradients of the logits and of `own`."""

    def kernel(weights, grads, *rows):
        out, arguments = [floats(a.shape) for a in weights], (*weights, *grads, *rows)
        return tuple(call("jgs_edge_softmax_grad", out, arguments, num_threads))

    return kernel_or_plain(num_threads, kernel, _grad_plain, weights, grads, *rows)


def _backward(num_threads, kept, grads):
    weights, rows = kept
    return *_grad(num_threads, weights, grads, *rows), None, None, None


_softmax = with_derivative(_forward, lambda a, b, *rest: (rest[-1], rest[:-1]), _backward, 1)


def _real(num_slots, indptr, num_targets, num_edges):
    """The target of each edge, int32 `[E]`; and bool `[E, 1]` and `[T, 1]`: which edges and
    which targets are real."""
    row, real = edge_targets(num_slots, indptr, num_targets, num_edges)
    real_row = jnp.arange(indptr.shape[0] - 1) < num_targets
    return row, real[:, None], real_row[:, None]


def _forward_plain(logits, own, *rows):
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


def _grad_plain(weights, grads, *rows):
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
