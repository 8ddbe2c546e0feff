"""`EdgeArrays`: the edges of some columns as arrays; how they are built and filtered, and maps
of their values. The kernels are jgs/kernels/extract.cc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.kernels.call import FILL, call, handler, vary_alike, where_it_is
from jgs.sampling.edges.columns import compacted
from jgs.sampling.edges.eligible import Eligible, holes_of, rows_of
from jgs.sampling.edges.hops import longs_or_empty
from jgs.sampling.edges.slots import relabel_edges
from jgs.settings import exact_integers

_ints = partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
_longs = partial(jax.ShapeDtypeStruct, dtype=jnp.int64)
_UNROLLED = 32  # products of two rows that share partial sums


class EdgeArrays(NamedTuple):
    """Edges column by column: `C` column slots, `R` row slots, room for `E` edges.

    Fields:
      indptr: int32 `[C+1]`; column slot `c` has the edges `indptr[c]:indptr[c+1]`.
      column: int32 `[E]`; each edge's column slot, `C` in padding.
      row: int32 `[E]`; each edge's row slot, `R` in padding.
      edge_id: int64 `[E]`; each edge's position in `Graph.indices`; in padding the graph's
        number of edges.
    """

    indptr: jax.Array
    column: jax.Array
    row: jax.Array
    edge_id: jax.Array

    @property
    def real(self) -> jax.Array:
        """bool `[E]`: True for edges, False for padding."""
        return jnp.arange(self.row.shape[0]) < self.indptr[-1]


def expand(
    indptr: jax.Array, columns: jax.Array, room: int, excluded: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The edges of some of the compressed columns `indptr` `[M+1]`, but the `excluded` of
    `Seeds`; traced under x64. A number in `columns` int32 `[C]` that is not in `[0, M)` has no
    edges.

    Returns int32 `[C+1]`, the offsets of each column's edges; int32 `[room]`, the index in
    `columns` of each edge's column, `C` in padding; int64 `[room]`, each edge's position in the
    compressed columns; and int64, the number of edges. If it exceeds `room`, the rest is empty.
    """

    out = [_ints((columns.shape[0] + 1,)), _ints((room,)), _longs((room,)), _longs(())]
    kernel, plain = _kernel("jgs_expand", out), partial(_expand, room=room)
    return where_it_is(kernel, plain, indptr, columns, longs_or_empty(excluded))


