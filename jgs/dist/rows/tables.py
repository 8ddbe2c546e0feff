"""Each rank's own rows in the form that programs of all ranks take, by `own_rows`; and how rows
are sent and read: dense rows, sparse rows as columns and values, others as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.files.room import with_room
from jgs.graph import as_device
from jgs.graph.row_tables.dense import rows_as_stored
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.ops import gather
from jgs.settings import exact_integers


class OwnRows(NamedTuple):
    """What `own_rows` found.

    Fields:
      tables: for each local rank the tuple of its matrices, or its `RowTable`. Shapes are equal
        on all ranks where the communicator is `uniform`.
      bounds: for each local rank int32 `[2, P]`: the first of its rows that matrix `i` has, and
        how many rows of padding lie before that matrix; `[2, 0]` where no padding lies between
        matrices.
      width: `F`.
      entries: the most entries that a row of any rank has; None for dense rows.
    """

    tables: list[Any]
    bounds: list[np.ndarray]
    width: int
    entries: int | None


def own_rows(
    comm: Communicator, features: Sequence[Sequence[Any] | RowTable], offsets: np.ndarray
) -> OwnRows:
    """Puts each rank's own rows into the form that programs of all ranks take.

    Memory maps are used where they lie, padded ones too (see `jgs.files.room`). Where shapes
    must be equal and ranks have different numbers of matrices, each joins its matrices in a
    copy.
    """
    everywhere(comm, lambda: _check_rows(comm, features, offsets))
    most = int(np.diff(offsets).max())
    given = list(map(as_table, features))
    if not given[0].by_entries:
        dense = [[np.asarray(rows) for rows in table.rows] for table in given]
        bounds = _no_bounds(dense)
        if comm.uniform:
            dense, bounds = _uniform(comm, dense, most)
        each = zip(given, dense, strict=True)
        tables = [table.with_rows(tuple(map(as_device, rows))) for table, rows in each]
        return OwnRows(tables, bounds, given[0].shape[1], None)
    sparse: Sequence[Any] = given
    mine = [np.array([f.max_row, f.indices.shape[0]], np.int64) for f in sparse]
    longest, entries = all_gather_rows(comm, mine).max(axis=0).tolist()
    if not comm.uniform:
        entries = most = 0
    entries, longest = max(entries, 1), max(longest, 1)  # an empty array cannot be read
    own = [
        SparseFeatures(
            as_device(_offsets_with_room(f.indptr, most + 1)),
            as_device(with_room(f.indices, entries)),
            as_device(with_room(f.values, entries)),
            f.num_features,
            longest,
        )
        for f in sparse
    ]
    return OwnRows(own, _no_bounds(own), sparse[0].num_features, longest)


def place_own(bounds: jax.Array, rows: jax.Array) -> jax.Array:
    """Where these of a rank's rows, int32, are in its matrices, read as one below the other; -1
    stays -1. `bounds` int32 `[2, P]` is that of `OwnRows`."""
    if bounds.shape[1] == 0:
        return rows
    table = jnp.sum(rows[..., None] >= bounds[0], axis=-1) - 1
    return jnp.where(rows < 0, rows, rows + bounds[1][jnp.maximum(table, 0)])


def _no_bounds(tables: Sequence[Any]) -> list[np.ndarray]:
    return [np.zeros((2, 0), np.int32)] * len(tables)


def _uniform(
    comm: Communicator, dense: list[list[np.ndarray]], most: int
) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """The matrices, padded to equal shapes on all ranks, and the `bounds` of `OwnRows`."""
    counts = all_gather_rows(comm, [np.array([len(f)], np.int32) for f in dense])
    if counts.min() < counts.max():
        dense = [[np.concatenate(f)] for f in dense]
    if len(dense[0]) == 1:
        return [[with_room(f[0], most)] for f in dense], _no_bounds(dense)
    sizes = [np.array([len(t) for t in f], np.int32) for f in dense]
    room = all_gather_rows(comm, sizes).max(axis=0)
    with_rooms = [[with_room(*each) for each in zip(f, room, strict=True)] for f in dense]
    first = [np.cumsum([0, *own[:-1]]) for own in sizes]
    before = np.cumsum([0, *room[:-1]])
    return with_rooms, [np.stack([f, before - f]).astype(np.int32) for f in first]


def num_rows(own: Any) -> int:
    """The number of rows in one rank's matrices or `RowTable`."""
    return as_table(own).shape[0]


def _offsets_with_room(indptr: Any, length: int) -> np.ndarray:
    """`indptr`, with empty rows appended up to `length` numbers."""
    indptr = np.asarray(indptr)
    return np.pad(indptr, (0, max(length - indptr.size, 0)), mode="edge")


def _check_rows(comm: Communicator, features: Sequence[Any], offsets: np.ndarray) -> None:
    for own, rank in zip(features, range(comm.rank, comm.size), strict=False):
        num, want = num_rows(own), int(offsets[rank + 1] - offsets[rank])
        if num != want:
            raise InputError(
                f"the features of rank {rank} must have a row for each of its {want} nodes",
                f"{num} rows",
                "Give each rank the rows from its offset to the next.",
            )


