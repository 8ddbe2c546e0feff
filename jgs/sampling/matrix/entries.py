"""`Entries`: the fields of a `Matrix`, its edges once they are built, and their values; slices
of it, and their blocks; and the sizes that depend on the data, `Room` and `Needs`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block, Graph
from jgs.kernels.call import FILL
from jgs.sampling.edges.columns import compacted
from jgs.sampling.edges.eligible import is_excluded
from jgs.sampling.edges.slots import relabel_edges
from jgs.sampling.matrix.edge_arrays import (
    EdgeArrays,
    Step,
    clipped,
    compact,
    evaluate,
    expand,
    extract,
    keep,
    moved_operands,
    places,
    rearrange,
    sources,
)
from jgs.settings import exact_integers

T = TypeVar("T", bound="Entries")


class Room(NamedTuple):
    """Static sizes, given once for a program. None: an upper bound is used.

    Fields:
      looked: int, the largest number of edges in a slice.
      selected: int, the largest number of edges in a selection from a slice.
    """

    looked: int | None = None
    selected: int | None = None


class Needs(NamedTuple):
    """What a matrix needed of each size of its `Room`, int32 `[]`; and bool `[]`, whether
    something did not fit."""

    looked: jax.Array
    selected: jax.Array
    overflow: jax.Array


def more(
    needs: Needs | None, looked: Any = 0, selected: Any = 0, overflow: Any = False
) -> Needs:
    """`needs` (None: nothing), joined with these: the larger of each size, and whether
    something did not fit."""
    if needs is None:
        needs = Needs(jnp.int32(0), jnp.int32(0), jnp.zeros((), bool))
    sizes = jnp.maximum(needs.looked, looked), jnp.maximum(needs.selected, selected)
    return Needs(*sizes, needs.overflow | overflow)


@dataclass(frozen=True, eq=False)
class Entries:
    """The fields of a `Matrix`, which describes its arguments, and:

    Fields:
      columns, rows: int32 `[C]` and `[R]`, node ids; None: all nodes. If the edges are not
        built, `rows` are the rows whose edges are to be kept.
      edges: None if they are not built. Their row slots are node ids while `rows` is None.
      operands, steps: the edge maps that are not applied yet, see `Step`.
      needs: what was needed so far; None: nothing.
      edge_probs, row_probs: the probabilities of the last selection, or None.
      draws: the number of selections so far.
      repeats: the draws of a column with replacement; 0: a column has no edge twice.
      loose: whether the rows are to become the distinct nodes alone, once they are needed.
      valued: whether `with_values` was called.
      origin: `(k, replace, weighted)` if the kernel of `Neighbors` drew these edges; else None.
      relations: the number of relations if each column has the edges of one; else 0.
    """

    graph: Graph
    stored: jax.Array | None = None
    key: Any = None
    columns: jax.Array | None = None
    rows: jax.Array | None = None
    edges: EdgeArrays = None  # type: ignore[assignment]  # so that built matrices need no assert
    operands: tuple[Any, ...] = ()
    needs: Needs | None = None
    edge_probs: jax.Array | None = None
    row_probs: jax.Array | None = None
    excluded: jax.Array | None = None
    layer: int = field(default=0, metadata={"static": True})
    room: Room = field(default=Room(), metadata={"static": True})
    compact: bool = field(default=False, metadata={"static": True})
    store: bool = field(default=False, metadata={"static": True})
    steps: tuple[Step, ...] = field(default=(), metadata={"static": True})
    draws: int = field(default=0, metadata={"static": True})
    repeats: int = field(default=0, metadata={"static": True})
    loose: bool = field(default=False, metadata={"static": True})
    valued: bool = field(default=False, metadata={"static": True})
    origin: tuple | None = field(default=None, metadata={"static": True})
    relations: int = field(default=0, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """`(R, C)`: the numbers of row and column slots."""
        return self.row().shape[0], self.column().shape[0]

    @property
    def is_whole(self) -> bool:
        """Whether this is a whole graph whose edges are not built. Its values are then in the
        order of `graph.indices`."""
        return self.columns is None and self.rows is None and self.edges is None

    @property
    def num_edges(self) -> jax.Array:
        """int32: the number of edges."""
        return self.built().edges.indptr[-1]

    @property
    def overflow(self) -> jax.Array:
        """bool: whether something did not fit its room."""
        sliced = self.columns is not None or self.rows is not None
        needs = (self.built() if sliced else self).needs
        return jnp.zeros((), bool) if needs is None else needs.overflow

    @property
    def left_out(self) -> jax.Array | None:
        """int64 `[X]`: the edges that are not in this slice of columns. None: all are there. A
        matrix of all columns has all edges, so that `prepare` computes its sums once."""
        return None if self.columns is None else self.excluded

    def row(self) -> jax.Array:
        """int32 `[R]`: the node of each row slot, `N` in padding. A whole graph and a slice of
        its columns have all nodes for rows. A selection, and with `compact` a slice too, has
        the nodes that have an edge."""
        return node_ids(self.aligned().rows, self.graph)

    def column(self) -> jax.Array:
        """int32 `[C]`: the node of each column slot, as given."""
        return node_ids(self.columns, self.graph)

    # -- edges ---------------------------------------------------------------------------------

    def built(self) -> Self:
        """The same matrix with its edges built: arrays of `room.looked` entries or, where rows
        were chosen, of `room.selected`. Methods that need edges call this themselves."""
        if self.edges is not None:
            return self
        graph, num_nodes = self.graph, self.graph.num_nodes
        columns = node_ids(self.columns, graph)
        room = self.room.looked
        if room is None or self.columns is None:
            room = max(graph.num_edges, 1)
        with exact_integers():
            needs = self.needs
            if self.rows is None:
                indptr, column, at, needed = expand(graph.indptr, columns, room, self.left_out)
                real = column < columns.shape[0]
                node = sources(graph.indices, at, real, num_nodes)
                edges = EdgeArrays(indptr, column, node, jnp.where(real, at, graph.num_edges))
            else:
                fits = min(self.room.selected or room, room)
                arrays = (graph.indptr, graph.indices, columns, self.rows)
                edges, needed, selected = extract(*arrays, room, fits, self.left_out)
                needs = more(needs, selected=clipped(selected), overflow=selected > fits)
            bad = jnp.any((columns < 0) | (columns > num_nodes)) | (needed > room)
            looked = clipped(needed) if self.columns is not None else jnp.int32(0)
            needs = more(needs, looked=looked, overflow=bad)
            valued = replace(self, stored=self.all_values())
            return valued.with_edges(edges, edges.edge_id, needs)

    def aligned(self) -> Self:
        """The same matrix with its final row slots. If `loose`, they become the distinct nodes
        of its edges."""
        if not self.loose:
            return self
        built = self.built()
        edges = built.edges
        rows, row = compact(edges.row, edges.indptr[-1], self.graph.num_nodes)
        operands = moved_operands(built.steps, built.operands, "row", rows)
        new = replace(built, edges=edges._replace(row=row), rows=rows, operands=operands)
        return replace(new, loose=False)

    def ready(self) -> Self:
        """The matrix built, and with its rows aligned if an edge map has row vectors."""
        by_row = any(step.reads("row") for step in self.steps)
        return (self.aligned() if by_row else self).built()

    def slots(self, axis: int) -> tuple[Self, jax.Array, int]:
        """The matrix, built; each edge's slot along `axis`; and the number of slots."""
        if check_axis(axis):
            built = self.aligned().built()
            return built, built.edges.row, num_slots(built.rows, self.graph)
        built = self.ready()
        return built, built.edges.column, built.edges.indptr.shape[0] - 1

    def kept(
        self, each: EdgeArrays, which: jax.Array, row: jax.Array, padding: int
    ) -> tuple[Self, jax.Array]:
        """The edges of a built matrix that `each` names by `edge_id`, their positions, and for
        which `which` is True. `row` int32 `[E]` has the new row of each edge of this matrix,
        and padding gets the row `padding`. Returns also the position of each kept edge; traced
        under x64."""
        have, most = self.edges.row.shape[0], each.row.shape[0]
        room = max(min(most, self.room.selected or most), 1)
        moved, needed = keep(each, which, room, have)
        at, num_edges = moved.edge_id, self.graph.num_edges
        edges = moved._replace(
            row=row.at[at].get(mode="fill", fill_value=padding),
            edge_id=self.edges.edge_id.at[at].get(mode="fill", fill_value=num_edges),
        )
        needs = more(self.needs, selected=needed, overflow=needed > room)
        return self.with_edges(edges, at, needs), at

    def with_edges(self, edges: EdgeArrays, at: jax.Array, needs: Needs) -> Self:
        """A built matrix with other edges; edge `i` of them is edge `at[i]` of this one."""
        with exact_integers():  # else the positions would be cut to int32
            stored = self.stored
            if stored is not None and stored.shape[0] == 0:  # nothing can be read of it
                stored = jnp.zeros(at.shape + stored.shape[1:], stored.dtype)
            elif stored is not None:
                stored = stored.at[at].get(**FILL)
            probs = None
            if self.edge_probs is not None:
                probs = self.edge_probs.at[at].get(mode="fill", fill_value=1)
            operands = moved_operands(self.steps, self.operands, "edge", at)
        new = replace(self, edges=edges, stored=stored, operands=operands, edge_probs=probs)
        return replace(new, needs=needs, origin=None)

    # -- values --------------------------------------------------------------------------------

    def all_values(self) -> jax.Array | None:
        return self.graph.edge_weight if self.stored is None else self.stored

    @property
    def weighted(self) -> bool:
        """Whether the edges have values other than 1."""
        return (
            bool(self.steps)
            or self.stored is not None
            or (self.edges is None and self.graph.edge_weight is not None)
        )

    @property
    def has_own_values(self) -> bool:
        """Whether the values differ from the graph's."""
        return self.valued or bool(self.steps)

    @property
    def values(self) -> jax.Array:
        """float32 `[E]` or `[E, H]`: each edge's value in the order of the columns, 0 in
        padding."""
        built = self.ready()
        value = jnp.float32(1) if built.stored is None else built.stored
        value = evaluate(built.steps, built.operands, value, built.edges)
        real = built.edges.real.reshape(-1, *[1] * (value.ndim - 1))
        return jnp.where(built.overflow, jnp.nan, jnp.where(real, value, 0))

    def with_values(self, values: jax.Array) -> Self:
        """The same edges with new values, `[E]` or `[E, H]` in the order of the field
        `values`."""
        built = self if self.is_whole else self.built()
        room = max(self.graph.num_edges, 1) if self.is_whole else built.edges.row.shape[0]
        values = jnp.asarray(values, jnp.float32)
        form = "[E] or [E, H], one row for each edge"
        require_array("values", values, form, "Make them from the matrix's own values.", E=room)
        return replace(built, stored=values, steps=(), operands=(), valued=True)

    def applied(self) -> Self:
        """The same matrix; if it is a whole graph with `store`, its edge maps are applied. If
        the values `[E]` depend on the graph alone, `prepare` computes them once."""
        if not (self.store and self.is_whole and self.steps):
            return self
        alone = replace(self, needs=None)  # what an earlier selection needed is the batch's
        return self.with_values(alone.values)


