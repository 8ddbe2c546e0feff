"""Message passing over a block, and feature rows for its nodes.

Each operation is written twice: in plain `jax.numpy`, which is its meaning and runs on any
XLA device, and as a C++ kernel (`jgs/kernels/aggregate.h`), which XLA:CPU calls through its
FFI. The kernel is taken for float32 on the CPU where `jgs.kernels.available()`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.features import SparseFeatures
from jgs.graph import Block

REDUCTIONS = ("sum", "mean", "max")  # a reduction's position is its code in the kernels


def aggregate(block: Block, x: jax.Array, reduce: str = "mean") -> jax.Array:
    """For every target of `block`, the reduction of its sources' rows of `x`.

    Args:
      block: a `jgs.Block` with `T` targets (capacity).
      x: `[S, F]` float32, float16, bfloat16 or float64; row `i` belongs to source `i`. It has
        a row for every source, padding included.
      reduce: with the block's edge weights `w` (1 where it has none), over the edges `e` of a
        row: `"sum"` of `w[e] * x[indices[e]]`; `"mean"`, that sum divided by the number of
        edges, whatever their weights (as DGL's `u_mul_e_mean`); `"max"` of the products,
        feature by feature.

    Returns:
      `[T, F]` of `x`'s dtype. Rows without edges, and those from `num_targets` on, are 0.
      Half precision is summed in float32. Edges from `num_edges` on and rows of `x` that no
      edge reads contribute nothing, whatever they hold, NaN included.

    Differentiable in reverse in `x` and `edge_weight`, and the gradient in both modes, any
    number of times (`jax.hessian` works, `jax.jvp` alone does not); from the second derivative
    on, the plain path does it. The gradient of a maximum goes to the first edge that attains
    it. Rows are summed in edge order: on the CPU the result does not depend on the number of
    threads.

    Raises `InputError` for an unknown `reduce`, for an `x` of another rank or dtype or with
    too few rows, and for a block whose arrays have other dtypes or shapes. Its counts may be
    integers of any kind.

    What the arrays hold is looked at by the kernel only (float32, on the CPU, neither `T`, `E`
    nor `F` 0), as it runs: a block that breaks a rule of `jgs.Block` is a
    `jax.errors.JaxRuntimeError` naming the rule. The plain path raises nothing. From such a
    block it takes each edge at most once, and only edges below `num_edges` and `indptr[-1]`,
    in rows below `num_targets`, whose index is a row of `x`; rows may hold wrong edges.
    """
    if reduce not in REDUCTIONS:
        raise InputError(
            f"reduce must be one of {', '.join(REDUCTIONS)}", repr(reduce), "Choose one."
        )
    _check_block(block)
    _check_rows("x", x)
    num_targets, num_sources, num_edges = (
        _check_count(name, getattr(block, name))
        for name in ("num_targets", "num_sources", "num_edges")
    )
    needed = block.target_capacity
    if not isinstance(num_sources, jax.core.Tracer):
        needed = max(needed, int(num_sources))
    if x.shape[0] < needed:
        raise InputError(
            "x must have a row for every source of the block",
            f"{x.shape[0]} rows for {needed} or more sources",
            "Gather the rows of all the batch's nodes, padding included.",
        )
    if block.target_capacity == 0 or block.edge_capacity == 0 or x.shape[1] == 0:
        return jnp.zeros((block.target_capacity, x.shape[1]), x.dtype)
    in_kernel = kernels.available() and x.dtype == jnp.float32
    num_threads = kernels.NUM_THREADS if in_kernel else None
    edges = (block.indptr, block.indices, num_targets, num_edges)
    return _aggregate(reduce, num_threads, *_vary_alike(x, block.edge_weight, *edges))


def gather(features: jax.Array | SparseFeatures, ids: Any) -> jax.Array:
    """Dense feature rows of the nodes `ids`.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, or `SparseFeatures`. An argument of
        the jitted function, never a constant in it.
      ids: int32 (or int64) `[K]`. What lies outside `[0, N)` is padding.

    Returns:
      float32 `[K, F]`, with zero rows for padding. Differentiable in a dense `features` and
      in the `values` of sparse ones.

    Raises `InputError` for other types and ranks.
    """
    ids = _check_ids(ids, features.shape[0])
    if isinstance(features, SparseFeatures):
        in_kernel = kernels.available() and features.num_features > 0
        return _gather_sparse(features, ids, kernels.NUM_THREADS if in_kernel else None)
    if not isinstance(features, jax.Array):
        raise InputError(
            "features must be a JAX array or SparseFeatures",
            type(features).__name__,
            "Put them on the device once: jax.device_put(features, may_alias=True).",
        )
    _check_rows("features", features, real=True)
    return features.at[ids].get(**_FILL).astype(jnp.float32)


# An index outside the array reads zeros; negative ones too.
_FILL: dict[str, Any] = {"mode": "fill", "fill_value": 0, "wrap_negative_indices": False}


def _check_block(block: Block) -> None:
    fields: list[tuple[str, str, Any]] = [
        ("indptr", "[T + 1]", np.int32),
        ("indices", "[E]", np.int32),
        ("edge_weight", "[E], as long as indices", np.float32),
    ]
    for name, shape, dtype in fields:
        array = getattr(block, name)
        if name == "edge_weight" and array is None:
            continue
        is_array = isinstance(array, jax.Array | np.ndarray)
        good = is_array and array.ndim == 1 and array.dtype == dtype
        if name == "indptr":
            good = good and array.shape[0] > 0
        elif name == "edge_weight":
            good = good and array.shape == block.indices.shape
        if not good:
            raise InputError(
                f"block.{name} must be an array of {np.dtype(dtype)} {shape}",
                f"{array.dtype}{list(array.shape)}" if is_array else type(array).__name__,
                f"Make it as the docstring of jgs.Block says, in numpy.{np.dtype(dtype)}.",
            )


def _check_count(name: str, count: Any) -> jax.Array | np.ndarray:
    """`count` as an int32 scalar; what 32 bits do not hold stays out of range."""
    if not isinstance(count, jax.Array):
        count = np.asarray(count)
    if count.ndim != 0 or not jnp.issubdtype(count.dtype, jnp.integer):
        raise InputError(
            f"block.{name} must be an int32 scalar",
            f"{count.dtype}{list(count.shape)}",
            "Give the number as an integer, e.g. jax.numpy.int32(3).",
        )
    if count.dtype != np.int32:
        with jax.enable_x64(True):
            count = jnp.clip(count.astype(jnp.int64), -1, 2**31 - 1).astype(jnp.int32)
    return count


def _check_rows(name: str, x: Any, real: bool = False) -> None:
    shape, dtype = getattr(x, "shape", ()), getattr(x, "dtype", np.dtype(object))
    kind = jnp.floating if not real else jnp.number
    if len(shape) != 2 or not jnp.issubdtype(dtype, kind) or dtype.kind == "c":
        raise InputError(
            f"{name} must be a matrix of {'numbers' if real else 'floats'}, one row a node",
            f"{dtype}{list(shape)}",
            "Give it two dimensions and a float dtype.",
        )


def _check_ids(ids: Any, num_rows: int) -> jax.Array:
    """`ids` as int32; 64-bit ids beyond 32 bits become padding, not other nodes."""
    if not isinstance(ids, jax.Array):
        ids = np.asarray(ids)
    if ids.ndim != 1 or ids.dtype not in (np.int32, np.int64):
        raise InputError(
            "ids must be a one-dimensional array of int32",
            f"{ids.dtype}{list(ids.shape)}",
            "Convert it with .astype(numpy.int32).",
        )
    if ids.dtype == np.int64:
        with jax.enable_x64(True):
            return jnp.clip(ids, -1, num_rows).astype(jnp.int32)
    return jnp.asarray(ids)


# -- aggregate: a forward pass, and one backward pass for each thing that can be differentiated.
# Each is jitted, so that eager calls compile once too. `num_threads` None: no kernel.


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _aggregate(reduce, num_threads, x, weight, indptr, indices, num_targets, num_edges):
    return _forward(reduce, num_threads, x, weight, indptr, indices, num_targets, num_edges)[0]


def _aggregate_fwd(reduce, num_threads, x, weight, *edges):
    out, argmax = _forward(reduce, num_threads, x, weight, *edges)
    # Without weights the derivative needs no more of x than its shape and dtype.
    return out, (x if weight is not None else x[:, :0], argmax, weight, edges)


def _aggregate_bwd(reduce, num_threads, residuals, grad_out):
    x, argmax, weight, edges = residuals
    grad_x = _grad_x(reduce, num_threads, grad_out, argmax, x, weight, *edges)
    grad_weight = None
    if weight is not None:  # a pass of its own: XLA drops it where nobody asks for it
        grad_weight = _grad_weight(reduce, num_threads, grad_out, argmax, x, weight, *edges)
    return grad_x, grad_weight, None, None, None, None


_aggregate.defvjp(_aggregate_fwd, _aggregate_bwd)


@partial(jax.jit, static_argnums=(0, 1))
def _forward(reduce, num_threads, x, weight, *edges):
    """`(out, argmax)`: the reduction and, for `"max"`, which edge attained it (see the header
    `aggregate.h`); else `argmax` has no rows."""

    def kernel(x, weight, indptr, *rest):
        shape = (indptr.shape[0] - 1, x.shape[1])
        argmax_shape = shape if reduce == "max" else (0, shape[1])
        out = (_floats(shape), jax.ShapeDtypeStruct(argmax_shape, jnp.int32))
        arguments = (x, _or_empty(weight), indptr, *rest)
        return _call("jgs_aggregate", out, arguments, num_threads, reduce)

    return _either(num_threads, kernel, partial(_forward_plain, reduce), x, weight, *edges)


@partial(jax.jit, static_argnums=(0, 1))
def _grad_x(reduce, num_threads, grad_out, argmax, x, weight, *edges):
    def kernel(grad_out, argmax, x, weight, *edges):
        out = _floats((x.shape[0], grad_out.shape[1]))
        arguments = (grad_out, argmax, _or_empty(weight), *edges)
        return _call("jgs_aggregate_grad", out, arguments, num_threads, reduce)

    operands = (grad_out, argmax, x, weight, *edges)
    return _either(num_threads, kernel, partial(_grad_x_plain, reduce), *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _grad_weight(reduce, num_threads, grad_out, argmax, x, weight, *edges):
    def kernel(*arguments):
        out = _floats(weight.shape)
        return _call("jgs_aggregate_grad_weight", out, arguments, num_threads, reduce)

    operands = (grad_out, argmax, x, weight, *edges)
    return _either(num_threads, kernel, partial(_grad_weight_plain, reduce), *operands)


def _either(num_threads, kernel, plain, *operands):
    """`kernel(*operands)` on a CPU and `plain(*operands)` elsewhere, or where `num_threads` is
    None. Derivatives, in both modes, are those of `plain`: XLA cannot look into a kernel."""
    if num_threads is None:
        return plain(*operands)

    @jax.custom_jvp
    def run(*operands):
        return jax.lax.platform_dependent(*operands, cpu=kernel, default=plain)

    @run.defjvp
    def _(operands, tangents):
        return run(*operands), jax.jvp(plain, operands, tangents)[1]

    return run(*operands)


def _vary_alike(*operands):
    """`operands`, each varying over every axis of the mesh that one of them varies over, as
    `jax.shard_map` wants it of a kernel and of the branches of a choice."""

    def axes(array):
        kind = getattr(jax.typeof(array), "manual_axis_type", None)  # JAX may rename it
        return frozenset(getattr(kind, "varying", ()))

    every = frozenset().union(*map(axes, jax.tree.leaves(operands)))
    if not every:
        return operands
    return jax.tree.map(
        lambda a: jax.lax.pcast(a, tuple(sorted(every - axes(a))), to="varying"), operands
    )


def _floats(shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _or_empty(weight):
    return jnp.zeros(0, jnp.float32) if weight is None else weight


def _call(target, out, arguments, num_threads, reduce=None):
    call = jax.ffi.ffi_call(target, out, vmap_method="sequential")
    attributes = {"num_threads": np.int64(num_threads)}
    if reduce is not None:
        attributes["reduce"] = np.int64(REDUCTIONS.index(reduce))
    arguments = _vary_alike(*arguments)
    return _vary_alike(call(*arguments, **attributes), arguments[0])[0]


# -- the plain twins. Padded edges get row T and source S, one past the last: reads fill zeros
# and writes are dropped there.


def _edge_rows(num_sources, indptr, indices, num_targets, num_edges):
    """int32 `[E]` twice: each edge's target and source; and float32 `[T]`: the degrees."""
    num_rows, num_slots = indptr.shape[0] - 1, indices.shape[0]
    degree = jnp.diff(indptr)
    row = jnp.repeat(
        jnp.arange(num_rows, dtype=jnp.int32), degree, total_repeat_length=num_slots
    )
    # `repeat` gives what is left over to the last row.
    real = jnp.arange(num_slots) < jnp.minimum(num_edges, indptr[-1])
    real &= row < num_targets
    real &= (indices >= 0) & (indices < num_sources)
    row, source = jnp.where(real, row, num_rows), jnp.where(real, indices, num_sources)
    return row, source, jnp.maximum(degree, 1).astype(jnp.float32)


def _messages(x, weight, source):
    values = x.at[source].get(**_FILL)
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return values if weight is None else values * weight[:, None]


def _forward_plain(reduce, x, weight, indptr, indices, num_targets, num_edges):
    num_rows = indptr.shape[0] - 1
    row, source, degree = _edge_rows(x.shape[0], indptr, indices, num_targets, num_edges)
    values = _messages(x, weight, source)
    if reduce == "max":
        best = jax.ops.segment_max(jax.lax.stop_gradient(values), row, num_rows)
        best = best.at[row].get(**_FILL)
        attains = (values == best) | (jnp.isnan(values) & jnp.isnan(best))
        none = jnp.int32(jnp.iinfo(jnp.int32).max)
        edge = jnp.where(attains, jnp.arange(row.shape[0], dtype=jnp.int32)[:, None], none)
        argmax = jax.ops.segment_min(edge, row, num_rows)
        argmax = jnp.where(argmax == none, -1, argmax)
        # Read where it was attained, the derivative goes there too, and to no tie.
        out = values.at[argmax, jnp.arange(x.shape[1])].get(**_FILL)
        return out.astype(x.dtype), argmax
    out = jax.ops.segment_sum(values, row, num_rows)
    if reduce == "mean":
        out = out / degree[:, None]
    return out.astype(x.dtype), x[:0].astype(jnp.int32)


def _edge_grads(reduce, grad_out, argmax, row, degree):
    """`[E, F]`: what of `grad_out` reaches each edge's message."""
    grad_out = grad_out.astype(jnp.promote_types(grad_out.dtype, jnp.float32))
    if reduce == "mean":
        grad_out = grad_out / degree[:, None]
    grads = grad_out.at[row].get(**_FILL)
    if reduce == "max":
        edge = jnp.arange(row.shape[0], dtype=jnp.int32)[:, None]
        grads = jnp.where(argmax.at[row].get(**_FILL) == edge, grads, 0)
    return grads


def _grad_x_plain(reduce, grad_out, argmax, x, weight, *edges):
    row, source, degree = _edge_rows(x.shape[0], *edges)
    grads = _edge_grads(reduce, grad_out, argmax, row, degree)
    if weight is not None:
        grads = grads * weight[:, None]
    return jax.ops.segment_sum(grads, source, x.shape[0]).astype(x.dtype)


def _grad_weight_plain(reduce, grad_out, argmax, x, weight, *edges):
    row, source, degree = _edge_rows(x.shape[0], *edges)
    grads = _edge_grads(reduce, grad_out, argmax, row, degree)
    return jnp.sum(grads * _messages(x, None, source), axis=1).astype(weight.dtype)


# -- gather


@partial(jax.jit, static_argnums=2)
def _gather_sparse(features, ids, num_threads):
    def kernel(features, ids):
        out = _floats((ids.shape[0], features.num_features))
        arrays = (features.indptr, features.indices, features.values, ids)
        return _call("jgs_gather_sparse", out, arrays, num_threads)

    return _either(num_threads, kernel, _gather_sparse_plain, *_vary_alike(features, ids))


def _gather_sparse_plain(features, ids):
    num_rows, num_features = features.shape
    out = jnp.zeros((ids.shape[0], num_features), jnp.float32)
    if features.max_row == 0 or num_rows == 0:
        return out
    with jax.enable_x64(True):  # entries are counted in 64 bits
        real = (ids >= 0) & (ids < num_rows)
        safe = jnp.where(real, ids, 0)
        start = features.indptr[safe]
        stop = jnp.where(real, features.indptr[safe + 1], start)
        entry = start[:, None] + jnp.arange(features.max_row, dtype=jnp.int64)
        entry = jnp.where(entry < stop[:, None], entry, features.values.shape[0])
        column = features.indices.at[entry].get(mode="fill", fill_value=num_features)
        value = features.values.at[entry].get(mode="fill", fill_value=0)
        slot = jnp.arange(ids.shape[0], dtype=jnp.int32)[:, None]
        return out.at[slot, column].add(value, mode="drop")
