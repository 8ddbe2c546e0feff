"""`aggregate`: message passing over a block. `gather`: feature rows of nodes, and
`gather_aggregate`: their aggregation without gathering them first.

The passes of `aggregate` are jitted, so that eager calls compile once too: forward, and
backward for `x` and for the weights. The plain form of each defines the result. In them `edges`
is `(indptr, indices, num_targets, num_edges)`; `weight` is None, `[E]` or `[E, H]`;
`num_threads` None means that no kernel runs. A `num_edges` of `jgs.ops.checks.LOST` makes all
of a result NaN.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block, MiniBatch
from jgs.graph.foreign import edge_targets
from jgs.graph.row_tables.dense import rows_as_stored
from jgs.graph.row_tables.table import RowTable
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, or_empty, vary_alike
from jgs.ops import checks


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
    a `jax.errors.JaxRuntimeError` that names the rule, or a `ValueError` from a program whose
    first call was right (JAX 0.10.2). The plain form then reads each edge at most once, and
    only edges below `num_edges` and `indptr[-1]`, in rows below `num_targets`, whose index is a
    row of `x`; it may assign edges to wrong rows.
    """
    if getattr(x, "ndim", 0) == 3:
        return _of_heads(block, x, reduce, edge_weight)
    checks.check_reduce(reduce)
    num_targets, num_sources, num_edges = checks.check_block(block)
    checks.check_rows("x", x)
    weight = block.edge_weight
    if edge_weight is not None:
        weight = checks.check_edge_weight(edge_weight, block.edge_capacity, x.shape[1], reduce)
    if block.source_capacity is not None:
        form = "[S, F], the rows of this block's sources, padding included"
        remedy = "Gather the rows of batch.nodes, and take the blocks in their order."
        require_array("x", x, form, remedy, S=block.source_capacity)
    checks.check_sources(x, block, num_sources)
    if block.control is not None:
        checks.check_control(block, x, reduce)
        sources, targets = (rows.astype(x.dtype) for rows in block.control)
        plain = replace(block, control=None)
        return targets + aggregate(plain, x - sources, reduce, edge_weight)
    if 0 in (block.target_capacity, block.edge_capacity, *x.shape):
        return checks.zeros_or_lost(block, (block.target_capacity, x.shape[1]), x.dtype)
    num_threads = checks.threads_for(block.target_capacity, x, weight)
    num_edges = checks.edges_or_lost(block, num_edges)
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


def _of_heads(block: Block, x: jax.Array, reduce: str, weight: jax.Array | None) -> jax.Array:
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
    grad_x = gradient_of_x(reduce, num_threads, grads[0], *kept)
    grad_weight = None
    if kept[2] is not None:  # a separate pass, which XLA drops where its result is not used
        grad_weight = gradient_of_weight(reduce, num_threads, grads[0], *kept)
    return grad_x, grad_weight, None


def _forward(reduce, num_threads, x, weight, edges):
    return aggregate_forward(reduce, num_threads, x, weight, *edges)


_aggregate = checks.with_derivative(_forward, _kept, _backward, 2)