def of_columns(matrix: T, columns: jax.Array) -> T:
    """`A[:, columns]` for int32 `[C]`."""
    if matrix.relations:
        raise InputError(
            "a matrix must be sliced before its columns are divided by relation",
            f"{matrix.relations} columns for each node",
            "Write A[:, columns].by_relation(), or join its columns first.",
        )
    matrix = matrix.applied()
    if matrix.columns is None and matrix.edges is None:
        operands = moved_operands(matrix.steps, matrix.operands, "column", columns)
        loose = matrix.compact and matrix.rows is None
        return replace(matrix, columns=columns, operands=operands, loose=loose)
    built = matrix.built()
    slot = places(built.column(), columns, matrix.graph.num_nodes)
    room = max(built.edges.row.shape[0], matrix.room.looked or 0)
    with exact_integers():
        indptr, column, at, needed = expand(built.edges.indptr, slot, room)
        real = column < columns.shape[0]
        none = columns.shape[0], num_slots(built.rows, matrix.graph), matrix.graph.num_edges
        edges = EdgeArrays(
            indptr,
            column,
            jnp.where(real, built.edges.row[at], none[1]),
            jnp.where(real, built.edges.edge_id[at], none[2]),
        )
        needs = more(built.needs, looked=clipped(needed), overflow=needed > room)
        if matrix.columns is None and matrix.excluded is not None:
            keep = edges.real & ~is_excluded(matrix.excluded, edges.edge_id)
            fields = list(zip((*edges[1:], at), (*none, 0), strict=True))
            indptr, (*moved, at), _ = compacted(edges.indptr, keep, fields)
            edges = EdgeArrays(indptr, *moved)
    new = built.with_edges(edges, at, needs)
    operands = moved_operands(new.steps, new.operands, "column", slot)
    return replace(new, columns=columns, operands=operands)


