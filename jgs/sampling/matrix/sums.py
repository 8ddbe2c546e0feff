"""Sums and counts of the edges of each slot. No sum depends on an order, so draws that use them
are the same everywhere.

A kernel, jgs/kernels/edge_sums.cc, makes a chain of edge maps and their sum in one pass over a
slice that is never built. It takes the chains that XLA compiles for a CPU exactly as they are
written. XLA rewrites the others (`a / b / c` becomes `a / (b * c)`, and a product and a sum
become one fused multiply-add), so these are left to XLA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, or_empty, where_it_is
from jgs.sampling.edges.eligible import Eligible, holes_of, rows_of
from jgs.sampling.edges.hops import longs_or_empty
from jgs.sampling.matrix.edge_arrays import Step
from jgs.sampling.matrix.entries import Entries, check_axis
from jgs.settings import exact_integers

_BITS = 30  # bits of a slot's largest value: 2**31 such values still fit in 64 bits


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def exact_sum(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    """float32 `[num_slots, ...]`: the sum of the `values` float32 `[E, ...]` of each slot.
    `slot` int32 `[E]` has the slot of each value; values whose slot is `num_slots` are left
    out.

    Each value is rounded to a multiple of `2**-30` of the power of two above its slot's
    largest. The multiples are added as 64-bit integers, so any order, device and number of
    threads gives the same bits. NaN and infinity make their slot NaN. Differentiable in both
    modes.
    """
    values = values.astype(jnp.float32)
    kernel, plain = (partial(f, num_slots=num_slots) for f in (_exact_kernel, _exact_plain))
    return where_it_is(kernel, plain, values, slot)


def _exact_kernel(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    out = [floats((num_slots, *values.shape[1:]))]
    return call("jgs_exact_sum", out, (values, slot), kernels.NUM_THREADS)[0]


def _exact_plain(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    shape = (num_slots, *values.shape[1:])
    with exact_integers():
        largest = jnp.zeros(shape, jnp.float32).at[slot].max(jnp.abs(values), mode="drop")
        good = jnp.isfinite(largest)
        shift = _BITS - exponent(jnp.where(good, largest, 0))
        fill: dict[str, Any] = {"mode": "fill", "fill_value": 0}
        whole = to_fixed(jnp.where(jnp.isfinite(values), values, 0), shift.at[slot].get(**fill))
        total = jnp.zeros(shape, jnp.int64).at[slot].add(whole, mode="drop")
        result = (total.astype(jnp.float64) * power_of_two(-shift)).astype(jnp.float32)
        return jnp.where(good, result, jnp.nan)


@exact_sum.defjvp
def _(num_slots: int, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    values, slot = primals
    tangent = jnp.zeros((num_slots, *values.shape[1:]), tangents[0].dtype)
    tangent = tangent.at[slot].add(tangents[0], mode="drop")
    return exact_sum(values, slot, num_slots), tangent.astype(jnp.float32)


def exponent(value: jax.Array) -> jax.Array:
    """int32: the least `e` with `value < 2**e`, for finite float32 that are not negative. It is
    -126 for 0 and for subnormal numbers, which a device may treat as 0."""
    bits = jax.lax.bitcast_convert_type(value, jnp.int32)
    return (bits >> 23) - 126


def power_of_two(e: jax.Array) -> jax.Array:
    """float64: `2**e`, for int32 between -1022 and 1023."""
    return jax.lax.bitcast_convert_type((e.astype(jnp.int64) + 1023) << 52, jnp.float64)


def to_fixed(value: jax.Array, shift: jax.Array) -> jax.Array:
    """int64: `value * 2**shift` for float32, rounded to the nearest (even) integer."""
    return jnp.round(value.astype(jnp.float64) * power_of_two(shift)).astype(jnp.int64)


T = TypeVar("T", bound=Entries)

_OPERATIONS = ("add", "sub", "mul", "div", "square")  # the order is that of edge_sums.h
_KINDS = ("number", "row", "column")
_SUMS = ("add", "sub")


def chain_sum(matrix: T, axis: int, plain: Callable[[T, int], jax.Array]) -> jax.Array:
    """`plain(matrix, axis)`, the sums of the matrix's values along `axis`, computed by the
    kernel if it takes this matrix."""
    if not (kernels.available() and _is_slice(matrix) and _has_kernel(matrix)):
        return plain(matrix, axis)
    return kernel_or_plain(
        kernels.NUM_THREADS,
        partial(_sum, axis=axis),
        lambda matrix: plain(matrix, axis),
        _values_only(matrix),
    )


def count(matrix: Entries, axis: int) -> jax.Array:
    """See `Matrix.count`."""
    graph, columns = matrix.graph, matrix.columns
    if check_axis(axis):
        if not _is_slice(matrix):
            return _count_plain(matrix, 1)
        alone = replace(_values_only(matrix), steps=(), operands=())
        return where_it_is(_count, partial(_count_plain, axis=1), alone)
    if matrix.edges is None and matrix.rows is None:  # nothing to build
        degrees = graph.degrees()
        if columns is None:
            return degrees
        number = degrees.at[columns].get(**FILL)
        if matrix.left_out is None:
            return number
        with exact_integers():
            start, length = rows_of(graph.indptr, columns)
            rows = Eligible(columns, start, start, length, length)
            return number - (length - holes_of(rows, matrix.left_out).num).astype(jnp.int32)
    return _count_plain(matrix, 0)


def _count_plain(matrix: Entries, axis: int) -> jax.Array:
    _, slot, slots = matrix.slots(axis)
    return jnp.zeros(slots, jnp.int32).at[slot].add(1, mode="drop")


def _values_only(matrix: T) -> T:
    """The same matrix without the fields that no sum needs."""
    unread: dict[str, Any] = {"key": None, "edge_probs": None, "row_probs": None}
    return replace(matrix, excluded=matrix.left_out, **unread)


def _is_slice(matrix: Entries) -> bool:
    """Whether the matrix is a slice of columns that is not built and has all nodes for rows."""
    return matrix.edges is None and matrix.rows is None and not matrix.loose


def _room(matrix: Entries) -> int:
    room = matrix.room.looked
    return matrix.graph.num_edges if room is None or matrix.columns is None else room


def _has_kernel(matrix: Entries) -> bool:
    """Whether XLA compiles the chain of the matrix's values as it is written."""
    stored = matrix.all_values()
    if stored is not None and (stored.ndim != 1 or stored.dtype != jnp.float32):
        return False
    last = ""
    for i, step in enumerate(matrix.steps, 1):
        name = _name(step)
        if name not in _OPERATIONS or step.kind not in _KINDS:
            return False
        if step.kind == "number" and name != "square":
            reciprocal = name == "div" and not step.reflected
            if i < len(matrix.steps) or reciprocal:  # XLA merges the numbers of several steps
                return False
        if name in _SUMS and last in ("mul", "square"):
            return False
        if name in ("mul", "div") and last == "div":
            return False
        last = name
    f32 = jnp.float32
    return all(a.ndim == 1 and jnp.promote_types(f32, a.dtype) == f32 for a in matrix.operands)


