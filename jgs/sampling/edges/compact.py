"""Rows of edges without those that are not kept. Blocks and matrices share `compacted`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Block


def compacted(
    indptr: jax.Array,
    keep: jax.Array,
    columns: Sequence[tuple[Any, Any]],
    room: int | None = None,
) -> tuple[jax.Array, list[Any], jax.Array]:
    """Moves the edges that are kept together, in their order.

    Args:
      indptr: int `[R+1]`; row `r` has the slots `indptr[r]:indptr[r+1]`.
      keep: bool `[E]`; which slots have an edge that is kept.
      columns: pairs of an array `[E, ...]` with something of each edge, or None, and its
        padding.
      room: int, the number of edges that fit. None: `E`.

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
    at = jnp.searchsorted(excluded, ids)
    return with_edges(block, excluded.at[at].get(mode="clip") != ids, num_edges)
