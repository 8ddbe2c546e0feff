"""The edges of one relation in a row of a typed graph: a contiguous range, for rows are sorted
by type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.edges.eligible import Eligible, count_less


def relation_path(graph: Graph, relations: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of `relations`, names or triples, that successive steps follow.

    A step goes from a target to a source of its relation. So each relation's source type must
    be the target type of the next one. Raises `InputError`, also for a graph without a schema.
    """
    if graph.schema is None or graph.edge_type is None:
        raise InputError(
            "steps along relations need a typed graph",
            "one without a schema" if graph.schema is None else "one whose edges have no types",
            "Make it with Graph.from_relations.",
        )
    numbers = tuple(graph.schema.relation(one) for one in relations)
    named = [graph.schema.relations[number] for number in numbers]
    for one, after in pairwise(named):
        if one[0] != after[2]:
            raise InputError(
                "each relation's source type must be the target type of the next",
                f"({', '.join(one)}) before ({', '.join(after)})",
                "Steps go from targets to sources: turn the path round, or use reverse "
                "relations.",
            )
    return numbers


def of_relation(graph: Graph, rows: Eligible, relation: jax.Array | int) -> Eligible:
    """The rows, which have no holes so far, of which only the edges of `relation` are
    eligible."""
    start, count = stretch(graph, rows.start, rows.length, relation)
    return rows._replace(start=start, length=count, num=count)


def stretch(
    graph: Graph, start: jax.Array, degree: jax.Array, relation: jax.Array | int
) -> tuple[jax.Array, jax.Array]:
    """The range of the edges of `relation` in rows that begin at `start` and have `degree`
    edges: where it begins, and its length, both int64 like `start`. Traced under x64."""
    assert graph.edge_type is not None
    if graph.num_edges == 0:
        return start, degree
    types, least = graph.edge_type, jnp.asarray(relation)
    begin, end = (count_less(types, start, degree, least + i) for i in (0, 1))
    return start + begin, end - begin
