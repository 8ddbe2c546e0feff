"""The reduction of a chunk's messages, piece by piece."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from jgs.train.evaluation.edges import Edges, Piece, Rank, block, tiles
from jgs.train.evaluation.layer import (
    Stage,
    attend,
    begin,
    combine,
    combine_edges,
    nothing,
)
from jgs.train.evaluation.relations import rows_by_relation
from jgs.train.evaluation.rows import padded, take


def reduced(
    edges: Edges,
    stage: Stage,
    layer: tuple[Any, Any],
    size: int,
    rank: Rank,
    messages: Any,
    chunk: np.ndarray,
    x: jax.Array,
    kind: jax.Array,
) -> Generator[np.ndarray, jax.Array, tuple[Any, np.ndarray]]:
    """The state of the chunk's targets after all their edges, and the numbers of these.

    Args:
      stage, layer: the layer's `Stage`, definition and parameters.
      size: the number of edges in a piece.
      rank, messages: a local rank, and the messages of its own nodes.
      chunk, x, kind: the targets, their rows, and their types.

    One table of float32 in memory is read where it lies. Otherwise the rows of sources are read
    first, in order. On many ranks their ids are yielded, and the rows are sent.
    """
    relations, num_states = stage.num_relations, edges.num_rows * max(stage.num_relations, 1)
    state: Any = nothing((num_states, stage.reduced_width), stage.reduce)
    if state is None:
        own = padded(chunk - rank.first, edges.num_rows, rank.num_own)
        state = begin(*layer, x, take(messages, own), kind)
    count = np.zeros(num_states, np.int64)

    def add(state: Any, piece: Piece, table: Any, num_sources: int) -> Any:
        row_starts, sources, at = piece
        if relations:
            row_starts = rows_by_relation(row_starts, rank.columns["type"][at], relations)
        count[:] += np.diff(row_starts)
        columns = rank.edge_arrays(stage.edge_columns, at, size)
        part = jax.device_put(block(row_starts, sources, num_sources, columns))
        if stage.reduce == "attention":
            return attend(*layer, state, part, table)
        if stage.by_each_edge:
            return combine_edges(*layer, state, part, table)
        return combine(state, part.with_edge_arrays({}), table, stage.reduce)

    if edges.alone and isinstance(messages, jax.Array) and messages.dtype == np.float32:
        for piece in edges.pieces(rank, chunk, size):
            state = add(state, piece, messages, edges.num_nodes)
    elif edges.alone:
        most, num_sources = edges.tile_size(stage.message_width, size)
        for piece in edges.pieces(rank, chunk, most):
            for found, parts in tiles(piece, num_sources, size):
                table = take(messages, padded(found, num_sources, edges.num_nodes))
                for part in parts:
                    state = add(state, part, table, num_sources)
    else:
        num_sources = edges.num_sources(size)
        for row_starts, sources, at in edges.pieces(rank, chunk, size):
            found, place = np.unique(sources, return_inverse=True)
            table = yield padded(found.astype(np.int32), num_sources, edges.num_nodes)
            state = add(state, (row_starts, place.astype(np.int32), at), table, num_sources)
    return state, count
