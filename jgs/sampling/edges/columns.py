"""The columns of a batch's edges: those that a sampler was asked for by its field `edges`, and
columns without the edges that are not kept. Blocks and matrices share `compacted`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Block, Graph, MiniBatch
from jgs.graph.batch import AGELESS
from jgs.graph.foreign import targets_of
from jgs.sampling.edges.eligible import is_excluded
from jgs.settings import exact_integers

_OWN = ("id", "weight", "type", "time", "elapsed")  # columns that are not the user's


def check_edges(sampler: Any) -> None:
    """Checks the field `edges` of a sampler and makes it a tuple. `"id"` stands for `edge_ids`.
    Raises `InputError`."""
    names = sampler.edges
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) for name in names):
        raise InputError(
            "edges must be a tuple of names of columns",
            repr(names),
            'Give ("id", "weight", "type", "time", "elapsed") or the names of edge columns.',
        )
    object.__setattr__(sampler, "edges", tuple(dict.fromkeys(names)))
    if "id" in sampler.edges:
        object.__setattr__(sampler, "edge_ids", True)


def ids_needed(sampler: Any) -> bool:
    """Whether the sampler's blocks must have `edge_id` until they have their columns. One that
    draws by relation knows the type of each edge."""
    known = {"type"} if sampler.by_relation else set()
    return sampler.edge_ids or bool({*sampler.edges} - known)


def with_columns(batch: MiniBatch, graph: Graph, sampler: Any) -> MiniBatch:
    """The batch with the graph's schema, with the columns `sampler.edges` in its blocks, and
    without `edge_id` if that was not asked for. Raises `InputError` for a column that the graph
    does not have."""
    batch = replace(batch, schema=graph.schema)
    if not ids_needed(sampler):
        return batch
    if "id" in sampler.edges:
        _refuse_two(graph, "id")
    names = [name for name in sampler.edges if name not in ("id", "elapsed")]
    columns = {name: column_of(graph, name) for name in names}
    with exact_integers():  # ids and times are 64-bit
        blocks = list(batch.blocks)
        if "elapsed" in sampler.edges:
            _refuse_two(graph, "elapsed")
            time = column_of(graph, "time")
            blocks = [
                with_elapsed(block, batch.cutoff, column_at(time, block.edge_id))
                for block in blocks
            ]
        blocks = [_filled(block, columns, sampler.edge_ids) for block in blocks]
    return replace(batch, blocks=tuple(blocks))


def column_of(graph: Graph, name: str) -> jax.Array:
    """The edge column `name` of a graph, `[E, ...]`: `"weight"`, `"type"`, `"time"`, or the
    name of one of its `edge_columns`. Raises `InputError`."""
    _refuse_two(graph, name)
    if name == "elapsed":
        raise InputError(
            "the edge column 'elapsed' is of samples, for seeds that have cutoffs",
            "the whole graph, which has none",
            "Evaluate by sampled batches, as jgs train --temporal does.",
        )
    fields = {"weight": graph.edge_weight, "type": graph.edge_type, "time": graph.edge_time}
    known = graph.edge_columns | {n: a for n, a in fields.items() if a is not None}
    if name not in known:
        raise InputError(
            f"the graph must have an edge column {name!r}",
            f"columns {', '.join(known) or 'none'}",
            "Give it when you make the graph: edge_columns={...}, edge_weight=...",
        )
    return known[name]


def with_elapsed(block: Block, cutoff: jax.Array | None, time: jax.Array) -> Block:
    """The block with the column `"elapsed"`, see `jgs.Block`. `cutoff` is the batch's, and
    `time` int64 `[..., E]` that of each edge. Raises `InputError` without cutoffs."""
    if cutoff is None:
        raise InputError(
            "the edge column 'elapsed' is counted from the cutoffs of the seeds",
            "seeds without times",
            "Give jgs.sampling.Seeds(nodes, time).",
        )

    def of_block(block: Block, cutoff: jax.Array, time: jax.Array) -> jax.Array:
        target, real = targets_of(block)
        until = cutoff.at[target].get(mode="clip")
        return jnp.where(real, since(time, until), 0)

    for _ in range(time.ndim - 1):  # a super-batch
        of_block = jax.vmap(of_block)
    elapsed = of_block(block, cutoff, time)
    return block.with_edge_arrays(block.edge_arrays() | {"elapsed": elapsed})


def since(time: jax.Array, until: jax.Array) -> jax.Array:
    """float32: the time from edges to cutoffs, both int64; `AGELESS` for edges that were always
    there."""
    # As unsigned numbers, whose difference has room for any two times.
    elapsed = (until.astype(jnp.uint64) - time.astype(jnp.uint64)).astype(jnp.float32)
    return jnp.where(time == jnp.iinfo(jnp.int64).min, AGELESS, elapsed).astype(jnp.float32)


def _refuse_two(graph: Graph, name: str) -> None:
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
        if name == "type" and block.edge_type is not None:  # drawn by relation
            continue
        arrays[name] = column_at(column, ids)
    if not keep_ids:
        del arrays["id"]
    return block.with_edge_arrays(arrays)


def column_at(column: jax.Array, ids: Any) -> jax.Array:
    """The rows of a column of edges at the positions `ids`; 0 beyond its end. Traced under
    x64."""
    if column.shape[0]:
        return column.at[ids].get(mode="fill", fill_value=0)
    return jnp.zeros((*ids.shape, *column.shape[1:]), column.dtype)


def compacted(
    indptr: jax.Array,
    keep: jax.Array,
    columns: Sequence[tuple[Any, Any]],
    room: int | None = None,
) -> tuple[jax.Array, list[Any], jax.Array]:
    """Moves the edges that are kept together, in their order. `indptr` int `[R+1]` has the rows
    of the slots, `keep` bool `[E]` says which have an edge that is kept, and `columns` are
    pairs of an array `[E, ...]`, or None, and its padding. So many edges fit as `room` says;
    None: `E`.

    Returns int32 `[R+1]`, the rows of what is kept; the columns `[room, ...]`; and int32, the
    number of edges kept. If it exceeds `room`, there are none.
    """
    room = keep.shape[0] if room is None else room
    needed = jnp.sum(keep, dtype=jnp.int32)
    keep = keep & (needed <= room)
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(keep, dtype=jnp.int32)])
    place = jnp.where(keep, before[:-1], room)

    def move(array: Any, padding: Any) -> Any:
        if array is None:
            return None
        moved = jnp.full((room, *array.shape[1:]), padding, array.dtype)
        return moved.at[place].set(array, mode="drop")

    return before[indptr], [move(*column) for column in columns], needed


def with_edges(block: Block, keep: jax.Array, num_edges: int) -> Block:
    """The block with those of its edges alone for which `keep` bool `[E]` is True, and with
    their columns. `num_edges` is the graph's, the padding of `edge_id`."""
    arrays = block.edge_arrays()
    columns = [(block.indices, block.source_capacity), (block.edge_weight, 0)]
    columns += [(array, num_edges if name == "id" else 0) for name, array in arrays.items()]
    keep &= jnp.arange(block.edge_capacity) < block.num_edges
    indptr, (indices, weight, *moved), _ = compacted(block.indptr, keep, columns)
    kept = {"indptr": indptr, "indices": indices, "num_edges": indptr[-1]}
    block = replace(block, **kept, edge_weight=weight)
    return block.with_edge_arrays(dict(zip(arrays, moved, strict=True)))


def without_edges(block: Block, excluded: jax.Array | None, num_edges: int) -> Block:
    """The block, which has `edge_id`, without the edges `excluded` int64 `[X]` (see
    `jgs.sampling.Seeds`) of a graph of `num_edges` edges; traced under x64."""
    if excluded is None or excluded.shape[0] == 0:
        return block
    ids = block.edge_id
    assert ids is not None
    return with_edges(block, ~is_excluded(excluded, ids), num_edges)