def of_rows(matrix: T, rows: jax.Array) -> T:
    """`A[rows, :]` for int32 `[R]`."""
    matrix = matrix.applied()
    if matrix.edges is None and matrix.rows is None:
        rows = jnp.where(rows < 0, matrix.graph.num_nodes, rows)
        operands = moved_operands(matrix.steps, matrix.operands, "row", rows)
        return replace(matrix, rows=rows, operands=operands, loose=False)
    built = matrix.aligned().built()
    num_nodes, old = matrix.graph.num_nodes, built.row()
    slot = places(old, rows, num_nodes)
    first = jnp.arange(rows.shape[0], dtype=jnp.int32)
    to_new = jnp.full(old.shape[0], rows.shape[0], jnp.int32)
    to_new = to_new.at[slot].min(first, mode="drop")
    return onto_rows(built, rows, to_new, slot)


def onto_rows(matrix: T, rows: jax.Array, to_new: jax.Array, slot: jax.Array) -> T:
    """A built matrix with the rows `rows`. `to_new` int32 `[R]` maps each old row slot to its
    new one, and `slot` each new slot to its old one."""
    old, padding = matrix.edges, rows.shape[0]
    row = to_new.at[old.row].get(mode="fill", fill_value=padding)
    with exact_integers():
        every = old._replace(edge_id=jnp.arange(row.shape[0]))
        new, _ = matrix.kept(every, row < padding, row, padding)
    operands = moved_operands(new.steps, new.operands, "row", slot)
    return replace(new, rows=rows, operands=operands, loose=False)


