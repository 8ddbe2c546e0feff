"""`Entries`: the fields of a `Matrix`, its edges once they are built, and their values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import FILL
from jgs.sampling.matrix import chain
from jgs.sampling.matrix.chain import Step
from jgs.sampling.matrix.edges import Edges, clipped, compact, expand, extract, keep
from jgs.sampling.matrix.needs import Needs, Room, more


@dataclass(frozen=True, eq=False)
class Entries:
    """What a `Matrix` holds; its docstring says what the first fields are.

    Further fields:
      columns, rows: int32 `[C]`, `[R]` node ids; None: all nodes. Of edges that are not built
        `rows` says which to keep.
      edges: None where they are not built. Their row slots are node ids while `rows` is None.
      operands, steps: the edge maps that wait, see `chain`.
      needs: None: nothing so far.
      edge_probs, row_probs: of the last selection, or None.
      draws: how many selections there were.
      repeats: how often a column may have drawn with replacement; 0: it has no edge twice.
      loose: whether the rows are to become the distinct nodes alone, once somebody asks.
      valued: whether `with_values` was called.
      origin: `(k, replace, weighted)` of edges that the kernel of `Neighbors` has drawn from
        the graph's columns, and that are as they were drawn.
    """

    graph: Graph
    stored: jax.Array | None = None
    key: Any = None
    columns: jax.Array | None = None  # node ids int32 [C]; None: all
    rows: jax.Array | None = None  # node ids int32 [R]; None: all
    edges: Edges | None = None  # None: not built
    operands: tuple[jax.Array, ...] = ()
    needs: Needs | None = None
    edge_probs: jax.Array | None = None
    row_probs: jax.Array | None = None
    layer: int = field(default=0, metadata={"static": True})
    room: Room = field(default=Room(), metadata={"static": True})
    compact: bool = field(default=False, metadata={"static": True})
    steps: tuple[Step, ...] = field(default=(), metadata={"static": True})
    draws: int = field(default=0, metadata={"static": True})
    repeats: int = field(default=0, metadata={"static": True})
    loose: bool = field(default=False, metadata={"static": True})  # rows to be made compact
    valued: bool = field(default=False, metadata={"static": True})  # by `with_values`
    origin: tuple | None = field(default=None, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """`(R, C)`: row and column slots."""
        return self.row().shape[0], self.column().shape[0]

    @property
    def num_edges(self) -> jax.Array:
        """int32: how many edges there are."""
        return self.built().edges.indptr[-1]  # type: ignore[union-attr]

    @property
    def overflow(self) -> jax.Array:
        """bool: whether something did not fit the room."""
        sliced = self.columns is not None or self.rows is not None
        needs = (self.built() if sliced else self).needs
        return jnp.zeros((), bool) if needs is None else needs.overflow

    def row(self) -> jax.Array:
        """int32 `[R]`: the node of each row slot, `N` in padding. Of a whole graph, and of a
        slice of its columns, all nodes; of what was selected, and with `compact` of a slice
        too, those that have an edge."""
        return node_ids(self.aligned().rows, self.graph)

    def column(self) -> jax.Array:
        """int32 `[C]`: the node of each column slot, as it was given."""
        return node_ids(self.columns, self.graph)

    # -- edges ---------------------------------------------------------------------------------

    def built(self) -> Self:
        """The same matrix with its edges built: arrays of `room.looked` or, where rows were
        chosen, `room.selected` entries. What needs edges does so by itself."""
        if self.edges is not None:
            return self
        graph, num_nodes = self.graph, self.graph.num_nodes
        columns = node_ids(self.columns, graph)
        room = self.room.looked
        if room is None or self.columns is None:
            room = max(graph.num_edges, 1)
        with jax.enable_x64(True):
            if self.rows is None:
                edges, needed = self._all_edges(columns, room)
                needs = self.needs
            else:
                fits = min(self.room.selected or room, room)
                arrays = (graph.indptr, graph.indices, columns, self.rows)
                edges, needed, selected = extract(*arrays, room, fits)
                over = selected > fits
                needs = more(self.needs, selected=clipped(selected), overflow=over)
            bad = jnp.any((columns < 0) | (columns > num_nodes)) | (needed > room)
            looked = clipped(needed) if self.columns is not None else jnp.int32(0)
            needs = more(needs, looked=looked, overflow=bad)
            whole = replace(self, stored=self.all_values())
            return whole.with_edges(edges, edges.edge_id, needs)

    def _all_edges(self, columns: jax.Array, room: int) -> tuple[Edges, jax.Array]:
        graph, num_nodes = self.graph, self.graph.num_nodes
        indptr, column, at, needed = expand(graph.indptr, columns, room)
        real = column < columns.shape[0]
        node = jnp.full(room, num_nodes, jnp.int32)
        if graph.num_edges:
            node = jnp.where(real, graph.indices.at[at].get(mode="clip"), num_nodes)
        return Edges(indptr, column, node, jnp.where(real, at, graph.num_edges)), needed

    def aligned(self) -> Self:
        """The same with row slots that are there: of the distinct nodes, where those are wanted
        and were not counted yet."""
        if not self.loose:
            return self
        built = self.built()
        assert built.edges is not None
        edges = built.edges
        rows, row = compact(edges.row, edges.indptr[-1], self.graph.num_nodes)
        operands = chain.moved(built.steps, built.operands, "row", rows)
        new = replace(built, edges=edges._replace(row=row), rows=rows, operands=operands)
        return replace(new, loose=False)

    def ready(self) -> Self:
        """Built, and its rows aligned where an edge map has row vectors."""
        by_row = any(step.kind == "row" for step in self.steps)
        return (self.aligned() if by_row else self).built()

    def slots(self, axis: int) -> tuple[Self, jax.Array, int]:
        """The matrix, built, each edge's slot along `axis`, and how many slots there are."""
        if check_axis(axis):
            mine = self.aligned().built()
            assert mine.edges is not None
            return mine, mine.edges.row, num_slots(mine.rows, self.graph)
        mine = self.ready()
        assert mine.edges is not None
        return mine, mine.edges.column, mine.edges.indptr.shape[0] - 1

    def kept(self, which: jax.Array, padding: int) -> Self:
        """The edges of a built matrix where `which` holds, `padding` the row of none."""
        assert self.edges is not None
        with jax.enable_x64(True):
            have = self.edges.row.shape[0]
            room = have if self.room.selected is None else min(self.room.selected, have)
            place = jnp.arange(have, dtype=jnp.int32)
            ids = self.edges._replace(edge_id=place.astype(jnp.int64))
            moved, needed = keep(ids, which, room, have)
            at = moved.edge_id
            edges = moved._replace(
                row=jnp.where(moved.real, moved.row, padding),
                edge_id=self.edges.edge_id.at[at].get(
                    mode="fill", fill_value=self.graph.num_edges
                ),
            )
            needs = more(self.needs, selected=needed, overflow=needed > room)
        return self.with_edges(edges, at, needs)

    def with_edges(self, edges: Edges, at: jax.Array, needs: Needs) -> Self:
        """A built matrix with other edges, the `i`-th of which is its own `at[i]`-th."""
        with jax.enable_x64(True):  # else the positions would be cut to int32
            stored = None if self.stored is None else self.stored.at[at].get(**FILL)
            probs = None
            if self.edge_probs is not None:
                probs = self.edge_probs.at[at].get(mode="fill", fill_value=1)
            operands = chain.moved(self.steps, self.operands, "edge", at)
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
        """Whether the values are others than the graph's."""
        return self.valued or bool(self.steps)

    @property
    def values(self) -> jax.Array:
        """float32 `[E]` or `[E, H]`: each edge's value, 0 in padding, in the order of the
        columns."""
        built = self.ready()
        assert built.edges is not None
        value = jnp.float32(1) if built.stored is None else built.stored
        value = chain.evaluate(built.steps, built.operands, value, built.edges)
        real = built.edges.real.reshape(-1, *[1] * (value.ndim - 1))
        return jnp.where(built.overflow, jnp.nan, jnp.where(real, value, 0))

    def with_values(self, values: jax.Array) -> Self:
        """The same edges with other values, `[E]` or `[E, H]` in the order of `values`."""
        built = self.built()
        assert built.edges is not None
        values = jnp.asarray(values, jnp.float32)
        if values.ndim not in (1, 2) or values.shape[0] != built.edges.row.shape[0]:
            raise InputError(
                f"values must have one row for each of {built.edges.row.shape[0]} edges",
                f"shape {list(values.shape)}",
                "Make them from the matrix's own values.",
            )
        return replace(built, stored=values, steps=(), operands=(), valued=True)


def node_ids(ids: jax.Array | None, graph: Graph) -> jax.Array:
    """int32: the nodes of slots, which are all where `ids` is None."""
    return jnp.arange(graph.num_nodes, dtype=jnp.int32) if ids is None else ids


def num_slots(ids: jax.Array | None, graph: Graph) -> int:
    """How many slots an axis of these nodes has."""
    return graph.num_nodes if ids is None else ids.shape[0]


def check_axis(axis: Any) -> int:
    if axis not in (0, 1):
        raise InputError("the axis must be 0 (columns) or 1 (rows)", repr(axis), "Choose one.")
    return int(axis)