def _name(step: Step) -> str:
    if step.operation != "pow":
        return step.operation
    squared = step.kind == "number" and step.number == 2 and not step.reflected
    return "square" if squared else "pow"


def _sum(matrix: Entries, axis: int) -> jax.Array:
    graph, steps = matrix.graph, matrix.steps
    columns = matrix.column()
    codes = [
        (_OPERATIONS.index(_name(s)), _KINDS.index(s.kind), int(s.reflected)) for s in steps
    ]
    attributes: dict[str, Any] = {
        "steps": np.array(codes, np.int64).reshape(-1),
        "numbers": np.array([step.number for step in steps], np.float32),
        "room": np.int64(_room(matrix)),
        "axis": np.int64(axis),
    }
    weight = or_empty(matrix.all_values() if graph.num_edges else None)
    vectors = (operand.astype(jnp.float32) for operand in matrix.operands)
    slots = graph.num_nodes if axis else columns.shape[0]
    with exact_integers():
        excluded = longs_or_empty(matrix.left_out)
        arrays = (graph.indptr, graph.indices, columns, excluded, weight, *vectors)
        out = [floats((slots,)), jax.ShapeDtypeStruct((), jnp.int64)]
        result, needed = call("jgs_sum_chain", out, arrays, kernels.NUM_THREADS, **attributes)
        bad = jnp.any((columns < 0) | (columns > graph.num_nodes))
        over = bad | (needed > _room(matrix))
    if matrix.needs is not None:
        over = over | matrix.needs.overflow
    return jnp.where(over, jnp.nan, result)


def _count(matrix: Entries) -> jax.Array:
    graph = matrix.graph
    out = [jax.ShapeDtypeStruct((graph.num_nodes,), jnp.int32)]
    with exact_integers():
        excluded = longs_or_empty(matrix.left_out)
    arrays = (graph.indptr, graph.indices, matrix.column(), excluded)
    room = np.int64(_room(matrix))
    return call("jgs_count_rows", out, arrays, kernels.NUM_THREADS, room=room)[0]
