"""The passes of `aggregate` over a block: forward, and backward for `x` and for the weights.
Each pass is jitted, so that eager calls compile once too. Its plain form defines the result.

`edges` is `(indptr, indices, num_targets, num_edges)`; `weight` is None, `[E]` or `[E, H]`;
`num_threads` None means that no kernel runs. A `num_edges` of `jgs.ops.checks.LOST` makes all
of a result NaN.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jgs.graph.formats.export import edge_targets
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, or_empty
from jgs.ops.checks import LOST


@partial(jax.jit, static_argnums=(0, 1))
def forward(reduce, num_threads, x, weight, *edges):
    """`(out, argmax)`: the reduction and, for `"max"`, the edge that attained it (see the
    header `aggregate.h`). For other reductions `argmax` has no rows."""

    def kernel(x, weight, indptr, *rest):
        shape = (indptr.shape[0] - 1, x.shape[1])
        argmax_shape = shape if reduce == "max" else (0, shape[1])
        out = (floats(shape), jax.ShapeDtypeStruct(argmax_shape, jnp.int32))
        arguments = (x, or_empty(weight).reshape(-1), indptr, *rest)
        return call("jgs_aggregate", out, arguments, num_threads, reduce)

    operands = (x, weight, *edges)
    return kernel_or_plain(num_threads, kernel, partial(forward_plain, reduce), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def grad_x(reduce, num_threads, *operands):
    """The gradient of `x` `[S, F]`. The operands are that of the result, `grad_out` `[T, F]`,
    `argmax`, `x`, `weight` and `edges`."""

    def kernel(grad_out, argmax, x, weight, *edges):
        out = floats((x.shape[0], grad_out.shape[1]))
        arguments = (grad_out, argmax, or_empty(weight).reshape(-1), *edges)
        return call("jgs_aggregate_grad", out, arguments, num_threads, reduce)

    return kernel_or_plain(num_threads, kernel, partial(grad_x_plain, reduce), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def grad_weight(reduce, num_threads, *operands):
    """The gradient of `weight`, with its shape, from the operands of `grad_x`."""

    def kernel(grad_out, argmax, x, weight, *edges):
        arguments = (grad_out, argmax, x, weight.reshape(-1), *edges)
        out = floats((weight.size,))
        grad = call("jgs_aggregate_grad_weight", out, arguments, num_threads, reduce)
        return grad.reshape(weight.shape)

    return kernel_or_plain(num_threads, kernel, partial(grad_weight_plain, reduce), *operands)


# A padded edge has target T and source S, one past the last row: a read gives zeros there, and
# a write is dropped.


def _edge_rows(num_sources, indptr, indices, num_targets, num_edges):
    """The target and the source of each edge, int32 `[E]` each; and the in-degree of each
    target, at least 1, float32 `[T]`."""
    row, real = edge_targets(indices.shape[0], indptr, num_targets, num_edges)
    real &= (indices >= 0) & (indices < num_sources)
    row = jnp.where(real, row, indptr.shape[0] - 1)
    source = jnp.where(real, indices, num_sources)
    return row, source, jnp.maximum(jnp.diff(indptr), 1).astype(jnp.float32)


def _messages(x, weight, source):
    values = x.at[source].get(**FILL)
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return values if weight is None else _times(values, weight)


def _times(values, weight):
    """`values` `[E, F]` times `weight`, `[E]` or `[E, H]` with a weight for each head."""
    if weight.ndim == 1:
        return values * weight[:, None]
    return (_by_head(values, weight) * weight[:, :, None]).reshape(values.shape)


def _by_head(values, weight):
    """`values` `[E, F]` as `[E, H, F / H]`, where `H` is the number of heads of `weight`."""
    num_slots, num_heads = weight.reshape(weight.shape[0], -1).shape
    return values.reshape(num_slots, num_heads, values.shape[1] // num_heads)


def forward_plain(reduce, x, weight, indptr, indices, num_targets, num_edges):
    num_rows = indptr.shape[0] - 1
    row, source, degree = _edge_rows(x.shape[0], indptr, indices, num_targets, num_edges)
    values = _messages(x, weight, source)
    if reduce == "max":
        best = jax.ops.segment_max(jax.lax.stop_gradient(values), row, num_rows)
        best = best.at[row].get(**FILL)
        attains = (values == best) | (jnp.isnan(values) & jnp.isnan(best))
        none = jnp.int32(jnp.iinfo(jnp.int32).max)
        edge = jnp.where(attains, jnp.arange(row.shape[0], dtype=jnp.int32)[:, None], none)
        argmax = jax.ops.segment_min(edge, row, num_rows)
        argmax = jnp.where(argmax == none, -1, argmax)
        # The derivative follows this read: it goes to that edge only, not to others that tie.
        out = values.at[argmax, jnp.arange(x.shape[1])].get(**FILL)
        return _unless_lost(out.astype(x.dtype), num_edges), argmax
    out = jax.ops.segment_sum(values, row, num_rows)
    if reduce == "mean":
        out = out / degree[:, None]
    return _unless_lost(out.astype(x.dtype), num_edges), x[:0].astype(jnp.int32)


def _unless_lost(out, num_edges):
    return jnp.where(num_edges == LOST, jnp.nan, out).astype(out.dtype)


def _edge_grads(reduce, grad_out, argmax, row, degree):
    """`[E, F]`: the gradient of each edge's message."""
    grad_out = grad_out.astype(jnp.promote_types(grad_out.dtype, jnp.float32))
    if reduce == "mean":
        grad_out = grad_out / degree[:, None]
    grads = grad_out.at[row].get(**FILL)
    if reduce == "max":
        edge = jnp.arange(row.shape[0], dtype=jnp.int32)[:, None]
        grads = jnp.where(argmax.at[row].get(**FILL) == edge, grads, 0)
    return grads


def grad_x_plain(reduce, grad_out, argmax, x, weight, *edges):
    row, source, degree = _edge_rows(x.shape[0], *edges)
    grads = _edge_grads(reduce, grad_out, argmax, row, degree)
    if weight is not None:
        grads = _times(grads, weight)
    return jax.ops.segment_sum(grads, source, x.shape[0]).astype(x.dtype)


def grad_weight_plain(reduce, grad_out, argmax, x, weight, *edges):
    row, source, degree = _edge_rows(x.shape[0], *edges)
    grads = _edge_grads(reduce, grad_out, argmax, row, degree)
    products = _by_head(grads * _messages(x, None, source), weight)
    return jnp.sum(products, axis=2).reshape(weight.shape).astype(weight.dtype)
