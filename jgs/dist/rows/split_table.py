"""`SplitTable`: rows of which each rank has those of its own nodes; and how rows are sent:
dense ones in the dtype of the wire, sparse ones as columns and values, others as stored."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.rows.owners import Demand, Owners, rounded
from jgs.errors import InputError
from jgs.files.npy import with_room
from jgs.graph import SparseFeatures, as_device
from jgs.graph.row_tables.dense import rows_as_stored
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.ops import gather
from jgs.settings import exact_integers

_FLOATS = ("float16", "float32")


class RankRows(NamedTuple):
    """The rows that one rank has.

    Fields:
      own: tuple of `[n_i, F]`, the rows of its own nodes in order; or a `RowTable`. Shapes are
        equal on all ranks where the communicator is `uniform`.
      bounds: int32 `[2, P]`: the first of its rows that matrix `i` has, and how many rows of
        padding lie before that matrix; `[2, 0]` where no padding lies between matrices.
      cached: `[C, W]`, rows of other ranks as the wire keeps them.
      cache_slot: int32 `[N]`, each node's row in `cached`, or -1; `[0]` without a cache.
    """

    own: Any
    bounds: Any
    cached: jax.Array
    cache_slot: jax.Array


class SplitTable:
    """A table of rows, split over the ranks; `FeatureExchange` says what the arguments are.
    Or only how they are sent, if `features` is their width: they are then given by `holding`.

    Attributes:
      owners, wire, demand: the `Owners`, how rows are sent and read, and what calls needed.
      capacity: the most nodes that one rank asks another for in a round.
      store: the `RankRows` of the ranks, `OWN`.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        features: Sequence[Any] | int,
        capacity: int,
        wire: str = "float32",
    ):
        self.comm, self.owners, self._dtype = comm, Owners(comm, offsets), wire
        self._asking, self.demand = cache(self._asking_program), Demand()
        if isinstance(features, int):
            self.wire: Any = RowWire(features, wire, wire)
        else:
            self.replace(features)
        self.resize(capacity)

    def replace(self, features: Sequence[Any]) -> None:
        """Takes other rows of the same shapes. Nothing stays cached."""
        tables, bounds, width, entries = own_rows(self.comm, features, self.owners.ranges)
        self.wire = self._wire(tables, width, entries)
        # Put where it lies once: with a cache of other rows it is not sent again.
        self._own = self.comm.own(list(zip(tables, bounds, strict=True)))
        empty = np.zeros((0, self.wire.words), self.wire.kept)
        self._no_cache = (as_device(empty), as_device(np.zeros(0, np.int32)))
        self.store = self._with(self._no_cache)

    def _wire(
        self, tables: Sequence[Any], width: int, entries: int | None
    ) -> RowWire | SparseWire:
        first = as_table(tables[0])
        alike = all_gather_rows(self.comm, [_alike(as_table(table)) for table in tables])
        if np.ptp(alike[:, 0]):
            raise InputError(
                "ranks must keep their rows alike, also with the same scales",
                f"{first.kind} rows of other scales, or of another form, on some rank",
                "Make them of all rows, and then divide them: jgs partition --feature-dtype.",
            )
        if entries is not None:
            return SparseWire(width, entries, self._dtype)
        if first.form != "dense":
            return RowWire(width, first.rows[0].dtype, first.rows[0].dtype, as_stored=True)
        each = zip(_FLOATS, alike[:, 1:].min(axis=0).tolist(), strict=True)
        stored = next((name for name, on_all in each if on_all), None)
        half = stored == "float16" and self._dtype == "float32"
        return RowWire(width, stored if half else self._dtype, stored)

    def resize(self, capacity: int) -> None:
        self.capacity = self.owners.resize(max(int(capacity), 1))

    def fit_to_demand(self) -> None:
        if (need := self.demand.most()) > self.capacity:
            self.resize(rounded(need))

    @property
    def row_bytes(self) -> int:
        """The bytes that a cached row takes."""
        return self.wire.kept.itemsize * self.wire.words

    def cache(self, nodes: Sequence[np.ndarray]) -> None:
        """Keeps the rows of these nodes, int32 `[C]` for each local rank, and no others.

        All ranks call it, with equal `C`; `N` is padding. Rows that were kept before are not
        asked for. The owner that has most of the other nodes decides the cost: a request and a
        reply for each `capacity` of them. Where one round suffices, it has room for fewer than
        twice as many as are asked for. A new size of that round compiles.
        """
        owners, padding = self.owners, self.owners.num_rows
        before = self.comm.local((self.store.cached, self.store.cache_slot))
        self.store = self._with(self._no_cache)
        size = nodes[0].size
        if self.comm.size == 1 or size == 0:  # nobody is there to ask, or nothing to ask for
            return
        cached = [np.zeros((size, self.wire.words), self.wire.kept) for _ in nodes]
        nth = []
        for found, ids, (rows, slots) in zip(cached, nodes, before, strict=True):
            slot, real = np.full(size, -1), ids < padding
            if slots.size:
                slot[real] = np.asarray(slots)[ids[real]]
            found[slot >= 0] = np.asarray(rows)[slot[slot >= 0]]
            nth.append(_nth_of_owner(np.where(slot >= 0, padding, ids), owners.ranges))
        del before, rows, slots  # frees the rows of the old cache
        mine = [np.array([of_rank.max() + 1], np.int32) for of_rank in nth]
        most = int(all_gather_rows(self.comm, mine).max())
        # Each round asks every owner for as many nodes as a round has room for.
        capacity = min(self.capacity, 1 << (most - 1).bit_length()) if most else 1
        for begin in range(0, most, capacity):
            now = [(begin <= of_rank) & (of_rank < begin + capacity) for of_rank in nth]
            asked = [np.full(capacity * self.comm.size, padding, np.int32) for _ in now]
            for room, ids, which in zip(asked, nodes, now, strict=True):
                room[: np.count_nonzero(which)] = ids[which]
            rows = self._asking(capacity)(self.store, self.comm.own(asked), owners.offsets)
            for found, which, some in zip(cached, now, self.comm.local(rows), strict=True):
                found[which] = np.asarray(some)[: np.count_nonzero(which)]
        caches = []
        for ids, found in zip(nodes, cached, strict=True):
            there = np.flatnonzero(ids < padding)
            slot_of = np.full(padding, -1, np.int32)
            slot_of[ids[there]] = there
            caches.append((as_device(found), as_device(slot_of)))
        self.store = self._with(*caches)

    def holding(self, rows: jax.Array) -> RankRows:
        """Within a program: the store of one rank whose own rows are these, float32 `[n, F]`,
        and which keeps no others."""
        none = jnp.zeros((2, 0), jnp.int32), jnp.zeros((0, self.wire.words), self.wire.kept)
        return RankRows((rows,), *none, jnp.zeros(0, jnp.int32))

    def _asking_program(self, capacity: int) -> Any:
        program = partial(self._raw_rows, capacity=capacity)
        return self.comm.program(program, (OWN, OWN, SAME), OWN)

    def _with(self, *caches: tuple[jax.Array, jax.Array]) -> Any:
        if len(caches) == 1:
            caches = caches * self.comm.num_local
        return RankRows(*self._own, *self.comm.own(caches))

    # -- inside a program: one rank ----------------------------------------------------------

    def _raw_rows(
        self, store: RankRows, nodes: jax.Array, offsets: jax.Array, capacity: int
    ) -> jax.Array:
        (place, asked), _ = self.owners.find(
            nodes, offsets, jnp.int32(0), store.cache_slot, **self._sizes(store, capacity)
        )
        replies = self.comm.others(self.packed(store, asked))
        place = self.placed(store, place, capacity)
        num_own, sent = _num_rows(store.own), self.wire.keep(jnp.concatenate(replies))
        at = jnp.where(place >= num_own, place - num_own, sent.shape[0])
        return sent.at[at].get(mode="fill", fill_value=0)

    def _sizes(self, store: RankRows, capacity: int) -> dict[str, int]:
        num_own, num_cached = _num_rows(store.own), store.cached.shape[0]
        return {"capacity": capacity, "num_own": num_own, "num_cached": num_cached}

    def requests(
        self, store: RankRows, nodes: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """See `Owners.requests`."""
        sizes = self._sizes(store, self.capacity)
        return self.owners.requests(nodes, offsets, nth, store.cache_slot, **sizes)

    def packed(self, store: RankRows, asked: jax.Array) -> list[jax.Array]:
        """The replies as they are sent, in the order of `others`. `asked` is that of a
        `Round`."""
        size, rank = self.comm.size, self.comm.index()
        asked = place_own(store.bounds, asked).reshape(size, -1)
        return [
            self.wire.pack(store.own, asked[(rank + 1 + i) % size]) for i in range(size - 1)
        ]

    def placed(self, store: RankRows, place: jax.Array, capacity: int) -> jax.Array:
        """`route`'s places in the rank's own tables, its cache and the replies of `others`."""
        num_own = _num_rows(store.own)
        place = jnp.where(place < num_own, place_own(store.bounds, place), place)
        # `route` counts the replies from rank 0 on, but `others` returns them in another order.
        begin = num_own + store.cached.shape[0]
        owner, nth = jnp.divmod(place - begin, capacity)
        rank, size = self.comm.index(), self.comm.size
        answer = begin + (rank - 1 - owner) % size * capacity + nth
        return jnp.where(place >= begin, answer, place)


def _alike(table: RowTable) -> np.ndarray:
    """int64 `[3]`: a digest of what the tables of all ranks must have in common, their form and
    what all rows share; and whether all rows are of each of `_FLOATS`."""
    if table.by_entries:
        return np.array([zlib.crc32(table.form.encode()), 0, 0])
    shared = [getattr(table, name) for name in table.names if name not in table.row_names]
    common = [table.form.encode(), *(np.asarray(array).tobytes() for array in shared)]
    dtypes = {np.dtype(rows.dtype).name for rows in table.rows}
    return np.array([zlib.crc32(b"".join(common)), *(dtypes == {name} for name in _FLOATS)])


def _nth_of_owner(nodes: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The position of each node among those of its owner; -1 for padding."""
    owner = np.searchsorted(bounds, nodes, "right") - 1
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], owner[order], "left")
    nth = np.empty(nodes.size, np.int64)
    nth[order] = np.arange(nodes.size) - first
    return np.where(nodes < bounds[-1], nth, -1)


def own_rows(
    comm: Communicator, features: Sequence[Any], offsets: np.ndarray
) -> tuple[list[Any], list[np.ndarray], int, int | None]:
    """Each rank's own rows in the form that programs of all ranks take.

    Memory maps are used where they lie, padded ones too (see `jgs.files.npy`). Where shapes
    must be equal and ranks have different numbers of matrices, each joins its matrices in a
    copy. Returns for each local rank `own` and `bounds` of a `RankRows`; the width `F`; and the
    most entries that a row of any rank has, None for dense rows.
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
        return tables, bounds, given[0].shape[1], None
    sparse: Sequence[Any] = given
    mine = [np.array([f.max_row, f.indices.shape[0]], np.int64) for f in sparse]
    longest, entries = all_gather_rows(comm, mine).max(axis=0).tolist()
    if not comm.uniform:
        entries = most = 0
    entries, longest = max(entries, 1), max(longest, 1)  # an empty array cannot be read
    own = [
        SparseFeatures(
            # Empty rows are appended.
            as_device(np.pad(f.indptr, (0, max(most + 1 - f.indptr.size, 0)), mode="edge")),
            as_device(with_room(f.indices, entries)),
            as_device(with_room(f.values, entries)),
            f.num_features,
            longest,
        )
        for f in sparse
    ]
    return own, _no_bounds(own), sparse[0].num_features, longest


def place_own(bounds: jax.Array, rows: jax.Array) -> jax.Array:
    """Where these of a rank's rows, int32, are in its matrices, read as one below the other; -1
    stays -1. `bounds` int32 `[2, P]` is that of `RankRows`."""
    if bounds.shape[1] == 0:
        return rows
    table = jnp.sum(rows[..., None] >= bounds[0], axis=-1) - 1
    return jnp.where(rows < 0, rows, rows + bounds[1][jnp.maximum(table, 0)])


def _no_bounds(tables: Sequence[Any]) -> list[np.ndarray]:
    return [np.zeros((2, 0), np.int32)] * len(tables)


def _uniform(
    comm: Communicator, dense: list[list[np.ndarray]], most: int
) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
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


def _num_rows(own: Any) -> int:
    return as_table(own).shape[0]


def _check_rows(comm: Communicator, features: Sequence[Any], offsets: np.ndarray) -> None:
    for own, rank in zip(features, range(comm.rank, comm.size), strict=False):
        num, want = _num_rows(own), int(offsets[rank + 1] - offsets[rank])
        if num != want:
            raise InputError(
                f"the features of rank {rank} must have a row for each of its {want} nodes",
                f"{num} rows",
                "Give each rank the rows from its offset to the next.",
            )


class RowWire:
    """Rows of matrices, `own`, or of a `RowTable` of such. All are rounded to `dtype`.

    Args:
      width: `F`.
      dtype: of rows that are sent.
      stored: the dtype of all matrices, where it is one, or None.
      as_stored: whether rows are codes, which are sent as they are.

    Attributes:
      width: `F`, of the rows as they are read.
      words: the columns of a row in a cache.
      kept: the dtype of these columns: that of the matrices, where rows are sent in it.
      exact: whether nothing is rounded, and rows can be read where they lie.
    """

    def __init__(self, width: int, dtype: Any, stored: Any, as_stored: bool = False):
        self.width = self.words = width
        self.dtype, self._as_stored = jnp.dtype(dtype), as_stored
        self.kept = jnp.dtype(dtype if stored == self.dtype else jnp.float32)
        self.exact = stored is not None and self.kept == stored == self.dtype

    def pack(self, own: Any, ids: jax.Array) -> jax.Array:
        """The rows `ids` as they are sent, `[n, W]`; -1 is padding."""
        if self._as_stored:
            return rows_as_stored(own.rows, ids)
        return gather(own, ids).astype(self.dtype)

    def keep(self, sent: jax.Array) -> jax.Array:
        """Rows that were sent, in the form in which a cache has them: `[n, words]`."""
        return sent.astype(self.kept)

    def apart(self, own: Any, *sent: jax.Array) -> Any:
        """The table of the own rows and of those that were sent, which are not copied."""
        table = as_table(own)
        return table.with_rows((*table.rows, *sent))

    def read(
        self, own: Any, cached: jax.Array, replies: Sequence[jax.Array], place: jax.Array
    ) -> jax.Array:
        """float32 `[S, F]`: the rows `place` of the own, cached and sent rows, counted as one
        below the other."""
        x = gather(self.apart(own, cached, *map(self.keep, replies)), place)
        return x if self._as_stored else _rounded(x, self.dtype)


class SparseWire:
    """As `RowWire`; `own` is `SparseFeatures`. A row is sent as the columns, int32, and the
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
        columns, values = own.entries(ids, self._entries, 0)
        shape = (*values.shape[:1], -1, *[self._in_word] * (self._in_word > 1))
        bits = jax.lax.bitcast_convert_type(values.astype(self.dtype).reshape(shape), jnp.int32)
        return jnp.concatenate([columns, bits], axis=1)

    def keep(self, sent: jax.Array) -> jax.Array:
        return sent

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
