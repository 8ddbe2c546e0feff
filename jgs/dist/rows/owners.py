"""`Owners`: which rank owns a row, and how ranks ask each other for rows; `Demand`: how much
that has needed, and what later steps will hardly exceed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from jgs.arrays import fits, require_array
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.graph import Schema
from jgs.kernels.call import handler, where_it_is
from jgs.ops import gather

_CHANCE = 1e-4  # a tenth of the promised chance, because needs are not quite normal


class Demand:
    """Takes what each step needs, at first `needs`, and says by `most` what later steps will
    need.

    Steps are taken to be independent, and their needs to be normal with unknown mean and
    deviation. A further step then exceeds `mean + t s sqrt(1 + 1/n)` in one of ten thousand
    cases, where `t` is the quantile of Student's distribution.
    """

    def __init__(self, needs: Iterable[int] = ()) -> None:
        self._num, self._sum, self._squares, self._largest = 0, 0, 0, 0  # Python's are exact
        for need in needs:
            self.add(need)

    def add(self, need: int) -> None:
        self._num += 1
        self._sum += need
        self._squares += need * need
        self._largest = max(self._largest, need)

    def most(self) -> int:
        """At least the largest need so far, at most twice that; 0 before any step."""
        n = self._num
        if n < 2:  # nothing is known of how they differ
            return math.ceil(1.1 * self._largest)
        variance = max(self._squares - self._sum * self._sum / n, 0.0) / (n - 1)
        quantile = float(scipy.special.stdtrit(n - 1, 1 - _CHANCE))
        bound = self._sum / n + quantile * math.sqrt(variance * (1 + 1 / n))
        return max(self._largest, min(math.ceil(bound), 2 * self._largest))


def rounded(need: int) -> int:
    """A capacity for `need`: the next multiple of 64, at least 1."""
    return max(1, -(-need // 64) * 64)


_MOST = 2**31 - 1


def check_offsets(offsets: Any, size: int) -> np.ndarray:
    """`offsets` as int32 `[size + 1]`. Raises `InputError` unless each rank has its range."""
    array = np.asarray(offsets)
    good = fits(array, "integers [n + 1]", n=size)
    if good:
        array = array.astype(np.int64)  # differences of unsigned numbers are never below 0
        good = array[0] == 0 and array[-1] <= _MOST and min(np.diff(array)) >= 0
    if not good:
        raise InputError(
            f"offsets must be {size + 1} ints that do not decrease, from 0 to the number of "
            f"nodes, at most {_MOST}",
            array.tolist(),
            "Give where each rank's own nodes begin, and the number of nodes.",
        )
    return array.astype(np.int32)


def first_learned(schema: Schema, tables: Sequence[Any]) -> dict[int, int]:
    """By the number of each type whose table is None: the first learned row of its nodes, where
    those of all such types lie one after the other."""
    bare = [number for number, table in enumerate(tables) if table is None]
    counts = [schema.node_types[number][1] for number in bare]
    return dict(zip(bare, np.cumsum([0, *counts]).tolist(), strict=False))


def evenly_divided(num_rows: int, num_ranks: int) -> np.ndarray:
    """int `[R+1]`: the offsets by which ranks own equally many rows, or some one less."""
    return np.arange(num_ranks + 1) * num_rows // num_ranks


def offsets_by_type(schema: Schema, num_ranks: int) -> list[np.ndarray]:
    """For each node type int `[R+1]`: rank `r` owns its nodes from `offsets[r]` to
    `offsets[r+1]`, counted within the type. Raises `InputError`."""
    parts = schema.every_part
    if len(parts) == 1:
        return [evenly_divided(count, num_ranks) for count in parts[0]]
    if len(parts) % num_ranks:
        raise InputError(
            "the parts of a schema must be a multiple of the ranks",
            f"{len(parts)} for {num_ranks} ranks",
            "Give the schema of a graph in as many parts.",
        )
    ends = np.cumsum([[0] * len(schema.node_types), *parts], axis=0)
    return list(ends[:: len(parts) // num_ranks].T)


def route(
    nodes: jax.Array,
    offsets: jax.Array,
    cache_slot: jax.Array,
    rank: jax.Array,
    round: jax.Array,
    *,
    capacity: int,
    num_own: int,
    num_cached: int,
) -> tuple[jax.Array, jax.Array]:
    """The requests of one round, and where each node's row will be.

    Args:
      nodes: int32 `[S]`; what lies outside `[0, N)` is padding.
      offsets: int32 `[R+1]`, not decreasing, from 0 to `N`: rank `r` owns the nodes from
        `offsets[r]` to `offsets[r+1]`.
      cache_slot: int32 `[N]`, each node's row in this rank's cache or -1; `[0]`: no cache.
      rank, round: int32 scalars; the first round is 0.
      capacity: `c`, the most nodes to ask a rank for in a round.
      num_own, num_cached: the rows of the own tables, at least the rank's nodes, and of the
        cache.

    Returns:
      requests int32 `[R, c+1]`: the nodes to ask each rank for, in order, padded with `N`. The
      last column holds the most nodes that one rank must be asked for, in all rounds.
      place int32 `[S]`: the node's row in a table of the own rows, then the cache's, then the
      replies `[R * c]`; -1 for padding, and for the nodes of other rounds. Own and cached nodes
      belong to the first round.
    """
    static = {"capacity": capacity, "num_own": num_own, "num_cached": num_cached}
    shapes = ((offsets.shape[0] - 1, capacity + 1), nodes.shape)

    def kernel(*operands):
        results = [jax.ShapeDtypeStruct(s, jnp.int32) for s in shapes]
        sizes = {"num_own": np.int64(num_own), "num_cached": np.int64(num_cached)}
        return tuple(handler("jgs_route", results)(*operands, **sizes))

    return where_it_is(
        kernel, partial(_plain, **static), nodes, offsets, cache_slot, rank, round
    )


def _plain(nodes, offsets, cache_slot, rank, round, *, capacity, num_own, num_cached):
    num_ranks, last = offsets.shape[0] - 1, offsets[-1]
    real = (nodes >= 0) & (nodes < last)
    owner = jnp.searchsorted(offsets, nodes, side="right").astype(jnp.int32) - 1
    slot = jnp.full_like(nodes, -1)
    if cache_slot.shape[0] > 0:
        slot = jnp.where(real, cache_slot.at[nodes].get(mode="clip"), -1)
    own = real & (owner == rank)
    remote = real & ~own & (slot < 0)
    mine = remote[:, None] & (owner[:, None] == jnp.arange(num_ranks))
    before = jnp.cumsum(mine, axis=0, dtype=jnp.int32)
    nth = jnp.sum(jnp.where(mine, before, 0), axis=1) - 1 - round * capacity
    now = remote & (nth >= 0) & (nth < capacity)
    most = jnp.max(before[-1:], initial=0)
    requests = jnp.full((num_ranks, capacity + 1), last, jnp.int32).at[:, capacity].set(most)
    at = (jnp.where(now, owner, num_ranks), jnp.where(now, nth, 0))
    requests = requests.at[at].set(nodes, mode="drop")
    place = jnp.where(now, num_own + num_cached + owner * capacity + nth, -1)
    first = round == 0
    place = jnp.where(first & own, nodes - offsets[rank], place)
    place = jnp.where(first & real & ~own & (slot >= 0), num_own + slot, place)
    return requests, place.astype(jnp.int32)


class Round(NamedTuple):
    """What one rank remembers of a round of requests: the `place` of each row, int32 `[S]`,
    from `route`; and which of its own rows each rank in turn has `asked` for, int32 `[R * c]`,
    -1 for none, or `[0]` on one rank."""

    place: jax.Array
    asked: jax.Array


Token = list[Round]  # `OWN`: all rounds of a request


class Owners:
    """Rank `r` owns the rows from `offsets[r]` to `offsets[r+1]`, of `N` in all.

    A request names rows by id. In a round each rank asks every other rank for at most
    `capacity` rows. Where some rank needs more, all ranks take further rounds: nothing is
    dropped.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`.
      capacity: equal on all ranks; by default the most rows that a rank owns.

    Raises `InputError`.

    Attributes:
      ranges, offsets: `offsets`, in NumPy int32 and as a `SAME` value.
      num_rows: `N`.
      num_own: the rows of the rank that owns most.
      capacity: 1 on one rank, where nobody is asked.
      first: the number of a request's first round, 0, as a `SAME` value.
    """

    def __init__(self, comm: Communicator, offsets: Any, capacity: int | None = None):
        self.comm, self.ranges = comm, check_offsets(offsets, comm.size)
        self.num_rows, self.num_own = int(self.ranges[-1]), int(np.diff(self.ranges).max())
        self.resize(max(self.num_own, 1) if capacity is None else int(capacity))
        self.offsets, self.first = comm.same(self.ranges), comm.same(np.int32(0))

    def resize(self, capacity: int) -> int:
        """Sets `capacity`, for programs that are made from now on, and returns it."""
        if capacity < 1:
            raise InputError("capacity must be at least 1", capacity, "Raise it.")
        self.capacity = capacity if self.comm.size > 1 else 1
        return self.capacity

    def local_ranges(self) -> list[tuple[int, int]]:
        """The rows of each local rank: the first, and one more than the last."""
        ranks = range(self.comm.rank, self.comm.rank + self.comm.num_local)
        return [(int(self.ranges[r]), int(self.ranges[r + 1])) for r in ranks]

    def further(self, most: Any) -> list[Any]:
        """The numbers, `SAME`, of the rounds that a request takes after its first, where one
        rank is asked for `most` rows."""
        num = -(-int(most) // self.capacity)
        return [self.comm.same(np.int32(nth)) for nth in range(1, num)]

    # -- inside a program: one rank ----------------------------------------------------------

    def find(
        self,
        ids: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
        cached: jax.Array | None = None,
        **sizes: int,
    ) -> tuple[Round, jax.Array]:
        """Round `nth` of the request for the rows `ids`: one round of messages.

        Args:
          ids: int32 `[S]`; what lies outside `[0, N)` is padding.
          offsets, nth: the attribute `offsets`, and one of the numbers `first` and `further`.
          cached: int32 `[N]`, each id's row in a cache, or -1; cached rows are not asked for.
          sizes: `route`'s, where they differ: `capacity`, `num_own`, and `num_cached`, 0.

        Returns the round, and the most rows that a rank must ask another for, in all rounds.
        """
        requests, place = self.requests(ids, offsets, nth, cached, **sizes)
        if self.comm.size == 1:
            return Round(place, jnp.zeros(0, jnp.int32)), requests[0, -1]
        asked, most = self.asked(self.comm.all_to_all(requests), offsets)
        return Round(place, asked), most

    def requests(
        self,
        ids: jax.Array,
        offsets: jax.Array,
        nth: jax.Array,
        cached: jax.Array | None = None,
        **sizes: int,
    ) -> tuple[jax.Array, jax.Array]:
        """What `find` sends each rank, int32 `[R, c+1]`, and where each row will be; both are
        `route`'s."""
        require_array("nodes", ids, "int32 [S]", "Pass a batch's nodes.")
        sizes = {"capacity": self.capacity, "num_own": self.num_own, "num_cached": 0} | sizes
        slots = jnp.zeros(0, jnp.int32) if cached is None else cached
        return route(ids, offsets, slots, self.comm.index(), nth, **sizes)

    def asked(self, received: jax.Array, offsets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of the requests that all ranks sent this one: its own rows that they ask for, as in
        `Round`; and the most rows that a rank must ask another for."""
        rank, wanted = self.comm.index(), received[:, :-1]
        mine = (wanted >= offsets[rank]) & (wanted < offsets[rank + 1])
        asked = jnp.where(mine, wanted - offsets[rank], -1).reshape(-1)
        return asked, jnp.max(received[:, -1])

    def fetch(self, table: jax.Array, found: Round) -> jax.Array:
        """The rows `[S, W]` that a round of `find` brings, of every rank's `table`
        `[num_own, W]`; zeros for the ids of other rounds. One round of messages."""
        if self.comm.size == 1:
            return read(table, found.place)
        asked = read(table, found.asked).reshape(self.comm.size, self.capacity, -1)
        replies = self.comm.all_to_all(asked).reshape(-1, table.shape[1])
        if table.dtype == jnp.float32:
            return gather((table, replies), found.place)
        both = read(table, found.place), read(replies, found.place - self.num_own)
        return jnp.where((found.place < self.num_own)[:, None], *both)

    def deliver(self, token: Token, values: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """What all ranks say of this rank's rows, where `values` `[S, W]` has a row for each
        id of a request. One round of messages for each round of the request.

        Returns pairs of int32 `[M]`, which of its own rows is meant (-1: none), and `[M, W]`:
        what this rank says itself, then what each round brings, `R * c` rows in the order of
        the ranks.
        """
        place = token[0].place  # own rows come in the first round only
        said = [(jnp.where(place < self.num_own, place, -1), values)]
        if self.comm.size > 1:
            said += [(one.asked, self._sent(values, one.place)) for one in token]
        return said

    def _sent(self, values: jax.Array, place: jax.Array) -> jax.Array:
        num = self.comm.size * self.capacity
        slot = jnp.where(place >= self.num_own, place - self.num_own, num)
        batch = jnp.arange(place.shape[0], dtype=jnp.int32)
        sender = jnp.full(num, -1, jnp.int32).at[slot].set(batch, mode="drop")
        sent = read(values, sender).reshape(self.comm.size, self.capacity, -1)
        return self.comm.all_to_all(sent).reshape(num, -1)


def read(array: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of an array `[n, ...]`; zeros for ids outside."""
    if array.ndim == 2 and array.dtype == jnp.float32:
        return gather(array, ids)
    return array.at[ids].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def to_words(column: jax.Array) -> jax.Array:
    """int32 `[R, W]`: the bits of `[R, n]` of 8, 16, 32 or 64 bits, with zeros at the end where
    it takes some."""
    in_word = 4 // column.dtype.itemsize
    if in_word > 1:
        column = jnp.pad(column, ((0, 0), (0, -column.shape[1] % in_word)))
        column = column.reshape(column.shape[0], -1, in_word)
    words = jax.lax.bitcast_convert_type(column, jnp.int32)
    return words.reshape(words.shape[0], -1)


def from_words(words: jax.Array, dtype: Any, num: int) -> jax.Array:
    """The column `[R, num]` of this type of which these are the `to_words`."""
    if jnp.dtype(dtype).itemsize == 8:
        words = words.reshape(words.shape[0], -1, 2)
    column = jax.lax.bitcast_convert_type(words, dtype)
    return column.reshape(column.shape[0], -1)[:, :num]