@partial(jax.jit, static_argnums=(0, 1))
def aggregate_forward(reduce, num_threads, x, weight, *edges):
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
def gradient_of_x(reduce, num_threads, *operands):
    """The gradient of `x` `[S, F]`. The operands are that of the result, `grad_out` `[T, F]`,
    `argmax`, `x`, `weight` and `edges`."""

    def kernel(grad_out, argmax, x, weight, *edges):
        out = floats((x.shape[0], grad_out.shape[1]))
        arguments = (grad_out, argmax, or_empty(weight).reshape(-1), *edges)
        return call("jgs_aggregate_grad", out, arguments, num_threads, reduce)

    return kernel_or_plain(num_threads, kernel, partial(grad_x_plain, reduce), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def gradient_of_weight(reduce, num_threads, *operands):
    """The gradient of `weight`, with its shape, from the operands of `gradient_of_x`."""

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
    return jnp.where(num_edges == checks.LOST, jnp.nan, out).astype(out.dtype)


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


def gather(features: Any, ids: Any) -> Any:
    """Dense feature rows of the nodes `ids`.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, `SparseFeatures` or
        `QuantizedFeatures`; or a tuple of arrays `[N_i, F]`, which are read as if they were
        concatenated to `[N, F]`, without a copy. Pass features to a jitted function as an
        argument, never as a constant in it. Of `TypedFeatures` the result is `TypedRows`: rows
        of different widths are not joined.
      ids: int32 (or int64) `[K]`. Ids outside `[0, N)` are padding. Or a `jgs.MiniBatch`,
        whose `nodes` are read: then `N` must be its `num_nodes`. `VersionedFeatures` take
        nothing else.

    Returns:
      float32 `[K, F]`, with rows of zeros for padding. Differentiable in dense `features` and
      in the `values` of sparse ones.

    Raises `InputError` for other types and ranks.
    """
    table = checks.check_features(features, typed=True)
    batch = ids if isinstance(ids, MiniBatch) else None
    if batch is not None:
        checks.check_num_nodes(table.shape[0], batch.num_nodes)
        ids = batch.nodes
    ids = checks.check_ids(ids, table.shape[0])
    return table.gather(ids, checks.threads_for(ids.shape[0], table), batch)


def rows_apart(features: Any, ids: jax.Array) -> Any:
    """Features with the rows `ids`, int32 `[K]`, of `features`, which are of any form that
    `gather` takes, but not by node type. Rows are kept as they are stored, but those by entries
    become float32. What rows of padding say is not defined."""
    table = checks.check_features(features)
    kinds = set() if table.by_entries else {jnp.dtype(rows.dtype) for rows in table.rows}
    if len(kinds) != 1 or jnp.dtype(jnp.float32) in kinds:  # which the kernel copies faster
        return gather(features, ids)
    return table.with_rows(rows_as_stored(table.rows, ids))


def gather_aggregate(
    features: jax.Array | RowTable | tuple[jax.Array, ...],
    block: Block,
    reduce: str = "mean",
    place: Any = None,
) -> jax.Array:
    """For every target of `block`, the reduction of its neighbours' rows of `features`.

    The result equals `aggregate(block, gather(features, rows), reduce)` to rounding, where
    `rows` is `place` or, without it, `jnp.arange(N)`. The gathered matrix is never built, nor
    is that of the batch's distinct input nodes.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, `SparseFeatures` or
        `QuantizedFeatures`; with `place` also a tuple of matrices, as for `gather`. Pass
        features to a jitted function as an argument, never as a constant in it.
      block: a `jgs.Block` with `T` targets (capacity). Without `place` its `indices` are node
        ids, that is, rows of `features`, and its `num_sources` is `N`. The first block of a
        batch sampled with `relabel_inputs=False` is such a block.
      reduce: as in `aggregate`, with the block's edge weights.
      place: int32 (or int64) `[S]`, the row of `features` of each source of the block. A place
        outside `[0, N)` reads zeros. `indices` are then sources, as in `aggregate`.

    Returns float32 `[T, F]`, with zeros and NaN as in `aggregate`. Rows are summed in edge
    order.

    The function has derivatives in both modes in dense `features`, in the `values` of sparse
    ones, and in `edge_weight`. The plain form computes them, with a matrix of one row for each
    edge; features that are only read need no derivative.

    Raises `InputError` for arguments and blocks that break these rules and, without `place`,
    for a block with edges whose `num_sources` is known and not `N`, because its `indices` are
    then sources of the batch, not nodes. Only the kernel checks the values in the arrays, as in
    `aggregate`. The plain form reads zeros for ids outside `[0, N)`.
    """
    checks.check_reduce(reduce)
    counts = checks.check_block(block)
    if block.control is not None:
        raise InputError(
            "a block with control variates must be aggregated by jgs.ops.aggregate",
            "gather_aggregate",
            "Call gather and aggregate.",
        )
    table = checks.check_features(features)
    if place is None:
        if isinstance(features, tuple):
            raise InputError(
                "features must be a JAX array or SparseFeatures",
                type(features).__name__,
                "Give the place of each source too.",
            )
        _check_num_sources(block, table.shape[0], *counts[1:])
    else:
        if table.by_entries:
            raise InputError(
                "features in several tables must be JAX arrays",
                type(table).__name__,
                "Join them with scipy.sparse.vstack.",
            )
        place = checks.check_ids(place, table.shape[0])
        if block.source_capacity is not None:
            form = "[S], the row of each of the block's sources, padding included"
            remedy = "Find the places of batch.nodes."
            require_array("place", place, form, remedy, S=block.source_capacity)
    num_rows, width = block.target_capacity, table.shape[1]
    if 0 in (num_rows, block.edge_capacity, width) or (place is not None and place.size == 0):
        return checks.zeros_or_lost(block, (num_rows, width), jnp.float32)
    num_threads = checks.threads_for(num_rows, table)
    counts = (*counts[:2], checks.edges_or_lost(block, counts[2]))
    edges = (block.edge_weight, block.indptr, block.indices, *counts)
    return _gather_aggregate(reduce, num_threads, *vary_alike(table, place, *edges))


def _check_num_sources(block, num_nodes, *counts):
    found = block.source_capacity
    if found in (None, num_nodes):
        if any(isinstance(count, jax.core.Tracer) for count in counts):
            return
        num_sources, num_edges = map(int, counts)
        found = num_sources if num_edges > 0 else num_nodes
    if found != num_nodes:
        raise InputError(
            "block.num_sources must be the number of rows of features, block.indices node ids",
            f"{found} for {num_nodes} rows",
            "Sample with relabel_inputs=False, or call gather and aggregate.",
        )


_EDGES = ("edge_weight", "indptr", "indices", "num_targets", "num_sources", "num_edges")


@partial(jax.jit, static_argnums=(0, 1))
def _gather_aggregate(reduce, num_threads, *operands):
    def kernel(table, place, *edges):
        named = dict(zip(_EDGES, edges, strict=True))
        return table.aggregate_kernel(place, named, reduce, num_threads)

    def plain(table, place, weight, indptr, indices, num_targets, _, num_edges):
        if place is None:  # a matrix with one row for each edge, read by the edge's node id
            edge = jnp.arange(indices.shape[0], dtype=jnp.int32)
            place, indices = jnp.where(edge < num_edges, indices, -1), edge
        rows = table.gather_plain(place)
        return forward_plain(reduce, rows, weight, indptr, indices, num_targets, num_edges)[0]

    return kernel_or_plain(num_threads, kernel, plain, *operands)
