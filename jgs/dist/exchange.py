"""`FeatureExchange`: the feature rows of a batch's nodes, wherever they lie.

Every rank holds the rows of its own nodes. The missing ones come by one request and one reply
(DistDGL, Zheng et al. 2020, section 5.4; FastSample 2023, section 4: the 2 rounds of hybrid
partitioning), each an all_to_all of equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.first import everywhere
from jgs.dist.route import check_offsets, route
from jgs.errors import InputError
from jgs.graph import as_device
from jgs.graph.features import SparseFeatures
from jgs.ops import gather

WIRE = ("float32", "float16", "bfloat16")
_OVERFLOW = 2**31 - 1


class Store(NamedTuple):
    """What one rank has.

    Fields:
      own: tuple of `[n_i, F]`, the rows of its own nodes in order; or `SparseFeatures`.
      cached: float32 `[C, F]`, or of sparse features int32 `[C, 2K]` as they are sent.
      cache_slot: int32 `[N]`, each node's row in `cached` or -1; `[0]` without a cache.
    """

    own: Any
    cached: jax.Array
    cache_slot: jax.Array


class FeatureExchange:
    """`x, _ = exchange(nodes)`: float32 `[S, F]`, the rows of nodes int32 `[S]`, both `OWN`.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      features: for each local rank the rows of its own nodes: matrices `[n_i, F]` (float32 or
        float16, NumPy or JAX, e.g. memory maps, used where they lie), or `SparseFeatures`.
      capacity: the most nodes asked of a rank in a round. Where some rank needs more, all do
        further rounds: nothing is dropped. Equal on all ranks.
      wire: the dtype of dense rows on their way, one of `WIRE`. A rank's own rows are rounded
        to it too: results do not depend on who owns what.

    Raises `InputError` on the rank whose features do not fit its offsets, and on the others
    `jgs.dist.first.FailedElsewhere`.

    All ranks must call it equally often; a call is 2 rounds, and 2 more for each time
    `capacity` that the most wanted rank is asked for more. Padding (outside `[0, N)`) gets
    rows of zeros.

    Attributes:
      width: `F`.
      extra_rounds: rounds beyond 2 a call so far.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        features: Sequence[Sequence[Any] | SparseFeatures],
        capacity: int,
        wire: str = "float32",
    ):
        if wire not in WIRE:
            raise InputError(f"wire must be one of {', '.join(WIRE)}", repr(wire), "Choose.")
        offsets = check_offsets(offsets, comm.size)
        self.comm, self.wire, self.extra_rounds = comm, jnp.dtype(wire), 0
        self._own, self.width, self._row = _tables(comm, features, offsets)
        empty = np.zeros((0, self.width if self._row is None else 2 * self._row))
        dtype = np.float32 if self._row is None else np.int32
        self._sent = self.wire if self._row is None else jnp.dtype(np.int32)
        self._no_cache = (as_device(empty.astype(dtype)), as_device(np.zeros(0, np.int32)))
        self._bounds, self._offsets = offsets, comm.same(offsets)
        self._asking: dict[int, Any] = {}
        self._num_nodes, self._store = int(offsets[-1]), self._with(self._no_cache)
        self.resize(capacity)

    def replace(self, features: Sequence[Sequence[Any] | SparseFeatures]) -> None:
        """Other rows of the same shapes; nothing stays cached."""
        self._own, self.width, self._row = _tables(self.comm, features, self._bounds)
        self._store = self._with(self._no_cache)

    def resize(self, capacity: int) -> None:
        """Sets `capacity`, on all ranks alike; the next call compiles."""
        # One rank asks nobody: no request need be padded.
        self.capacity = max(int(capacity), 1) if self.comm.size > 1 else 1
        operands = (OWN, OWN, OWN, SAME, SAME)
        self._fetch = self.comm.program(self._one_round, operands, (OWN, SAME))

    def __call__(self, nodes: Any, overflow: Any = None) -> tuple[Any, bool]:
        """The rows, and whether a rank's sample had overflowed: then they are to be drawn again
        by all. `overflow`: `OWN` bool scalars, by default False."""
        if overflow is None:
            overflow = self.comm.own([np.zeros((), bool)] * self.comm.num_local)
        x, rounds = self._fetch(self._store, nodes, overflow, self._offsets, self._nth(0))
        if (num := int(rounds)) == _OVERFLOW:
            return x, True
        for nth in range(1, num):
            more, _ = self._fetch(self._store, nodes, overflow, self._offsets, self._nth(nth))
            x = jax.tree.map(jnp.add, x, more)
            self.extra_rounds += 2
        return x, False

    def _nth(self, number: int) -> Any:
        return self.comm.same(np.int32(number))

    @property
    def row_bytes(self) -> int:
        """What a cached row takes."""
        return 4 * self.width if self._row is None else 8 * self._row

    def cache(self, nodes: Sequence[np.ndarray]) -> None:
        """Keeps the rows of these nodes, int32 `[C]` for each local rank, and no others.

        All ranks call it, with equal `C`; padding, `N`, fills up. Costs a request and a reply
        for each `capacity` nodes of the owner that has most of those that were not kept before;
        where that is one round, of less than twice as many. A new such size compiles.
        """
        before = self.comm.local((self._store.cached, self._store.cache_slot))
        self._store = self._with(self._no_cache)
        size = nodes[0].size
        if self.comm.size == 1 or size == 0:  # there is nobody, or nothing, to ask for
            return
        kept = [self._kept(ids, *of_rank) for ids, of_rank in zip(nodes, before, strict=True)]
        del before  # frees its rows
        cached, missing = [rows for rows, _ in kept], [ids for _, ids in kept]
        nth = [_nth_of_owner(ids, self._bounds) for ids in missing]
        mine = [np.array([of_rank.max() + 1], np.int32) for of_rank in nth]
        most = int(all_gather_rows(self.comm, mine).max())
        # As many of every owner at a time as one round may ask for.
        capacity = min(self.capacity, 1 << (most - 1).bit_length()) if most else 1
        for begin in range(0, most, capacity):
            now = [(begin <= of_rank) & (of_rank < begin + capacity) for of_rank in nth]
            asked = [
                _padded(ids[which], capacity * self.comm.size, self._num_nodes)
                for ids, which in zip(nodes, now, strict=True)
            ]
            rows = self._ask_only(capacity)(self._store, self.comm.own(asked), self._offsets)
            for found, which, some in zip(cached, now, self.comm.local(rows), strict=True):
                found[which] = np.asarray(some)[: np.count_nonzero(which)]
        caches = []
        for ids, found in zip(nodes, cached, strict=True):
            slot = np.full(self._num_nodes + 1, -1, np.int32)
            slot[ids] = np.arange(size, dtype=np.int32)
            caches.append((as_device(found), as_device(slot[:-1].copy())))
        self._store = self._with(*caches)

    def _ask_only(self, capacity: int) -> Any:
        """The program that fills a cache, of rounds of so many nodes of every owner."""
        if capacity not in self._asking:
            program = partial(self._raw_rows, capacity=capacity)
            self._asking[capacity] = self.comm.program(program, (OWN, OWN, SAME), OWN)
        return self._asking[capacity]

    def _kept(
        self, ids: np.ndarray, rows: jax.Array, slots: jax.Array
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows of nodes int32 `[C]` as far as `rows` and `slots`, the cache so far, have
        them, else 0; and the nodes with `N` for those that it has."""
        found = np.zeros((ids.size, rows.shape[1]), rows.dtype)
        if slots.size == 0:
            return found, ids
        real = ids < self._num_nodes
        slot = np.where(real, np.asarray(slots)[np.where(real, ids, 0)], -1)
        found[slot >= 0] = np.asarray(rows)[slot[slot >= 0]]
        return found, np.where(slot >= 0, np.int32(self._num_nodes), ids)

    def _with(self, *caches: tuple[jax.Array, jax.Array]) -> Any:
        if len(caches) == 1:
            caches = caches * self.comm.num_local
        return self.comm.own([Store(o, *c) for o, c in zip(self._own, caches, strict=True)])

    # -- inside the program: one rank --

    def _one_round(
        self,
        store: Store,
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        place, replies, rounds = self._ask(store, nodes, overflow, offsets, nth, self.capacity)
        return self._read(store, place, replies), rounds

    def _raw_rows(
        self, store: Store, nodes: jax.Array, offsets: jax.Array, capacity: int
    ) -> jax.Array:
        """Rows of other ranks' nodes as they are sent, those on the wire in 32 bits."""
        zero = jnp.int32(0)
        place, replies, _ = self._ask(
            store, nodes, jnp.zeros((), bool), offsets, zero, capacity
        )
        num_own, sent = _num_rows(store.own), jnp.concatenate(replies)
        at = jnp.where(place >= num_own, place - num_own, sent.shape[0])
        rows = sent.at[at].get(mode="fill", fill_value=0)
        return rows if self._row is not None else rows.astype(jnp.float32)

    def _ask(
        self,
        store: Store,
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
        capacity: int,
    ) -> tuple[jax.Array, list[jax.Array], jax.Array]:
        """Where each node's row is, the replies, `[c, W]` of each other rank, and the rounds
        that all need, or `_OVERFLOW` if a rank's sample has overflowed: the request tells all
        ranks both."""
        comm, others = self.comm, self.comm.size - 1
        requests, place = route(
            nodes,
            offsets,
            store.cache_slot,
            comm.index(),
            nth,
            capacity=capacity,
            num_own=_num_rows(store.own),
            num_cached=store.cached.shape[0],
        )
        rounds = jnp.where(overflow, _OVERFLOW, requests[:, -1])
        if comm.size == 1:
            return place, [], jnp.maximum(rounds[0], 1)
        asked, rounds = ask(comm, requests.at[:, -1].set(rounds), offsets)
        asked, rank = asked.reshape(comm.size, -1), comm.index()
        rows = [self._pack(store.own, asked[(rank + 1 + i) % comm.size]) for i in range(others)]
        replies = comm.others(rows)
        # `route` counts the replies from rank 0 on; they are in the order of `others`.
        begin = _num_rows(store.own) + store.cached.shape[0]
        owner, nth = jnp.divmod(place - begin, capacity)
        answer = begin + (rank - 1 - owner) % comm.size * capacity + nth
        return jnp.where(place >= begin, answer, place), replies, rounds

    def _pack(self, own: Any, ids: jax.Array) -> jax.Array:
        """Rows as they are sent: `[n, F]`, or of sparse ones columns and values `[n, 2K]`."""
        if self._row is None:
            return gather(own, ids).astype(self._sent)
        with jax.enable_x64(True):  # entries are counted in 64 bits
            real = (ids >= 0) & (ids < own.shape[0])
            start = own.indptr[jnp.where(real, ids, 0)]
            stop = jnp.where(real, own.indptr[jnp.where(real, ids, 0) + 1], start)
            entry = start[:, None] + jnp.arange(self._row, dtype=jnp.int64)
            there = entry < stop[:, None]
            at = jnp.where(there, entry, own.indices.shape[0])
            columns = own.indices.at[at].get(mode="fill", fill_value=0)
            values = own.values.at[at].get(mode="fill", fill_value=0)
        bits = jax.lax.bitcast_convert_type(values, jnp.int32)
        return jnp.concatenate([columns, bits], axis=1)

    def _read(self, store: Store, place: jax.Array, replies: list[jax.Array]) -> jax.Array:
        if self._row is None:
            tables = (*store.own, store.cached, *(r.astype(jnp.float32) for r in replies))
            x = gather(tables, place)
            if self.wire == jnp.float32:
                return x
            # Without a barrier XLA may leave out both casts, of "excess precision".
            return jax.lax.optimization_barrier(x.astype(self.wire)).astype(jnp.float32)
        num_own = _num_rows(store.own)
        there = place >= num_own
        own = gather(store.own, jnp.where(there, -1, place))
        sent = jnp.concatenate([store.cached, *replies])
        if sent.shape[0] == 0:
            return own
        return own + gather(
            _unpack(sent, self._row, self.width), jnp.where(there, place - num_own, -1)
        )


def ask(
    comm: Communicator, requests: jax.Array, offsets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sends the requests of `route`, int32 `[R, c+1]`, in one round.

    Returns int32 `[R * c]`, which of its own rows this rank is asked for by each rank in turn,
    -1 for none; and the number of rounds that all ranks need.
    """
    received, rank = comm.all_to_all(requests), comm.index()
    wanted, first = received[:, :-1], offsets[rank]
    mine = (wanted >= first) & (wanted < offsets[rank + 1])
    return jnp.where(mine, wanted - first, -1).reshape(-1), jnp.max(received[:, -1])


def _unpack(sent: jax.Array, row: int, width: int) -> SparseFeatures:
    """Columns and values `[n, 2 * row]`, as `_pack` sends them, as features `[n, width]`."""
    columns, bits = jnp.split(sent, 2, axis=1)
    values = jax.lax.bitcast_convert_type(bits, jnp.float32)
    with jax.enable_x64(True):
        indptr = jnp.arange(sent.shape[0] + 1, dtype=jnp.int64) * row
    return SparseFeatures(indptr, columns.reshape(-1), values.reshape(-1), width, row)


def _tables(
    comm: Communicator, features: Sequence[Sequence[Any] | SparseFeatures], offsets: np.ndarray
) -> tuple[list[Any], int, int | None]:
    """Each local rank's rows, of equal shapes where the communicator wants it; their width; and
    the most entries of any rank's row, None of dense ones."""
    everywhere(comm, lambda: _check_rows(comm, features, offsets))
    most = int(np.diff(offsets).max())
    sparse = [f for f in features if isinstance(f, SparseFeatures)]
    dense = [[np.asarray(t) for t in f] for f in features if not isinstance(f, SparseFeatures)]
    if not sparse:
        width = dense[0][0].shape[1]
        if comm.uniform:
            return [(_padded(np.concatenate(f), most),) for f in dense], width, None
        return [tuple(map(as_device, f)) for f in dense], width, None
    mine = [np.array([f.max_row, f.indices.shape[0]], np.int64) for f in sparse]
    longest, entries = all_gather_rows(comm, mine).max(axis=0).tolist()
    if not comm.uniform:
        entries = most = 0
    entries, longest = max(entries, 1), max(longest, 1)  # nothing is read from an empty array
    own = [
        SparseFeatures(
            as_device(_padded(np.asarray(f.indptr), most + 1, f.indices.shape[0])),
            as_device(_padded(np.asarray(f.indices), entries)),
            as_device(_padded(np.asarray(f.values), entries)),
            f.num_features,
            longest,
        )
        for f in sparse
    ]
    return own, sparse[0].num_features, longest


def _check_rows(comm: Communicator, features: Sequence[Any], offsets: np.ndarray) -> None:
    for own, rank in zip(features, range(comm.rank, comm.size), strict=False):
        num, want = _num_rows(own), int(offsets[rank + 1] - offsets[rank])
        if num != want:
            raise InputError(
                f"the features of rank {rank} must have a row for each of its {want} nodes",
                f"{num} rows",
                "Give each rank the rows from its offset to the next.",
            )


def _nth_of_owner(nodes: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The position of each node among those of its owner; -1 for padding."""
    owner = np.searchsorted(bounds, nodes, "right") - 1
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], owner[order], "left")
    nth = np.empty(nodes.size, np.int64)
    nth[order] = np.arange(nodes.size) - first
    return np.where(nodes < bounds[-1], nth, -1)


def _padded(array: np.ndarray, length: int, fill: Any = 0) -> np.ndarray:
    """`array` with rows of `fill` up to `length` rows, or as it is."""
    if len(array) >= length:
        return array
    padding = [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, padding, constant_values=fill)


def _num_rows(own: Any) -> int:
    return own.shape[0] if isinstance(own, SparseFeatures) else sum(t.shape[0] for t in own)
