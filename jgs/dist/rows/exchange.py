"""`FeatureExchange`: the feature rows of a batch's nodes, wherever they lie.

Every rank holds the rows of its own nodes. A rank gets the other rows by one request and one
reply, each an all_to_all of equal parts (DistDGL, Zheng et al. 2020, section III-C; FastSample
2023, section 3.3: the 2 rounds of hybrid partitioning).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.rows.demand import Demand, rounded
from jgs.dist.rows.owners import VOID, Owners
from jgs.dist.rows.tables import (
    DenseWire,
    SparseWire,
    StoredWire,
    num_rows,
    own_rows,
    place_own,
)
from jgs.errors import InputError, check_choice
from jgs.graph import as_device
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.models.inputs import Placed

WIRE = ("float32", "float16", "bfloat16")
_FLOATS = ("float16", "float32")


class Store(NamedTuple):
    """The rows that one rank has.

    Fields:
      own: tuple of `[n_i, F]`, the rows of its own nodes in order; or a `RowTable`.
      bounds: int32 `[2, P]`: see `jgs.dist.rows.tables.OwnRows`.
      cached: `[C, W]`, rows of other ranks as the wire keeps them.
      cache_slot: int32 `[N]`, each node's row in `cached`, or -1; `[0]` without a cache.
    """

    own: Any
    bounds: Any
    cached: jax.Array
    cache_slot: jax.Array


class FeatureExchange:
    """`x, _ = exchange(nodes)` reads the rows float32 `[S, F]` of the nodes int32 `[S]`, both
    `OWN`.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      features: for each local rank the rows of its own nodes: matrices `[n_i, F]` (float32 or
        float16, NumPy or JAX), or a `RowTable`. Memory maps are used where they lie.
      capacity: the most nodes that one rank asks another for in a round, equal on all ranks.
        Where some rank needs more, all ranks take further rounds: nothing is dropped.
      wire: the dtype of rows that are sent, one of `WIRE`; for sparse rows the dtype of their
        values. A rank's own rows are rounded to it too, so results do not depend on who owns
        what. Rows that are float16 on all ranks are sent as float16 where the wire is float32.
        Quantized rows are always sent as they are stored. Neither rounds anything.
      in_place: the rows are not put together. A call returns a `Placed` in place of `x`, for
        models that read the rows where they lie. It has no effect where rows must be rounded or
        made dense, and on a call that takes further rounds.

    Raises `InputError` on the rank whose features do not fit its offsets, and
    `jgs.dist.communicators.broadcast.FailedElsewhere` on the others.

    All ranks must call it equally often. A call takes 2 rounds. It takes 2 more each time that
    the rank asked for most nodes is asked for another `capacity` of them. Nodes outside `[0,
    N)` are padding, and get rows of zeros.

    Attributes:
      width: `F`.
      capacity: as above; see `resize` and `fit_to_demand`.
      extra_rounds: the rounds so far beyond 2 a call.
      owners, wire, demand: the `Owners`, how rows are sent and read, and what calls needed.
      store: the `Store` of the ranks, `OWN`.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        features: Sequence[Sequence[Any] | RowTable],
        capacity: int,
        wire: str = "float32",
        in_place: bool = False,
    ):
        check_choice("wire", wire, WIRE)
        self.owners = Owners(comm, offsets)
        self.comm, self.extra_rounds, self._wire_dtype = comm, 0, wire
        self._asking = dict[int, Any]()
        self.replace(features)
        self._in_place = in_place and self.wire.exact
        self.demand = Demand()
        self.resize(capacity)

    def replace(self, features: Sequence[Sequence[Any] | RowTable]) -> None:
        """Takes other rows of the same shapes. Nothing stays cached."""
        tables, bounds, width, entries = own_rows(self.comm, features, self.owners.ranges)
        self._own = list(zip(tables, bounds, strict=True))
        self.wire = self._wire(tables, width, entries)
        empty = np.zeros((0, self.wire.words), self.wire.kept)
        self._no_cache = (as_device(empty), as_device(np.zeros(0, np.int32)))
        self.store = self._with(self._no_cache)

    @property
    def width(self) -> int:
        return self.wire.width

    def _wire(
        self, tables: Sequence[Any], width: int, entries: int | None
    ) -> DenseWire | StoredWire | SparseWire:
        """How the rows of these tables are sent."""
        first = as_table(tables[0])
        kept = all_gather_rows(self.comm, [_kept(as_table(table)) for table in tables])
        if np.ptp(kept[:, 0]):
            raise InputError(
                "ranks must keep their rows alike, also with the same scales",
                f"{first.kind} rows of other scales, or of another form, on some rank",
                "Make them of all rows, and then divide them: jgs partition --feature-dtype.",
            )
        if entries is not None:
            return SparseWire(width, entries, self._wire_dtype)
        if first.form != "dense":
            return StoredWire(width, first.rows[0].dtype)
        each = zip(_FLOATS, kept[:, 1:].min(axis=0).tolist(), strict=True)
        stored = next((name for name, on_all in each if on_all), None)
        half = stored == "float16" and self._wire_dtype == "float32"
        return DenseWire(width, stored if half else self._wire_dtype, stored)

    @property
    def exact(self) -> bool:
        """Whether the rows are matrices that the wire does not round, so that they can be read
        where they lie."""
        return self.wire.exact

    def resize(self, capacity: int) -> None:
        """Sets `capacity`. All ranks call it alike; the next call compiles."""
        self.capacity = self.owners.resize(max(int(capacity), 1))
        operands = (OWN, OWN, OWN, SAME, SAME)
        self._fetch = self.comm.program(self._one_round, operands, (OWN, SAME))
        self._read_placed = self.comm.program(self._read, (OWN, OWN, OWN), OWN)

    def fit_to_demand(self) -> None:
        """Enlarges `capacity` where the calls so far say that one call in ten thousand or more
        will need further rounds. All ranks call it, and have seen the same calls. Where it
        enlarges, the next call compiles."""
        if (need := self.demand.most()) > self.capacity:
            self.resize(rounded(need))

    def __call__(self, nodes: Any, overflow: Any = None) -> tuple[Any, bool]:
        """The rows, and whether the sample of some rank has overflowed: all ranks then draw
        theirs again. `overflow`: `OWN` bool scalars, by default False."""
        if overflow is None:
            overflow = self.comm.own([np.zeros((), bool)] * self.comm.num_local)
        offsets, first = self.owners.offsets, self.owners.first
        found, most = self._fetch(self.store, nodes, overflow, offsets, first)
        if (num := int(most)) == VOID:
            return found, True
        self.demand.add(num)
        further = self.owners.further(num)
        self.extra_rounds += 2 * len(further)
        if self._in_place and not further:
            place, replies = found
            rows = self.wire.apart(self.store.own, self.store.cached, *replies)
            return Placed(rows, place), False
        x = self._put_together(found)
        for nth in further:
            found, _ = self._fetch(self.store, nodes, overflow, offsets, nth)
            x = jax.tree.map(jnp.add, x, self._put_together(found))
        return x, False

    def _put_together(self, found: Any) -> Any:
        return self._read_placed(self.store, *found) if self._in_place else found

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
        owners = self.owners
        before = self.comm.local((self.store.cached, self.store.cache_slot))
        self.store = self._with(self._no_cache)
        size = nodes[0].size
        if self.comm.size == 1 or size == 0:  # nobody is there to ask, or nothing to ask for
            return
        kept = [self._kept(ids, *of_rank) for ids, of_rank in zip(nodes, before, strict=True)]
        del before  # frees the rows of the old cache
        cached, missing = [rows for rows, _ in kept], [ids for _, ids in kept]
        nth = [_nth_of_owner(ids, owners.ranges) for ids in missing]
        mine = [np.array([of_rank.max() + 1], np.int32) for of_rank in nth]
        most = int(all_gather_rows(self.comm, mine).max())
        # Each round asks every owner for as many nodes as a round has room for.
        capacity = min(self.capacity, 1 << (most - 1).bit_length()) if most else 1
        for begin in range(0, most, capacity):
            now = [(begin <= of_rank) & (of_rank < begin + capacity) for of_rank in nth]
            asked = [np.full(capacity * self.comm.size, owners.num_rows, np.int32) for _ in now]
            for room, ids, which in zip(asked, nodes, now, strict=True):
                room[: np.count_nonzero(which)] = ids[which]
            rows = self._ask_only(capacity)(self.store, self.comm.own(asked), owners.offsets)
            for found, which, some in zip(cached, now, self.comm.local(rows), strict=True):
                found[which] = np.asarray(some)[: np.count_nonzero(which)]
        caches = []
        for ids, found in zip(nodes, cached, strict=True):
            real = np.flatnonzero(ids < owners.num_rows)
            slot = np.full(owners.num_rows, -1, np.int32)
            slot[ids[real]] = real
            caches.append((as_device(found), as_device(slot)))
        self.store = self._with(*caches)

    def _ask_only(self, capacity: int) -> Any:
        """The program that fills a cache, by rounds of so many nodes of every owner."""
        if capacity not in self._asking:
            program = partial(self._raw_rows, capacity=capacity)
            self._asking[capacity] = self.comm.program(program, (OWN, OWN, SAME), OWN)
        return self._asking[capacity]

    def _kept(
        self, ids: np.ndarray, rows: jax.Array, slots: jax.Array
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the nodes int32 `[C]` that the cache so far, `rows` and `slots`, has, and
        zeros for the others; and the nodes, with `N` in place of those that it has."""
        found = np.zeros((ids.size, rows.shape[1]), rows.dtype)
        if slots.size == 0:
            return found, ids
        real = ids < self.owners.num_rows
        slot = np.where(real, np.asarray(slots)[np.where(real, ids, 0)], -1)
        found[slot >= 0] = np.asarray(rows)[slot[slot >= 0]]
        return found, np.where(slot >= 0, np.int32(self.owners.num_rows), ids)

    def _with(self, *caches: tuple[jax.Array, jax.Array]) -> Any:
        if len(caches) == 1:
            caches = caches * self.comm.num_local
        return self.comm.own([Store(*o, *c) for o, c in zip(self._own, caches, strict=True)])

    # -- inside a program: one rank ----------------------------------------------------------

    def _one_round(
        self,
        store: Store,
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
    ) -> tuple[Any, jax.Array]:
        place, replies, most = self._ask(store, nodes, overflow, offsets, nth, self.capacity)
        return (place, replies) if self._in_place else self._read(store, place, replies), most

    def _read(self, store: Store, place: jax.Array, replies: list[jax.Array]) -> jax.Array:
        return self.wire.read(store.own, store.cached, replies, place)

    def _raw_rows(
        self, store: Store, nodes: jax.Array, offsets: jax.Array, capacity: int
    ) -> jax.Array:
        """Rows of other ranks' nodes as they are sent, each number in 32 bits."""
        zero = jnp.int32(0)
        place, replies, _ = self._ask(
            store, nodes, jnp.zeros((), bool), offsets, zero, capacity
        )
        num_own, sent = num_rows(store.own), self.wire.keep(jnp.concatenate(replies))
        at = jnp.where(place >= num_own, place - num_own, sent.shape[0])
        return sent.at[at].get(mode="fill", fill_value=0)

    def _ask(
        self,
        store: Store,
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
        capacity: int,
    ) -> tuple[jax.Array, list[jax.Array], jax.Array]:
        """Where each node's row is; the replies, `[c, W]` from each other rank; and the most
        nodes that a rank must ask another for, or `VOID` where the sample of some rank has
        overflowed. The request tells all ranks the last."""
        sizes = self._sizes(store, capacity)
        (place, asked), most = self.owners.find(
            nodes, offsets, nth, overflow, store.cache_slot, **sizes
        )
        replies = self.comm.others(self.packed(store, asked)) if self.comm.size > 1 else []
        return self.placed(store, place, capacity), replies, most

    def _sizes(self, store: Store, capacity: int) -> dict[str, int]:
        num_own, num_cached = num_rows(store.own), store.cached.shape[0]
        return {"capacity": capacity, "num_own": num_own, "num_cached": num_cached}

    # The steps of a round, for an exchange of several tables at once.

    def requests(
        self, store: Store, nodes: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """See `Owners.requests`."""
        sizes = self._sizes(store, self.capacity)
        return self.owners.requests(nodes, offsets, nth, store.cache_slot, **sizes)

    def packed(self, store: Store, asked: jax.Array) -> list[jax.Array]:
        """The replies as they are sent, in the order of `others`. `asked` is that of a
        `Round`."""
        size, rank = self.comm.size, self.comm.index()
        asked = place_own(store.bounds, asked).reshape(size, -1)
        return [
            self.wire.pack(store.own, asked[(rank + 1 + i) % size]) for i in range(size - 1)
        ]

    def placed(self, store: Store, place: jax.Array, capacity: int) -> jax.Array:
        """`route`'s places in the rank's own tables, its cache and the replies of `others`."""
        num_own = num_rows(store.own)
        place = jnp.where(place < num_own, place_own(store.bounds, place), place)
        # `route` counts the replies from rank 0 on, but `others` returns them in another order.
        begin = num_own + store.cached.shape[0]
        owner, nth = jnp.divmod(place - begin, capacity)
        rank, size = self.comm.index(), self.comm.size
        answer = begin + (rank - 1 - owner) % size * capacity + nth
        return jnp.where(place >= begin, answer, place)


def _kept(table: RowTable) -> np.ndarray:
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
