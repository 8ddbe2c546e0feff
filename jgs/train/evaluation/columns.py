"""A layer's sums, means or maxima of rows in a file, some columns at a time.

A column of the result depends on the same column of the rows alone. So a part of the columns
is read into memory, in one go, and reduced for all targets there; then the next part. Rows are
read once and in order, however the edges lie. The edges are gone through once for each part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

import jgs.ops
from jgs.train.evaluation.edges import Edges, Rank, block
from jgs.train.evaluation.layer import Stage, combine, nothing
from jgs.train.evaluation.spilled import Spilled, columns_at_once


def by_columns(stage: Stage, num_rows: int, memory: int) -> int:
    """How many columns of a layer's messages are reduced at once; 0 for a layer that reads
    whole rows, and for a memory that is too small."""
    if stage.reduce not in jgs.ops.REDUCTIONS or stage.by_each_edge or stage.num_relations:
        return 0
    return columns_at_once(num_rows, stage.message_width, memory)


class Reduced:
    """The reduced messages of `targets`, as the states of their chunks.

    Args:
      edges, rank: the edges of the one rank.
      messages: the rows of all nodes, with a part for the columns that fit into memory.
      targets: int32 `[T]`, ascending.
      reduce: `"sum"`, `"mean"` or `"max"`.
      scratch: the folder of the result's file.
    """

    def __init__(
        self,
        edges: Edges,
        rank: Rank,
        messages: Spilled,
        targets: np.ndarray,
        reduce: str,
        scratch: Path | None,
    ):
        self._edges, width = edges, messages.columns[0].stop
        self._states = Spilled((len(targets), messages.shape[1]), width, scratch)
        self._counts = np.zeros(len(targets), np.int32)
        size = edges.piece_size(0)
        for number, columns in enumerate(messages.columns):
            table, done = messages.part(number), 0
            for chunk in edges.chunks(targets):
                counts = self._counts[done : done + chunk.size]
                state: Any = nothing((edges.num_rows, columns.stop - columns.start), reduce)
                for row_starts, sources, _ in edges.pieces(rank, chunk, size):
                    part = jax.device_put(block(row_starts, sources, edges.num_nodes, {}))
                    state = combine(state, part, table, reduce)
                    if number == 0:
                        counts += np.diff(row_starts)[: chunk.size]
                self._states.write_part(number, done, jax.device_get(state)[: chunk.size])
                done += chunk.size
            del table  # before the next one is read

    def chunk(self, first: int, num: int) -> tuple[jax.Array, np.ndarray]:
        """The state `[C, M]`, and the numbers `[C]` of edges, of a chunk: the targets from
        number `first` on."""
        ids = np.arange(first, first + num, dtype=np.int32)
        state = np.zeros((self._edges.num_rows, self._states.shape[1]), np.float32)
        self._states.read(ids, state)
        count = np.zeros(self._edges.num_rows, np.int32)
        count[:num] = self._counts[first : first + num]
        return jax.device_put(state), count
