"""`aggregate`: message passing over a block."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import vary_alike
from jgs.ops import aggregate_passes as passes
from jgs.ops.checks import (
    check_block,
    check_control,
    check_edge_weight,
    check_reduce,
    check_rows,
    edges_or_lost,
    threads_for,
    zeros_or_lost,
)
from jgs.ops.derivative import with_derivative


def aggregate(
    block: Block, x: jax.Array, reduce: str = "mean", edge_weight: jax.Array | None = None
) -> jax.Array:
    """For every target of `block`, a reduction over its edges of the sources' rows of `x`.

    Args:
      block: a `jgs.Block` with `T` targets (capacity).
      x: `[S, F]` float32, float16, bfloat16 or float64; row `i` belongs to source `i`. It has a
        row for every source, padding included. `[S, H, D]` are `H` heads of `D` columns.
      reduce: `"sum"`: the sum of `w[e] * x[indices[e]]` over the edges `e` of a target, where
        `w` is the block's edge weights, or 1 without weights. `"mean"`: that sum divided by the
        number of edges, whatever their weights (as in DGL's `u_mul_e_mean`). `"max"`: the
        largest of the products, feature by feature.
      edge_weight: float `[E]`, which replaces the block's weights. For sums and means it may be
        `[E, H]`: `edge_weight[:, h]` then weights the columns of head `h`, the `h`-th of `H`
        equal parts of the features.

    If the block has `control`, `reduce` must be `"mean"`. The rows `x` are then replaced by `x
    - control.sources`, and `control.targets` is added to the result (see `jgs.graph.Control`).

    Returns `[T, F]`, or `[T, H, D]`, of `x`'s dtype; half precision is summed in float32, in
    edge order. Rows without edges, and those from `num_targets` on, are 0. All are NaN where
    the sample of the block has overflowed. Edges from `num_edges` on and rows of `x` that no
    edge reads contribute nothing, whatever they hold, NaN included.

    Differentiable in `x` and `edge_weight`, in reverse mode: `jax.grad`, `jax.vjp`,
    `jax.jacrev` and `jax.hessian`. `jax.jvp` and `jax.jacfwd` raise an error, an `InputError`
    outside of `jax.jit`. The gradient of a maximum goes to the first edge that attains it.

    Raises `InputError` for arguments and blocks that break these rules. The counts of the block
    may have any integer dtype. Only the kernel checks the values in the arrays, when it runs
    (float32, on the CPU, `T`, `E` and `F` not 0): a block that breaks a rule of `jgs.Block` is
    a `jax.errors.JaxRuntimeError` that names the rule. The plain form then reads each edge at
    most once, and only edges below `num_edges` and `indptr[-1]`, in rows below `num_targets`,
    whose index is a row of `x`; it may assign edges to wrong rows.
    """
    if getattr(x, "ndim", 0) == 3:
        return _by_head(block, x, reduce, edge_weight)
    check_reduce(reduce)
    num_targets, num_sources, num_edges = check_block(block)
    check_rows("x", x)
    weight = block.edge_weight
    if edge_weight is not None:
        weight = check_edge_weight(edge_weight, block.edge_capacity, x.shape[1], reduce)
    # Targets are sources, unless a block that knows its sources' number joins other rows.
    needed = 0 if block.source_capacity is not None else block.target_capacity
    if block.source_capacity is not None:
        form = "[S, F], the rows of this block's sources, padding included"
        remedy = "Gather the rows of batch.nodes, and take the blocks in their order."
        require_array("x", x, form, remedy, S=block.source_capacity)
    if not isinstance(num_sources, jax.core.Tracer):
        needed = max(needed, int(num_sources))
    if x.shape[0] < needed:
        raise InputError(
            "x must have a row for every source of the block",
            f"{x.shape[0]} rows for {needed} or more sources",
            "Gather the rows of all the batch's nodes, padding included.",
        )
    if block.control is not None:
        check_control(block, x, reduce)
        sources, targets = (rows.astype(x.dtype) for rows in block.control)
        plain = replace(block, control=None)
        return targets + aggregate(plain, x - sources, reduce, edge_weight)
    if block.target_capacity == 0 or block.edge_capacity == 0 or x.shape[1] == 0:
        return zeros_or_lost(block, (block.target_capacity, x.shape[1]), x.dtype)
    num_threads = threads_for(block.target_capacity, x, weight)
    num_edges = edges_or_lost(block, num_edges)
    edges = (block.indptr, block.indices, num_targets, num_edges)
    try:
        return _aggregate(reduce, num_threads, *vary_alike(x, weight, edges))[0]
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise InputError(
            "aggregate must be differentiated in reverse mode",
            "jax.jvp, or what uses it",
            "Use jax.grad, jax.vjp, jax.jacrev or jax.hessian.",
        ) from None


def _by_head(block: Block, x: jax.Array, reduce: str, weight: jax.Array | None) -> jax.Array:
    _, heads, width = x.shape
    if weight is not None and jnp.ndim(weight) == 2:
        form = "[E, H], a column for each head of x"
        require_array("edge_weight", weight, form, "Give [E], or [E, H].", H=heads)
    out = aggregate(block, x.reshape(x.shape[0], heads * width), reduce, weight)
    return out.reshape(-1, heads, width)


def _kept(x, weight, edges, results):
    # Without weights the derivative needs only the shape and the dtype of x.
    return results[1], x if weight is not None else x[:, :0], weight, *edges


def _backward(reduce, num_threads, kept, grads):
    *kept, num_edges = kept
    kept = (*kept, jnp.maximum(num_edges, 0))
    grad_x = passes.grad_x(reduce, num_threads, grads[0], *kept)
    grad_weight = None
    if kept[2] is not None:  # a separate pass, which XLA drops where its result is not used
        grad_weight = passes.grad_weight(reduce, num_threads, grads[0], *kept)
    return grad_x, grad_weight, None


def _forward(reduce, num_threads, x, weight, edges):
    return passes.forward(reduce, num_threads, x, weight, *edges)


_aggregate = with_derivative(_forward, _kept, _backward, 2)
