"""The edges of each local rank, as exact evaluation reads them: in pieces of one size. And the
reduction of a chunk's messages, piece by piece, or of all chunks' some columns at a time.

A column of a sum, mean or maximum depends on the same column of the rows alone. So a part of
the columns of rows in a file is read into memory, in one go, and reduced for all targets there;
then the next part. Rows are read once and in order, however the edges lie.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jgs.ops
from jgs.arrays import require_array
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.owners import check_offsets
from jgs.errors import InputError
from jgs.graph import Block, Graph, as_device
from jgs.sampling.edges.columns import column_of
from jgs.train.evaluation.layer import Stage, attend, begin, combine, combine_edges, nothing
from jgs.train.evaluation.rows import Spilled, columns_at_once, padded, take

# Edges as row starts, sources and positions; see the function `pieces`.
Piece = tuple[np.ndarray, np.ndarray, np.ndarray]


class Rank(NamedTuple):
    """One local rank: its nodes, `first` to `last - 1`, the arrays of their in-edges, and the
    edge columns that layers read, without "id"."""

    first: int
    last: int
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None
    columns: dict[str, np.ndarray]

    @property
    def num_own(self) -> int:
        return self.last - self.first

    @property
    def num_edges(self) -> int:
        return int(self.indptr[self.last] - self.indptr[self.first])

    def degree(self, nodes: np.ndarray) -> np.ndarray:
        """int32: the in-degrees, in the whole graph, of `nodes`, which the rank owns."""
        return (self.indptr[nodes + 1] - self.indptr[nodes]).astype(np.int32)

    def edge_arrays(
        self, names: Iterable[str], edges: np.ndarray, size: int
    ) -> dict[str, jax.Array]:
        """The columns `names`, `[size, ...]`, of the edges at these positions; 0 in padding."""
        found = {}
        for name in names:
            rows = edges if name == "id" else self.columns[name][edges]
            room = np.zeros((size, *rows.shape[1:]), rows.dtype)
            room[: len(rows)] = rows
            found[name] = as_device(room)  # a jitted function would cut 64 bits of NumPy's
        return found


class EdgePieces:
    """The in-edges of the nodes of each local rank, which are in `ranks`, read in chunks of
    `num_rows` targets."""

    def __init__(
        self,
        comm: Communicator,  # this and the next three as in `jgs.train.exact_inference`
        offsets: Any,
        graphs: Sequence[Graph],
        weighted: bool,
        names: Sequence[str],  # the edge columns that layers read
        widest: int,  # the largest number of floats in the row of a target
        memory: int,  # bytes that a chunk, and a piece of its edges, may take
    ):
        self._comm, self._memory, self.alone = comm, memory, comm.size == 1
        self.offsets = check_offsets(offsets, comm.size)
        if weighted and any(graph.edge_weight is None for graph in graphs):
            raise InputError(
                "weighted evaluation must have a graph with edge weights",
                "none",
                "Leave it out.",
            )
        for graph in graphs:
            graph._refuse_room()
        bounds = self.offsets[comm.rank : comm.rank + comm.num_local + 1].tolist()
        self.ranks = [
            Rank(
                *own,
                np.asarray(graph.indptr),
                np.asarray(graph.indices),
                np.asarray(graph.edge_weight) if weighted else None,
                {n: np.asarray(column_of(graph, n)) for n in names if n != "id"},
            )
            for graph, own in zip(graphs, pairwise(bounds), strict=True)
        ]
        self.num_nodes, most = int(self.offsets[-1]), int(np.diff(self.offsets).max())
        self.num_rows = max(1, min(most, memory // (16 * widest)))
        mine = [np.array([rank.num_edges], np.int64) for rank in self.ranks]
        self._num_edges = int(all_gather_rows(comm, mine).max())
        # Twice the number of edges that a chunk has on average.
        self._typical = 2 * self.num_rows * self._num_edges // max(most, 1) + 1

    def chunks(self, nodes: np.ndarray) -> Iterator[np.ndarray]:
        return (nodes[i : i + self.num_rows] for i in range(0, len(nodes), self.num_rows))

    def piece_size(self, floats: int, names: Sequence[str] = ()) -> int:
        """The number of edges in a piece, where each edge takes `floats` floats, and twice its
        entries in the columns `names`; equal on all ranks."""
        columns = [self.ranks[0].columns[name] for name in names if name != "id"]
        entries = sum(column.itemsize * prod(column.shape[1:]) for column in columns)
        fits = self._memory // (32 + 4 * floats + 2 * entries)  # 32 bytes for indices
        return max(1, min(fits, self._typical, self._num_edges, 1 << 30))

    def num_sources(self, size: int) -> int:
        """The sources of a piece of `size` edges; a block has one for every target."""
        return max(size, self.num_rows)

    def tile_size(self, floats: int, size: int) -> tuple[int, int]:
        """The number of edges in the piece of a chunk that `tiles` orders, and of the sources
        in a tile, whose rows have `floats` floats. A piece of a tile has `size` edges."""
        edges = max(size, min(self._memory // 64, self._typical, self._num_edges, 1 << 30))
        most = max(self.num_rows, self._memory // (16 * max(floats, 1)))
        return edges, min(most, max(self.num_nodes, self.num_rows))

    def pieces(self, rank: Rank, targets: np.ndarray, size: int) -> Iterator[Piece]:
        graph = (rank.indptr, rank.indices, rank.weight)
        return pieces(*graph, targets, self.num_rows, size, self.num_nodes)

    def num_pieces(self, rank: Rank, nodes: np.ndarray, size: int) -> int:
        edges = (int(rank.degree(c).sum(dtype=np.int64)) for c in self.chunks(nodes))
        return sum(-(-num // size) for num in edges)

    def with_neighbours(self, nodes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each local rank those of its own nodes, ascending, that are among the `nodes` of
        any rank or their in-neighbours."""
        if self.alone and len(nodes[0]) == self.num_nodes:
            return list(nodes)
        words = -(-self.num_nodes // 32)
        # The last column is for padding.
        found = np.zeros((self._comm.num_local, words * 32 + 1), bool)
        for mine, rank, asked in zip(found, self.ranks, nodes, strict=True):
            mine[asked] = True
            for targets in self.chunks(asked):
                for _, sources, _ in self.pieces(rank, targets, self.piece_size(0)):
                    mine[sources] = True
            mine[self.num_nodes :] = False
        if self.alone:
            return [np.flatnonzero(found[0]).astype(np.int32)]
        bits = np.packbits(found[:, :-1], axis=1).view(np.int32)
        every = np.bitwise_or.reduce(all_gather_rows(self._comm, list(bits)), axis=0)
        wanted = np.flatnonzero(np.unpackbits(every.view(np.uint8))).astype(np.int32)
        return [wanted[slice(*np.searchsorted(wanted, r[:2]))] for r in self.ranks]


def check_nodes(nodes: Any, first: int, last: int) -> np.ndarray:
    """`nodes` as int32; raises `InputError` unless they are ids in `[first, last)`."""
    ids = np.asarray(nodes)
    require_array("nodes", ids, "integers or empty [n]", "Give node ids.")
    if ids.size and not first <= ids.min() <= ids.max() < last:
        wrong = ids[(ids < first) | (ids >= last)]
        raise InputError(
            f"nodes must be ids from {first} to {last - 1}",
            int(wrong[0]),
            "Give ids of nodes that are there (on many ranks, that the rank owns).",
        )
    return ids.astype(np.int32)


def pieces(
    indptr: np.ndarray,
    indices: np.ndarray,
    weight: np.ndarray | None,
    targets: np.ndarray,
    num_rows: int,
    size: int,
    padding: int,
) -> Iterator[Piece]:
    """Yields the edges into `targets`, which ascend, `size` at a time, as row starts
    `[num_rows+1]`, sources `[size]`, and the edges' positions in `indices`, without padding.
    Edges of a row that do not fit are in the next pieces. With `weight` those of weight 0 are
    left out. Places without an edge hold `padding`."""
    starts = indptr[targets]
    # The edges of nodes that follow one another are a stretch.
    dense = len(targets) > 0 and int(targets[-1]) - int(targets[0]) + 1 == len(targets)
    offsets = np.zeros(len(targets) + 1, np.int64)
    np.cumsum(indptr[targets + 1] - starts, out=offsets[1:])
    for low in range(0, int(offsets[-1]), size):
        local = np.clip(offsets - low, 0, size)
        if dense:
            at = int(starts[0]) + low
            edges = np.arange(at, at + local[-1])
            found = indices[at : at + local[-1]]
        else:
            first = starts + np.maximum(low - offsets[:-1], 0) - local[:-1]
            edges = np.repeat(first, np.diff(local)) + np.arange(local[-1])
            found = indices[edges]
        if weight is not None:
            drawn = weight[edges] > 0
            local, edges = np.r_[0, np.cumsum(drawn)][local], edges[drawn]
            found = found[drawn]
        row_starts = padded(local.astype(np.int32), num_rows + 1, local[-1])
        yield row_starts, padded(found, size, padding), edges


def tiles(
    piece: Piece, num_sources: int, size: int
) -> Iterator[tuple[np.ndarray, Iterator[Piece]]]:
    """The edges of a large piece in order of their sources: yields sources int32, ascending, at
    most `num_sources` of them and each once, with pieces of `size` of the edges that come from
    them. The sources of these pieces are places among the yielded ones."""
    row_starts, sources, at = piece
    num_rows = len(row_starts) - 1
    found, place = np.unique(sources[: row_starts[-1]], return_inverse=True)
    row = np.repeat(np.arange(num_rows), np.diff(row_starts))
    order = np.argsort(place // num_sources, kind="stable")  # rows ascend in every tile
    firsts = range(0, len(found), num_sources)
    ends = np.searchsorted(place[order] // num_sources, np.arange(len(firsts) + 1))

    def pieces_of(first: int, own: np.ndarray) -> Iterator[Piece]:
        for low in range(0, len(own), size):
            some = own[low : low + size]
            starts = np.searchsorted(row[some], np.arange(num_rows + 1)).astype(np.int32)
            of_table = (place[some] - first).astype(np.int32)
            yield starts, padded(of_table, size, num_sources), at[some]

    for first, (low, high) in zip(firsts, pairwise(ends.tolist()), strict=True):
        yield found[first : first + num_sources], pieces_of(first, order[low:high])


def block(
    row_starts: np.ndarray,
    sources: np.ndarray,
    num_sources: int,
    columns: Mapping[str, jax.Array],
) -> Block:
    """A piece as a block with these columns, whose sources are the rows of a table."""
    counts = (len(row_starts) - 1, num_sources, row_starts[-1])
    made = Block(row_starts, sources, *(np.int32(c) for c in counts))  # type: ignore[arg-type]
    made = replace(made, source_capacity=num_sources)
    return made.with_edge_arrays(columns) if columns else made


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
