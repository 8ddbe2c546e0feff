"""Edge maps and a reduction in one pass over a slice of a graph, which is never built.

The C++ kernel is jgs/kernels/edge_sums.cc. It takes the chains of edge maps that XLA compiles
for a CPU exactly as they are written. XLA rewrites the others (`a / b / c` becomes
`a / (b * c)`, and a product and a sum become one fused multiply-add), so these are left to XLA.
"""

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
from jgs.sampling.matrix.chain import Step
from jgs.sampling.matrix.entries import Entries, check_axis
from jgs.settings import exact_integers

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