def _kernel(target: str, out: list[Any], **attributes: Any) -> Callable[..., tuple]:
    def run(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(call(target, out, operands, kernels.NUM_THREADS, **attributes))

    return run


def _expand(
    indptr: jax.Array, columns: jax.Array, excluded: jax.Array, room: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    num_columns = columns.shape[0]
    start, degree = (a.astype(jnp.int64) for a in rows_of(indptr, columns))
    rows = holes_of(Eligible(columns, start, start, degree, degree), excluded)
    needed = jnp.sum(rows.num)
    degree = jnp.where(needed <= room, rows.num, 0)
    ends = jnp.cumsum(degree)
    slot = jnp.arange(room, dtype=jnp.int64)
    column = jnp.repeat(
        jnp.arange(num_columns, dtype=jnp.int32), degree, total_repeat_length=room
    )
    here = slot < jnp.max(ends, initial=0)
    at = jnp.where(here, rows.edge(slot - (ends - degree)[column], column), 0)
    offsets = jnp.concatenate([jnp.zeros(1, jnp.int64), ends]).astype(jnp.int32)
    return offsets, jnp.where(here, column, num_columns), at, needed


def extract(
    indptr: jax.Array,
    indices: jax.Array,
    columns: jax.Array,
    rows: jax.Array,
    looked: int,
    room: int,
    excluded: jax.Array | None = None,
) -> tuple[EdgeArrays, jax.Array, jax.Array]:
    """The edges of a graph from `rows` int32 `[R]` into `columns`; traced under x64. Of equal
    rows the first has the edges. `columns` and `excluded` are as in `expand`. So many edges
    into `columns` fit as `looked` says, and so many of these from `rows` as `room` says.

    Returns the edges, and both numbers of edges, int64. If one does not fit, there are no
    edges; if the first does not, the second is 0.
    """

    def plain(indptr, indices, columns, excluded, rows):
        num_nodes, slots = indptr.shape[-1] - 1, rows.shape[0]
        offsets, column, at, all_of_them = _expand(indptr, columns, excluded, looked)
        node = sources(indices, at, column < columns.shape[0], num_nodes)
        to_slot = jnp.full(num_nodes, slots, jnp.int32)
        to_slot = to_slot.at[rows].min(jnp.arange(slots, dtype=jnp.int32), mode="drop")
        row = to_slot.at[node].get(mode="fill", fill_value=slots)
        every = EdgeArrays(offsets, column, row, at)
        edges, needed = keep(every, row < slots, room, indices.shape[0])
        edges = edges._replace(row=jnp.where(edges.real, edges.row, slots))
        return *edges, all_of_them, needed.astype(jnp.int64)

    shapes = (columns.shape[0] + 1,), (room,), (room,)
    out = [*map(_ints, shapes), _longs((room,)), _longs(()), _longs(())]
    kernel = _kernel("jgs_extract", out, looked_room=np.int64(looked))
    given = indptr, indices, columns, longs_or_empty(excluded), rows
    *found, all_of_them, needed = where_it_is(kernel, plain, *given)
    return EdgeArrays(*found), all_of_them, needed


def sources(indices: jax.Array, at: jax.Array, real: jax.Array, num_nodes: int) -> jax.Array:
    """int32, the shape of `at`: the sources of the edges `at`, `num_nodes` where not `real`."""
    if indices.shape[0] == 0:  # an empty array cannot be indexed
        return jnp.full(at.shape, num_nodes, jnp.int32)
    return jnp.where(real, indices.at[at].get(mode="clip"), num_nodes)


def rearrange(
    edges: EdgeArrays, rows: jax.Array | None, slots: jax.Array, num_nodes: int, num_edges: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """The edges of column `slots` int32 `[T]`, one slot after the other; traced under x64. Any
    number not in `[0, C)` is padding. `rows` int32 `[R]` are the nodes of the row slots; None:
    row slots are node ids.

    Returns int32 `[T+1]`, the offsets of each slot's edges; int32 `[E]`, the index of each edge
    in `edges`, 0 in padding; int32 `[E]`, the node of each edge's row, `num_nodes` in padding;
    int64 `[E]`, each edge's `edge_id`, `num_edges` in padding; and int64, the number of edges.
    If it exceeds `E`, the rest is empty.
    """
    mapped, room = rows is not None, edges.row.shape[0]

    def plain(indptr, row, edge_id, rows, slots):
        offsets, _, at, needed = _expand(indptr, slots, longs_or_empty(None), room)
        real = jnp.arange(room) < offsets[-1]
        node = rows.at[row].get(mode="fill", fill_value=num_nodes) if mapped else row
        node = jnp.where(real, node[at], num_nodes)
        edge_id = jnp.where(real, edge_id[at], num_edges)
        return offsets, at.astype(jnp.int32), node, edge_id, needed

    rows = jnp.zeros(0, jnp.int32) if rows is None else rows
    shapes = (slots.shape[0] + 1,), (room,), (room,)
    sizes = {"num_nodes": np.int64(num_nodes), "num_edges": np.int64(num_edges)}
    out = [*map(_ints, shapes), _longs((room,)), _longs(())]
    kernel = _kernel("jgs_rearrange", out, mapped=np.bool_(mapped), **sizes)
    return where_it_is(kernel, plain, edges.indptr, edges.row, edges.edge_id, rows, slots)


def keep(
    edges: EdgeArrays, which: jax.Array, room: int, num_edges: int
) -> tuple[EdgeArrays, jax.Array]:
    """The edges where `which` bool `[E]` is True, moved together into `room`, and their number,
    int32. If it exceeds `room`, there are none. `row` is 0 in padding."""
    num_columns = edges.indptr.shape[0] - 1
    fields = [(edges.column, num_columns), (edges.row, 0), (edges.edge_id, num_edges)]
    indptr, moved, needed = compacted(edges.indptr, which & edges.real, fields, room)
    return EdgeArrays(indptr, *moved), needed


def compact(nodes: jax.Array, count: jax.Array, num_nodes: int) -> tuple[jax.Array, jax.Array]:
    """The distinct nodes among the first `count` of `nodes` `[E]`, int32 `[R]` padded with
    `num_nodes`; and the index of each of the `nodes` among them, int32 `[E]`, `R` in padding.
    `R` is the smaller of `E` and `num_nodes`."""
    room = min(nodes.shape[0], num_nodes)
    none, zero = jnp.zeros(0, jnp.int32), jnp.int32(0)
    ids, _, place = relabel_edges(none, zero, nodes, count, room, num_nodes)
    return ids, place


@jax.custom_jvp
def inner(left: jax.Array, right: jax.Array, edges: EdgeArrays) -> jax.Array:
    """float32 `[E, H]`: for each edge the inner products of its rows in `left` `[R, H, D]` and
    `right` `[C, H, D]`, 0 in padding.

    Products of two floats are exact in 64 bits. They are added there, 32 at a time by 8 partial
    sums, so the kernel and every device give the same bits.
    """
    if 0 in (left.shape[0], right.shape[0]):
        return jnp.zeros((*edges.row.shape, left.shape[1]), jnp.float32)
    given = *(a.astype(jnp.float32) for a in (left, right)), edges.row, edges.column
    return where_it_is(_inner_kernel, _inner, *given, edges.indptr[-1])


def _inner_kernel(left: jax.Array, right: jax.Array, row: jax.Array, *rest: jax.Array) -> Any:
    out = [jax.ShapeDtypeStruct((*row.shape, left.shape[1]), jnp.float32)]
    return call("jgs_edge_inner", out, (left, right, row, *rest), kernels.NUM_THREADS)[0]


def _inner(
    left: jax.Array, right: jax.Array, row: jax.Array, column: jax.Array, num_edges: jax.Array
) -> jax.Array:
    def group(total: jax.Array, first: jax.Array | int, number: int) -> jax.Array:
        parts = [jnp.zeros_like(total)] * 8
        for i in range(number):
            one, other = (
                dense.at[slot, :, first + i].get(mode="clip").astype(jnp.float64)
                for dense, slot in ((left, row), (right, column))
            )
            parts[i % 8] = parts[i % 8] + one * other
        a, b, c, d = (parts[i] + parts[i + 4] for i in range(4))
        return total + ((a + c) + (b + d))

    with exact_integers():
        total, *_ = vary_alike(
            jnp.zeros((*row.shape, left.shape[1]), jnp.float64), left, right, row
        )
        rest = left.shape[2] % _UNROLLED
        steps = jnp.arange(0, left.shape[2] - rest, _UNROLLED)
        # XLA makes one loop of a step, without arrays `[E, D]`.
        total, _ = jax.lax.scan(
            lambda part, first: (group(part, first, _UNROLLED), None), total, steps
        )
        total = group(total, left.shape[2] - rest, rest) if rest else total
        real = jnp.arange(row.shape[0]) < num_edges
        return jnp.where(real[:, None], total.astype(jnp.float32), 0)


@inner.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    left, right, edges = primals

    def each(dense: jax.Array, slot: jax.Array) -> jax.Array:
        return dense.at[slot].get(mode="fill", fill_value=0)

    one = each(tangents[0], edges.row) * each(right, edges.column)
    other = each(left, edges.row) * each(tangents[1], edges.column)
    return inner(*primals), jnp.sum(one + other, axis=-1)


def dot_of(factors: Factors, edges: EdgeArrays) -> jax.Array:
    """float32 `[E]`, or `[E, H]` for vectors of `H` heads: each edge's inner products."""
    if factors.row.ndim > 2:
        return inner(*factors, edges)
    return inner(*(a[:, None] for a in factors), edges)[:, 0]


def places(nodes: jax.Array, ids: jax.Array, num_nodes: int) -> jax.Array:
    """int32, the shape of `ids`: the first index in `nodes` `[R]` of each id; `R` if `nodes`
    does not have it, or if it is not a node."""

    def plain(nodes: jax.Array, ids: jax.Array) -> jax.Array:
        order = jnp.argsort(nodes, stable=True).astype(jnp.int32)
        ordered, last = nodes[order], max(nodes.shape[0] - 1, 0)
        at = jnp.clip(jnp.searchsorted(ordered, ids), 0, last)
        found = (ordered.at[at].get(mode="fill", fill_value=-1) == ids) & (ids < num_nodes)
        return jnp.where(found & (ids >= 0), order.at[at].get(mode="clip"), nodes.shape[0])

    kernel = _kernel("jgs_places", [_ints(ids.shape)], num_nodes=np.int64(num_nodes))
    return where_it_is(lambda *operands: kernel(*operands)[0], plain, nodes, ids)


def distinct(nodes: jax.Array, room: int, padding: int) -> jax.Array:
    """int32 `[room]`: the smallest distinct numbers of `nodes` int32 `[n]`, ascending, followed
    by `padding`, which must not be below any of them."""

    def kernel(nodes: jax.Array) -> jax.Array:
        run = handler("jgs_distinct_nodes", _ints((room,)), vmap_method="sequential")
        return run(nodes, padding=np.int64(padding))

    def plain(nodes: jax.Array) -> jax.Array:
        # Not jnp.unique with a size: JAX 0.12 lowers it without x64, even if called under x64.
        ordered = jnp.sort(nodes)
        new = jnp.ones(nodes.shape, bool).at[1:].set(ordered[1:] != ordered[:-1])
        place = jnp.where(new, jnp.cumsum(new, dtype=jnp.int32) - 1, room)
        empty, ordered = vary_alike(jnp.full(room, padding, jnp.int32), ordered)
        return empty.at[place].set(ordered, mode="drop")

    return where_it_is(kernel, plain, nodes)


def clipped(needed: jax.Array) -> jax.Array:
    """int32: a number of edges, limited to 2**31 - 1."""
    return jnp.minimum(needed, jnp.iinfo(jnp.int32).max).astype(jnp.int32)


OPERATIONS: dict[str, Callable[[Any, Any], jax.Array]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
}


class Factors(NamedTuple):
    """The operand of a product, see `Matrix.dot`: a vector for each slot, or `H` of them, float
    `[R, D]` and `[C, D]`, or `[R, H, D]` and `[C, H, D]`."""

    row: jax.Array
    column: jax.Array


class Step(NamedTuple):
    """One edge map: an operation on each edge's value and another operand, which comes first if
    it is `reflected`. Static.

    The `operation` is a name in `OPERATIONS`. The `kind` of the other operand is `"number"`,
    `"scalar"` (an array without axes), `"row"` or `"column"` (a vector with an entry for each
    slot), `"dot"` (`Factors`), or `"edge"` (a value for each edge).
    """

    operation: str
    kind: str
    number: float = 0.0
    reflected: bool = False

    def reads(self, kind: str) -> bool:
        """Whether the operand has an entry for each slot of `kind`, or for each edge."""
        return self.kind == kind or (self.kind == "dot" and kind in Factors._fields)


def evaluate(
    steps: Sequence[Step], operands: Sequence[Any], value: Any, edges: EdgeArrays
) -> jax.Array:
    """float32 `[E, ...]`: the values after all steps, undefined in padding. They begin as
    `value`, `[E, ...]` or 1. `operands` has an array for each step whose kind is not
    `"number"`."""
    rest, real = iter(operands), edges.real

    def safe(array: Any) -> Any:  # 1 in padding, where else 0 / 0 has a derivative of NaN
        several = jnp.ndim(array) > 0
        return _where_real(real, array, 1) if several else array

    for step in steps:
        value = safe(value)
        other: Any = step.number
        if step.kind != "number":
            other = safe(_each(step.kind, next(rest), edges))
            most = max(jnp.ndim(other), jnp.ndim(value))  # so that [E] broadcasts with [E, H]
            other, value = (
                jnp.expand_dims(a, tuple(range(jnp.ndim(a), most))) for a in (other, value)
            )
        both = (other, value) if step.reflected else (value, other)
        value = OPERATIONS[step.operation](*both)
    return jnp.broadcast_to(value, (*edges.row.shape, *jnp.shape(value)[1:]))


def _where_real(real: jax.Array, array: jax.Array, padding: Any) -> jax.Array:
    return jnp.where(real.reshape(-1, *[1] * (array.ndim - 1)), array, padding)


def _each(kind: str, operand: Any, edges: EdgeArrays) -> jax.Array:
    if kind == "dot":
        return dot_of(operand, edges)
    slot = {"row": edges.row, "column": edges.column}.get(kind)
    return operand if slot is None else operand.at[slot].get(**FILL)


def moved_operands(
    steps: Sequence[Step], operands: Sequence[Any], kind: str, at: jax.Array
) -> tuple[Any, ...]:
    """The operands after a choice of slots (or edges) of `kind`: entry `i` of a new operand is
    entry `at[i]` of the old one, or 0 if `at[i]` is out of range."""

    def move(step: Step, operand: Any) -> Any:
        if not step.reads(kind):
            return operand
        if step.kind == "dot":
            return operand._replace(**{kind: getattr(operand, kind).at[at].get(**FILL)})
        return operand.at[at].get(**FILL)

    others = [step for step in steps if step.kind != "number"]
    return tuple(map(move, others, operands))
