"""Finalize: turns selected edges into a block."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs.graph import Block
from jgs.sampling.edges.relabel import relabel_edges
from jgs.sampling.matrix.edges import places, rearrange
from jgs.sampling.matrix.entries import Entries
from jgs.settings import exact_integers


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
