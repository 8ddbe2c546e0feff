"""`TensorStore`: a user's own tensors of nodes or edges, split over the ranks like the nodes.

DistDGL's DistTensor and KVStore (Zheng et al. 2020, sections 5.2 and 5.4): what a loop keeps
for every node, e.g. a memory, a history of activations or counters, is read and changed by id,
wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.collect import rows_of_all
from jgs.dist.comm import OWN, SAME, Communicator
from jgs.dist.owners import Owners, Token, read
from jgs.dist.table_rows import add_equal, put_rows
from jgs.errors import InputError

DTYPES = ("float32", "int32", "uint32")
_STEP_ROWS = 1 << 10


class Tensor:
    """One tensor `[N, ...]` of a `TensorStore`, which makes it.

    `tensor.read(ids)`: the rows `[S, ...]` of the ids int32 `[S]`, both `OWN`; zeros for ids
    outside `[0, N)`. `tensor.write(ids, rows)` replaces rows, `tensor.add(ids, rows)` adds to
    them; ids outside change nothing. With `Alone()` ids and rows are plain arrays.

    What all ranks write at a time is as if one rank wrote it, in the order of the ranks and, of
    a rank, in that of its ids: of several rows for one id `write` keeps the last, and `add`
    adds them up in this order. So N ranks equal one, bit for bit on the CPU.

    Each takes 2 rounds, and 2 more for each time `capacity` that the most wanted rank is asked
    for more: nothing is dropped. All ranks must call it equally often.

    Raises `InputError` for ids or rows of another shape or dtype.

    Attributes:
      shape: of a row; dtype; num_rows: `N`.
      extra_rounds: rounds beyond 2 a call so far.
    """

    def __init__(self, owners: Owners, shape: tuple[int, ...], dtype: Any, rows: Sequence[Any]):
        self._owners, self.comm = owners, owners.comm
        self.shape, self.dtype, self.extra_rounds = shape, jnp.dtype(dtype), 0
        self.num_rows = int(owners.ranges[-1])
        self._width = int(np.prod(shape, dtype=np.int64))
        self._rows: Any = None
        self._slots: Any = None
        program = self.comm.program
        self._fetch = program(self._one_round, (OWN, OWN, SAME, SAME), (OWN, OWN, SAME))
        self._find = program(owners.find, (OWN, SAME, SAME), (OWN, SAME))
        given = (OWN, OWN, OWN, OWN)
        self._put = program(self._written, given, OWN, donate=(0, 1))
        self._more = program(self._added, given, OWN, donate=(0, 1))
        flat = [np.asarray(own, self.dtype).reshape(len(own), self._width) for own in rows]
        self._take_over(flat)

    def read(self, ids: Any) -> Any:
        rows, _, most = self._fetch(self._rows, ids, self._owners.offsets, self._nth(0))
        for nth in range(1, self._further(most)):
            more, *_ = self._fetch(self._rows, ids, self._owners.offsets, self._nth(nth))
            rows = jax.tree.map(jnp.add, rows, more)  # each row comes in one round
        return rows

    def write(self, ids: Any, rows: Any) -> None:
        self._rows, self._slots = self._put(self._rows, self._slots, self._token(ids), rows)

    def add(self, ids: Any, rows: Any) -> None:
        self._rows, self._slots = self._more(self._rows, self._slots, self._token(ids), rows)

    def local(self) -> list[np.ndarray]:
        """NumPy copies of each local rank's own rows `[n_r, ...]`."""
        ranges = self._owners.local_ranges()
        return [
            np.array(rows[: stop - begin]).reshape(-1, *self.shape)
            for rows, (begin, stop) in zip(self.comm.local(self._rows), ranges, strict=True)
        ]

    def load(self, whole: Any) -> None:
        """Takes the rows of `whole` `[N, ...]`, of which a rank reads its own only."""
        if whole.shape != (self.num_rows, *self.shape) or whole.dtype != self.dtype:
            raise InputError(
                f"a tensor's rows must be {self.dtype}{[self.num_rows, *self.shape]}",
                f"{whole.dtype}{list(whole.shape)}",
                "Load what a store with the same tensors saved, of the same graph.",
            )
        ranges = self._owners.local_ranges()
        self._take_over([np.asarray(whole[a:b]).reshape(b - a, self._width) for a, b in ranges])

    def _take_over(self, rows: Sequence[np.ndarray]) -> None:
        self._rows = self.comm.own([self._owners.padded(own) for own in rows])
        slots = [jnp.zeros(self._owners.num_own, jnp.int32) for _ in rows]
        self._slots = self.comm.own(slots)

    def _nth(self, number: int) -> Any:
        return self.comm.same(np.int32(number))

    def _further(self, most: Any) -> int:
        num = self._owners.num_rounds(most)
        self.extra_rounds += 2 * max(num - 1, 0)
        return num

    def _token(self, ids: Any) -> Token:
        found, most = self._find(ids, self._owners.offsets, self._nth(0))
        token = [found]
        for nth in range(1, self._further(most)):
            token.append(self._find(ids, self._owners.offsets, self._nth(nth))[0])
        return token

    # -- inside a program: one rank ----------------------------------------------------------

    def _one_round(
        self, rows: jax.Array, ids: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[jax.Array, Any, jax.Array]:
        found, token, most = self._owners.fetch(rows, ids, offsets, nth)
        return found.reshape(-1, *self.shape), token, most

    def _arrived(self, token: Token, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """int32 `[M]` and `[M, W]`: which own rows are meant (-1: none) by what all ranks said,
        in the order of the ranks and of their ids; and what they said."""
        want = (*token[0].place.shape, *self.shape)
        if rows.shape != want or rows.dtype != self.dtype:
            raise InputError(
                f"rows must be {self.dtype}{list(want)}, one for each of the ids",
                f"{rows.dtype}{list(rows.shape)}",
                "Give the tensor's dtype and shape of a row.",
            )
        owners, values = self._owners, rows.reshape(-1, self._width)
        place = token[0].place  # own rows come in the first round only
        own = jnp.where(place < owners.num_own, place, -1)
        size = self.comm.size
        if size == 1:
            return own, values
        asked = jnp.concatenate([one.asked.reshape(size, -1) for one in token], axis=1)
        sent = [owners.send(values, one.place).reshape(size, -1, self._width) for one in token]
        every = jnp.concatenate(sent, axis=1)
        room = max(own.shape[0], asked.shape[1])
        asked = jnp.pad(asked, ((0, 0), (0, room - asked.shape[1])), constant_values=-1)
        every = jnp.pad(every, ((0, 0), (0, room - every.shape[1]), (0, 0)))
        # Nobody asks itself: in that row its own ones are put.
        rank = self.comm.index()
        own = jnp.pad(own, (0, room - own.shape[0]), constant_values=-1)
        values = jnp.pad(values, ((0, room - values.shape[0]), (0, 0)))
        asked, every = asked.at[rank].set(own), every.at[rank].set(values)
        return asked.reshape(-1), every.reshape(-1, self._width)

    def _written(
        self, table: jax.Array, slots: jax.Array, token: Token, rows: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        ids, values = self._arrived(token, rows)
        nth = jnp.arange(ids.shape[0], dtype=jnp.int32)
        at = jnp.where(ids >= 0, ids, slots.shape[0])
        slots = slots.at[at].set(-1, mode="drop").at[at].max(nth, mode="drop")
        last = read(slots, ids) == nth
        return put_rows(table, jnp.where(last, ids, -1), values), slots

    def _added(
        self, table: jax.Array, slots: jax.Array, token: Token, rows: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        ids, values = self._arrived(token, rows)
        if self.dtype != jnp.float32:  # in any order the same
            at = jnp.where(ids >= 0, ids, table.shape[0])
            return table.at[at].add(values, mode="drop"), slots
        touched, total, _, slots = add_equal(ids, values, slots, _STEP_ROWS)
        real = jnp.where(touched[:, None] >= 0, total, 0)  # behind, anything
        return put_rows(table, touched, read(table, touched) + real), slots


class TensorStore:
    """Any number of named `Tensor`s of the nodes, or of the edges, split over the ranks.

    `memory = store.create("memory", (64,))` makes one, `store["memory"]` finds it again.

    Args:
      comm: the communicator; `Alone()` for a loop on one machine.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      edge_offsets: likewise of the edges, fewer than 2^31: `graph.indptr[offsets]` gives each
        edge to the owner of its target.
      capacity: the most ids asked of a rank in a round, by default the most rows that a rank
        has: of several ranks give what a batch needs, messages are padded to it. Where some
        rank needs more, all do further rounds.

    A checkpoint: `store.arrays()` is a dict of NumPy arrays for `jgs.train.checkpoint.save`,
    and `store.load_state(arrays)` goes on from it, with any number of ranks.

    Raises `InputError` for what breaks these rules.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        *,
        edge_offsets: Any = None,
        capacity: int | None = None,
    ):
        self.comm, self._tensors = comm, dict[str, Tensor]()
        self._owners = {"nodes": Owners(comm, offsets, capacity)}
        if edge_offsets is not None:
            self._owners["edges"] = Owners(comm, edge_offsets, capacity)

    def create(
        self,
        name: str,
        shape: tuple[int, ...] = (),
        dtype: str = "float32",
        *,
        of: str = "nodes",
        rows: Sequence[Any] | None = None,
    ) -> Tensor:
        """The new tensor `name`, of rows of `shape` and one of the `DTYPES`, of the "nodes" or
        "edges". `rows`: for each local rank its own rows `[n_r, ...]`, by default zeros."""
        for what, value, choices in (("dtype", dtype, DTYPES), ("of", of, tuple(self._owners))):
            if value not in choices:
                raise InputError(
                    f"{what} must be one of {', '.join(choices)}",
                    repr(value),
                    "Choose one; a store of edges needs edge_offsets.",
                )
        if name in self._tensors:
            raise InputError("a tensor's name must be new", name, "Choose another.")
        owners = self._owners[of]
        shapes = [(stop - begin, *shape) for begin, stop in owners.local_ranges()]
        if rows is None:
            rows = [np.zeros(each, dtype) for each in shapes]
        if [np.shape(own) for own in rows] != shapes:
            raise InputError(
                "a tensor must have a row for each of a rank's nodes or edges",
                " and ".join(str(list(np.shape(own))) for own in rows),
                f"Give {' and '.join(str(list(each)) for each in shapes)}.",
            )
        self._tensors[name] = Tensor(owners, tuple(shape), dtype, rows)
        return self._tensors[name]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def arrays(self) -> dict[str, np.ndarray]:
        """Every tensor `[N, ...]` by its name: its values on the process of rank 0, elsewhere
        zeros. All ranks call it."""
        return {name: self._whole(tensor) for name, tensor in self._tensors.items()}

    def _whole(self, tensor: Tensor) -> np.ndarray:
        whole = np.zeros((tensor.num_rows, *tensor.shape), tensor.dtype)
        flat = whole.reshape(tensor.num_rows, int(np.prod(tensor.shape, dtype=np.int64)))
        places = [np.arange(*own, dtype=np.int32) for own in tensor._owners.local_ranges()]
        rows = [own.reshape(len(own), flat.shape[1]) for own in tensor.local()]
        rows_of_all(self.comm, places, rows, flat if self.comm.rank == 0 else None)
        return whole

    def load_state(self, arrays: dict[str, Any]) -> None:
        """Continues from `arrays()`, equal on all ranks (`jgs.dist.broadcast_arrays` sends what
        rank 0 has read), or memory maps of it."""
        if sorted(arrays) != sorted(self._tensors):
            raise InputError(
                f"the state must have the tensors {sorted(self._tensors)}",
                sorted(arrays),
                "Create the same tensors first.",
            )
        for name, whole in arrays.items():
            self._tensors[name].load(whole)
