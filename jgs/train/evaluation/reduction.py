"""The reduction of a chunk's messages, piece by piece, or of all chunks' some columns at a
time.

A column of a sum, mean or maximum depends on the same column of the rows alone. So a part of
the columns of rows in a file is read into memory, in one go, and reduced for all targets there;
then the next part. Rows are read once and in order, however the edges lie.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jgs.ops
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.exchange import FeatureExchange
from jgs.train.evaluation.edge_pieces import EdgePieces, Piece, Rank, block, tiles
from jgs.train.evaluation.layer import Stage, attend, begin, combine, combine_edges, nothing
from jgs.train.evaluation.rows import Spilled, columns_at_once, padded, take


def reduced(
    edges: EdgePieces,
    stage: Stage,
    layer: tuple[Any, Any],  # its definition and parameters
    size: int,  # the number of edges in a piece
    rank: Rank,
    messages: Any,  # of the rank's own nodes
    chunk: np.ndarray,  # the targets
    x: jax.Array,  # their rows
    kind: jax.Array,  # their types
) -> Generator[np.ndarray, jax.Array, tuple[Any, np.ndarray]]:
    """The state of the chunk's targets after all their edges, and the numbers of these.

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
        read = stage.reduce == "attention" or stage.by_each_edge
        columns = rank.edge_arrays(stage.edge_columns if read else (), at, size)
        part = jax.device_put(block(row_starts, sources, num_sources, columns))
        if stage.reduce == "attention":
            return attend(*layer, state, part, table)
        if stage.by_each_edge:
            return combine_edges(*layer, state, part, table)
        return combine(state, part, table, stage.reduce)

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


def rows_by_relation(
    row_starts: np.ndarray, relations: np.ndarray, num_relations: int
) -> np.ndarray:
    """int32 `[C * R + 1]`: where the edges of each run begin, of a piece's rows `[C + 1]` and
    of its edges' relations, which ascend in each row."""
    num_rows = len(row_starts) - 1
    target = np.repeat(np.arange(num_rows), np.diff(row_starts))
    counts = np.bincount(target * num_relations + relations, minlength=num_rows * num_relations)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def by_columns(stage: Stage, num_rows: int, memory: int) -> int:
    """How many columns of a layer's messages are reduced at once; 0: whole rows are."""
    if stage.reduce not in jgs.ops.REDUCTIONS or stage.by_each_edge or stage.num_relations:
        return 0
    return columns_at_once(num_rows, stage.message_width, memory)


class Reduced:
    """The reduced messages of `targets`, of one rank, as the states of their chunks."""

    def __init__(
        self,
        edges: EdgePieces,
        rank: Rank,
        messages: Spilled,  # of all nodes, with a part for the columns that fit into memory
        targets: np.ndarray,  # int32 `[T]`, ascending
        reduce: str,  # "sum", "mean" or "max"
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
        """The state `[C, M]`, and the numbers `[C]` of edges, of `num` targets from `first`
        on."""
        ids = np.arange(first, first + num, dtype=np.int32)
        state = np.zeros((self._edges.num_rows, self._states.shape[1]), np.float32)
        self._states.read(ids, state)
        count = np.zeros(self._edges.num_rows, np.int32)
        count[:num] = self._counts[first : first + num]
        return jax.device_put(state), count


# A generator that yields node ids, is sent their rows, and so fills a layer's output.
Asking = Generator[np.ndarray, jax.Array, None]


class Turns:
    """Runs the generators of all local ranks, which ask for rows as often as others do."""

    def __init__(self, comm: Communicator, edges: EdgePieces):
        self._comm, self._edges = comm, edges
        self._exchanges: dict[int, FeatureExchange] = {}

    def run(
        self,
        layer: int,
        messages: Sequence[Any],  # the rows that are asked for
        askings: Sequence[Asking],
        targets: Sequence[np.ndarray],
        size: int,  # the number of edges in a piece
        changed: bool,  # whether the messages are others than in the layer's last run
    ) -> None:
        """Runs each local rank's generator to its end. All ranks exchange rows as often as the
        rank that asks most; a rank that has finished asks for nothing."""
        comm, edges, num = self._comm, self._edges, self._edges.num_sources(size)
        if layer not in self._exchanges:
            own = (comm, edges.offsets, messages, -(-num // comm.size))
            self._exchanges[layer] = FeatureExchange(*own)
        elif changed:
            self._exchanges[layer].replace(messages)
        exchange = self._exchanges[layer]
        each = zip(edges.ranks, targets, strict=True)
        turns = [np.array([edges.num_pieces(*of_rank, size)], np.int32) for of_rank in each]
        nobody = np.full(num, np.iinfo(np.int32).max, np.int32)

        def advance(asking: Asking, rows: Any) -> np.ndarray:
            try:
                return asking.send(rows)
            except StopIteration:
                return nobody

        wanted = [advance(asking, None) for asking in askings]
        for _ in range(int(all_gather_rows(comm, turns).max())):
            x, _ = exchange(comm.own(wanted))
            wanted = list(map(advance, askings, comm.local(x)))