def to_block(
    matrix: Entries, targets: jax.Array, num_sources: int | None
) -> tuple[Block, jax.Array, jax.Array]:
    """The block of `targets` from the columns of a matrix.

    Args:
      targets: int32 `[T]`, nodes among the columns in any order, also repeated, `N` in padding.
      num_sources: `S`, the room for the sources. None: an upper bound of their number.

    Returns the block; int32 `[S]`, the nodes of its sources; and int64, the number of edges
    that it needs. If the sources do not fit, the block is empty and its `num_sources` is
    `S + 1`. It is also empty if its edges exceed the matrix's room for edges.
    """
    num_nodes = matrix.graph.num_nodes
    built = matrix.ready()
    edges, room = built.edges, built.edges.row.shape[0]
    weight = built.values if built.weighted else None
    node, edge_id, indptr, needed = edges.row, edges.edge_id, edges.indptr, edges.indptr[-1]
    if targets is not built.columns:
        slot = places(built.column(), targets, num_nodes)
        with exact_integers():
            indptr, at, node, edge_id, needed = rearrange(
                edges, built.rows, slot, num_nodes, matrix.graph.num_edges
            )
            real = jnp.arange(room) < indptr[-1]
            weight = None if weight is None else jnp.where(real, weight[at], 0)
    elif built.rows is not None:
        node = built.rows.at[node].get(mode="fill", fill_value=num_nodes)
    place = jnp.arange(targets.shape[0], dtype=jnp.int32)
    num_targets = jnp.max(place + 1, initial=0, where=targets < num_nodes)
    if num_sources is None:
        num_sources = targets.shape[0] + room
    num_edges, rooms = indptr[-1], (num_sources, num_nodes)
    nodes, count, indices = relabel_edges(targets, num_targets, node, num_edges, *rooms)
    block = Block(
        indptr=indptr,
        indices=indices,
        num_targets=num_targets,
        num_sources=count,
        num_edges=num_edges,
        edge_id=edge_id,
        edge_weight=weight,
        source_capacity=num_sources,
    )
    return block, nodes, needed


def node_ids(ids: jax.Array | None, graph: Graph) -> jax.Array:
    """int32: the nodes of slots, which are all nodes if `ids` is None."""
    return jnp.arange(graph.num_nodes, dtype=jnp.int32) if ids is None else ids


def num_slots(ids: jax.Array | None, graph: Graph) -> int:
    """The number of slots along an axis with these node ids."""
    return graph.num_nodes if ids is None else ids.shape[0]


def check_axis(axis: Any) -> int:
    """`axis` as an int, 0 or 1; raises `InputError`."""
    if axis not in (0, 1):
        raise InputError("the axis must be 0 (columns) or 1 (rows)", repr(axis), "Give 0 or 1.")
    return int(axis)