class DenseWire:
    """Rows of matrices, `own`. All are rounded to `dtype`.

    Args:
      width: `F`.
      dtype: of rows that are sent.
      stored: the dtype of all matrices, where it is one, or None.

    Attributes:
      width: `F`, of the rows as they are read.
      words: the columns of a row in a cache.
      kept: the dtype of these columns: that of the matrices, where rows are sent in it.
      exact: whether nothing is rounded, and rows can be read where they lie.
    """

    def __init__(self, width: int, dtype: Any, stored: Any):
        self.width = self.words = width
        self.dtype = jnp.dtype(dtype)
        self.kept = jnp.dtype(dtype if stored == self.dtype else jnp.float32)
        self.exact = stored is not None and self.kept == stored == self.dtype

    def pack(self, own: Any, ids: jax.Array) -> jax.Array:
        """The rows `ids` as they are sent, `[n, W]`; -1 is padding."""
        return gather(own, ids).astype(self.dtype)

    def keep(self, sent: jax.Array) -> jax.Array:
        """Rows that were sent, in the form in which a cache has them: `[n, words]`."""
        return sent.astype(self.kept)

    def apart(self, own: Any, *sent: jax.Array) -> Any:
        """The table of the own rows and of those that were sent, which are not copied."""
        return (*own, *sent)

    def read(
        self, own: Any, cached: jax.Array, replies: Sequence[jax.Array], place: jax.Array
    ) -> jax.Array:
        """float32 `[S, F]`: the rows `place` of the own, cached and sent rows, counted as one
        below the other."""
        return _rounded(gather((*own, cached, *map(self.keep, replies)), place), self.dtype)


class StoredWire:
    """As `DenseWire`, for a `RowTable` whose rows are sent as they are stored, in `kept`."""

    exact = True

    def __init__(self, width: int, stored: Any):
        self.width = self.words = width
        self.kept = self.dtype = jnp.dtype(stored)

    def pack(self, own: RowTable, ids: jax.Array) -> jax.Array:
        return rows_as_stored(own.rows, ids)

    def keep(self, sent: jax.Array) -> jax.Array:
        return sent

    def apart(self, own: RowTable, *sent: jax.Array) -> Any:
        return own.with_rows((*own.rows, *sent))

    def read(
        self, own: RowTable, cached: jax.Array, replies: Sequence[jax.Array], place: jax.Array
    ) -> jax.Array:
        return gather(self.apart(own, cached, *replies), place)


class SparseWire:
    """As `DenseWire`; `own` is `SparseFeatures`. A row is sent as the columns, int32, and the
    values of its entries, padded to as many entries as the fullest row of all ranks has.

    Args:
      width: `F`.
      entries: the entries of the fullest row, at least 1.
      dtype: the dtype of values that are sent; the values of all rows are rounded to it.
    """

    kept, exact = jnp.dtype(jnp.int32), False

    def __init__(self, width: int, entries: int, dtype: Any):
        self.width, self.dtype = width, jnp.dtype(dtype)
        self._in_word = 4 // self.dtype.itemsize  # the values in a word
        self._entries = -(-entries // self._in_word) * self._in_word
        self.words = self._entries + self._entries // self._in_word

    def pack(self, own: SparseFeatures, ids: jax.Array) -> jax.Array:
        with exact_integers():  # entries are counted in 64 bits
            real = (ids >= 0) & (ids < own.shape[0])
            start = own.indptr[jnp.where(real, ids, 0)]
            stop = jnp.where(real, own.indptr[jnp.where(real, ids, 0) + 1], start)
            entry = start[:, None] + jnp.arange(self._entries, dtype=jnp.int64)
            there = entry < stop[:, None]
            at = jnp.where(there, entry, own.indices.shape[0])
            columns = own.indices.at[at].get(mode="fill", fill_value=0)
            values = own.values.at[at].get(mode="fill", fill_value=0)
        shape = (*values.shape[:1], -1, *[self._in_word] * (self._in_word > 1))
        bits = jax.lax.bitcast_convert_type(values.astype(self.dtype).reshape(shape), jnp.int32)
        return jnp.concatenate([columns, bits], axis=1)

    def keep(self, sent: jax.Array) -> jax.Array:
        return sent

    def apart(self, own: SparseFeatures, *sent: jax.Array) -> Any:
        raise NotImplementedError  # they are never `exact`

    def read(
        self,
        own: SparseFeatures,
        cached: jax.Array,
        replies: Sequence[jax.Array],
        place: jax.Array,
    ) -> jax.Array:
        num_own = own.shape[0]
        there = place >= num_own
        x = gather(own, jnp.where(there, -1, place))
        sent = jnp.concatenate([cached, *replies])
        if sent.shape[0] > 0:
            others = jnp.where(there, place - num_own, -1)
            x += gather(self._unpacked(sent), others)
        return _rounded(x, self.dtype)  # a row's columns are distinct: no values are added

    def _unpacked(self, sent: jax.Array) -> SparseFeatures:
        columns, bits = sent[:, : self._entries], sent[:, self._entries :]
        values = jax.lax.bitcast_convert_type(bits, self.dtype).astype(jnp.float32)
        with exact_integers():
            indptr = jnp.arange(sent.shape[0] + 1, dtype=jnp.int64) * self._entries
        fixed = (self.width, self._entries)
        return SparseFeatures(indptr, columns.reshape(-1), values.reshape(-1), *fixed)


def _rounded(x: jax.Array, dtype: Any) -> jax.Array:
    if dtype == np.float32:
        return x
    # Without a barrier XLA may leave out both casts: it allows itself "excess precision".
    return jax.lax.optimization_barrier(x.astype(dtype)).astype(jnp.float32)
