"""The passes of `aggregate` over a block: forward, and backward for `x` and for the weights.
Each pass is jitted, so that eager calls compile once too.

`edges` is `(indptr, indices, num_targets, num_edges)`; `weight` is None, `[E]` or `[E, H]`;
`num_threads` None means that no kernel runs.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jgs.kernels.call import call, floats, kernel_or_plain, or_empty
from jgs.ops import aggregate_plain as plain


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

    return kernel_or_plain(
        num_threads, kernel, partial(plain.forward, reduce), x, weight, *edges
    )


@partial(jax.jit, static_argnums=(0, 1))
def grad_x(reduce, num_threads, grad_out, argmax, x, weight, *edges):
    """The gradient of `x` `[S, F]`, from that of the result, `grad_out` `[T, F]`."""

    def kernel(grad_out, argmax, x, weight, *edges):
        out = floats((x.shape[0], grad_out.shape[1]))
        arguments = (grad_out, argmax, or_empty(weight).reshape(-1), *edges)
        return call("jgs_aggregate_grad", out, arguments, num_threads, reduce)

    operands = (grad_out, argmax, x, weight, *edges)
    return kernel_or_plain(num_threads, kernel, partial(plain.grad_x, reduce), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def grad_weight(reduce, num_threads, grad_out, argmax, x, weight, *edges):
    """The gradient of `weight`, with its shape, from that of the result."""

    def kernel(grad_out, argmax, x, weight, *edges):
        arguments = (grad_out, argmax, x, weight.reshape(-1), *edges)
        out = floats((weight.size,))
        grad = call("jgs_aggregate_grad_weight", out, arguments, num_threads, reduce)
        return grad.reshape(weight.shape)

    operands = (grad_out, argmax, x, weight, *edges)
    return kernel_or_plain(num_threads, kernel, partial(plain.grad_weight, reduce), *operands)
