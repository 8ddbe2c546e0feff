"""Extract: the edges of some columns or rows, as `Matrix.__getitem__` specifies."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp

from jgs.sampling.matrix import chain
from jgs.sampling.matrix.edges import Edges, clipped, expand, places
from jgs.sampling.matrix.entries import Entries, more, num_slots
from jgs.settings import exact_integers

T = TypeVar("T", bound=Entries)


def of_columns(matrix: T, columns: jax.Array) -> T:
    """`A[:, columns]` for int32 `[C]`."""
    if matrix.columns is None and matrix.edges is None:
        operands = chain.moved(matrix.steps, matrix.operands, "column", columns)
        loose = matrix.compact and matrix.rows is None
        return replace(matrix, columns=columns, operands=operands, loose=loose)
    built = matrix.built()
    slot = places(built.column(), columns, matrix.graph.num_nodes)
    room = max(built.edges.row.shape[0], matrix.room.looked or 0)
    with exact_integers():
        indptr, column, at, needed = expand(built.edges.indptr, slot, room)
        real = column < columns.shape[0]
        edges = Edges(
            indptr,
            column,
            jnp.where(real, built.edges.row[at], num_slots(built.rows, matrix.graph)),
            jnp.where(real, built.edges.edge_id[at], matrix.graph.num_edges),
        )
        needs = more(built.needs, looked=clipped(needed), overflow=needed > room)
    new = built.with_edges(edges, at, needs)
    operands = chain.moved(new.steps, new.operands, "column", slot)
    return replace(new, columns=columns, operands=operands)


def of_rows(matrix: T, rows: jax.Array) -> T:
    """`A[rows, :]` for int32 `[R]`."""
    if matrix.edges is None and matrix.rows is None:
        rows = jnp.where(rows < 0, matrix.graph.num_nodes, rows)
        operands = chain.moved(matrix.steps, matrix.operands, "row", rows)
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
    operands = chain.moved(new.steps, new.operands, "row", slot)
    return replace(new, rows=rows, operands=operands, loose=False)
