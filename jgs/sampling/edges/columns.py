"""The columns of a batch's edges that a sampler was asked for: its field `edges`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Block, Graph, MiniBatch
from jgs.settings import exact_integers

_OWN = ("id", "weight", "type", "time")  # columns that are the graph's own fields


def check_edges(sampler: Any) -> None:
    """Checks the field `edges` of a sampler and makes it a tuple. `"id"` stands for `edge_ids`.
    Raises `InputError`."""
    names = sampler.edges
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(
            "edges must be a tuple of names of columns",
            repr(names),
            'Give ("id", "weight", "type", "time") or the names of edge columns.',
        )
    object.__setattr__(sampler, "edges", tuple(dict.fromkeys(names)))
    if "id" in sampler.edges:
        object.__setattr__(sampler, "edge_ids", True)


def ids_needed(sampler: Any) -> bool:
    """Whether the sampler's blocks must have `edge_id` until they have their columns."""
    return sampler.edge_ids or bool(sampler.edges)


def with_columns(batch: MiniBatch, graph: Graph, sampler: Any) -> MiniBatch:
    """The batch with the columns `sampler.edges` in its blocks, and without `edge_id` if that
    was not asked for. Raises `InputError` for a column that the graph does not have."""
    if not ids_needed(sampler):
        return batch
    _refuse_two(graph, "id" if "id" in sampler.edges else "")
    columns = {name: column_of(graph, name) for name in sampler.edges if name != "id"}
    with exact_integers():  # ids and times are 64-bit
        blocks = [_filled(block, columns, sampler.edge_ids) for block in batch.blocks]
    return replace(batch, blocks=tuple(blocks))


def column_of(graph: Graph, name: str) -> jax.Array:
    """The edge column `name` of a graph, `[E, ...]`: `"weight"`, `"type"`, `"time"`, or the
    name of one of its `edge_columns`. Raises `InputError`."""
    _refuse_two(graph, name)
    fields = {"weight": graph.edge_weight, "type": graph.edge_type, "time": graph.edge_time}
    known = graph.edge_columns | {n: a for n, a in fields.items() if a is not None}
    if name not in known:
        raise InputError(
            f"the graph must have an edge column {name!r}",
            f"columns {', '.join(known) or 'none'}",
            "Give it when you make the graph: edge_columns={...}, edge_weight=...",
        )
    return known[name]


def _refuse_two(graph: Graph, name: str) -> None:
    """Raises `InputError` if a column of the graph's own has the name of one of the user's."""
    if name in _OWN and name in graph.edge_columns:
        raise InputError(
            f"the edge column {name!r} that a sampler is asked for must be the graph's own",
            f"one of that name in its edge_columns ({', '.join(graph.edge_columns)})",
            "Rename it; or give times as edge_time= and weights as edge_weight=.",
        )


def _filled(block: Block, columns: dict[str, jax.Array], keep_ids: bool) -> Block:
    ids = block.edge_id
    assert ids is not None
    arrays = block.edge_arrays()
    for name, column in columns.items():
        if column.shape[0]:
            arrays[name] = column.at[ids].get(mode="fill", fill_value=0)
        else:  # an empty array cannot be indexed
            arrays[name] = jnp.zeros((*ids.shape, *column.shape[1:]), column.dtype)
    if not keep_ids:
        del arrays["id"]
    return block.with_edge_arrays(arrays)
