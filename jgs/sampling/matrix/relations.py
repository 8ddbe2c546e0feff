"""Relations as columns of their own: `Matrix.by_relation` and `Matrix.joined`, specified there.

The edges of a column are sorted by relation. So the edges keep their order, and only their
columns' numbers and offsets change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import jax.numpy as jnp

from jgs.errors import InputError
from jgs.sampling.matrix import chain
from jgs.sampling.matrix.entries import Entries
from jgs.settings import exact_integers

T = TypeVar("T", bound=Entries)


def by_relation(matrix: T) -> T:
    """See `Matrix.by_relation`."""
    if matrix.relations:
        return matrix
    schema, edge_type = matrix.graph.schema, matrix.graph.edge_type
    if edge_type is not None and schema is None:
        raise InputError(
            "a graph must name its relations for columns by relation",
            "edge types without a schema",
            "Give Graph a schema, or make the graph with Graph.from_relations.",
        )
    number = 1 if schema is None else max(1, len(schema.relations))
    built = matrix.built()
    columns, edges = built.column(), built.edges
    slots = columns.shape[0] * number
    kind = jnp.zeros(edges.column.shape, jnp.int32)
    if edge_type is not None and edge_type.shape[0]:
        with exact_integers():  # else the positions would be cut to int32
            kind = edge_type.at[edges.edge_id].get(mode="clip").astype(jnp.int32)
    column = jnp.where(edges.real, edges.column * number + kind, slots)
    count = jnp.zeros(slots, jnp.int32).at[column].add(1, mode="drop")
    indptr = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(count, dtype=jnp.int32)])
    old = jnp.arange(slots, dtype=jnp.int32) // number
    return replace(
        built,
        columns=columns[old],
        edges=edges._replace(indptr=indptr, column=column),
        operands=chain.moved(built.steps, built.operands, "column", old),
        relations=number,
        origin=None,
    )


def joined(matrix: T) -> T:
    """See `Matrix.joined`."""
    number = matrix.relations
    if not number:
        return matrix
    if any(step.reads("column") for step in matrix.steps):
        matrix = matrix.with_values(matrix.values)
    built = matrix.built()
    edges = built.edges
    return replace(
        built,
        columns=built.column()[::number],
        edges=edges._replace(indptr=edges.indptr[::number], column=edges.column // number),
        relations=0,
    )
