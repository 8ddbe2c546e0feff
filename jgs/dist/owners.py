"""`Owners`: how the rows of a table that is split over ranks are asked for, and sent back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.comm import Communicator
from jgs.dist.route import ask, check_offsets, route
from jgs.errors import InputError
from jgs.ops import gather


class Round(NamedTuple):
    """What one rank remembers of a round of requests.

    Fields:
      place: int32 `[S]`, of `route`: where each row was, own ones first, then replies.
      asked: int32 `[R * c]`, the own rows that others asked for; -1 for none.
    """

    place: jax.Array
    asked: jax.Array


Token = list[Round]  # `OWN`; all rounds of a request


class Owners:
    """Of a table of `N` rows, rank `r` has those from `offsets[r]` to `offsets[r+1]`.

    The methods below are called inside a program, on one rank.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`.
      capacity: the most rows asked of a rank in a round, by default the most that a rank has.

    Raises `InputError`.

    Attributes:
      ranges, offsets: `offsets`, in NumPy int32 and as a `SAME` value.
      num_own: the rows of the rank with most: as many has every rank's table, padding included.
      capacity: 1 on one rank, where nobody is asked.
    """

    def __init__(self, comm: Communicator, offsets: Any, capacity: int | None = None):
        self.comm, self.ranges = comm, check_offsets(offsets, comm.size)
        self.num_own = int(np.diff(self.ranges).max())
        capacity = max(self.num_own, 1) if capacity is None else int(capacity)
        if capacity < 1:
            raise InputError("capacity must be at least 1", capacity, "Raise it.")
        self.capacity = capacity if comm.size > 1 else 1
        self.offsets = comm.same(self.ranges)

    def local_ranges(self) -> list[tuple[int, int]]:
        """The rows of each local rank: the first, and one more than the last."""
        ranks = range(self.comm.rank, self.comm.rank + self.comm.num_local)
        return [(int(self.ranges[r]), int(self.ranges[r + 1])) for r in ranks]

    def num_rounds(self, most: Any) -> int:
        """Of a request that asks one rank for `most` rows."""
        return -(-int(most) // self.capacity)

    def padded(self, rows: Any) -> jax.Array:
        """One rank's own rows as its table: a copy, which a program may take over."""
        table = np.zeros((self.num_own, *rows.shape[1:]), rows.dtype)
        table[: len(rows)] = rows
        return jnp.asarray(table)

    def find(
        self, ids: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[Round, jax.Array]:
        """Round `nth` of the requests for the rows `ids` int32 `[S]`, one round of messages;
        and the most rows that a rank asks of one, in all rounds."""
        if ids.ndim != 1 or ids.dtype != jnp.int32:
            raise InputError(
                "nodes must be int32 [S]",
                f"{ids.dtype}{list(ids.shape)}",
                "Pass a batch's nodes.",
            )
        none = jnp.zeros(0, jnp.int32)
        requests, place = route(
            ids,
            offsets,
            none,
            self.comm.index(),
            nth,
            capacity=self.capacity,
            num_own=self.num_own,
            num_cached=0,
        )
        if self.comm.size == 1:
            return Round(place, none), jnp.int32(1)
        asked, most = ask(self.comm, requests, offsets)
        return Round(place, asked), most

    def fetch(
        self, rows: jax.Array, ids: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[jax.Array, Round, jax.Array]:
        """`find`, and the rows `[S, F]` of the own table `rows` and of others' that this round
        brings, in one more; zeros for the others."""
        found, most = self.find(ids, offsets, nth)
        if self.comm.size == 1:
            return read(rows, found.place), found, most
        asked = read(rows, found.asked).reshape(self.comm.size, self.capacity, -1)
        replies = self.comm.all_to_all(asked).reshape(-1, rows.shape[1])
        if rows.dtype == jnp.float32:
            return gather((rows, replies), found.place), found, most
        both = read(rows, found.place), read(replies, found.place - self.num_own)
        own = (found.place < self.num_own)[:, None]
        return jnp.where(own, *both), found, most

    def send(self, values: jax.Array, place: jax.Array) -> jax.Array:
        """`[R * c, F]`: of values `[S, F]`, a row for each place of a round, those for the own
        rows that this rank was asked for in it; one round of messages."""
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
