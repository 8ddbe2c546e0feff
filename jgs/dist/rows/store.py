"""`TensorStore`: a user's own tensors of nodes or edges, such as memories or counters, split
over the ranks like the nodes. DistDGL has DistTensor for this (Zheng et al. 2020, section
III-C).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.dist.communicators.comm import Communicator
from jgs.dist.rows.owners import Owners, Token, read
from jgs.dist.rows.split import SplitRows, add_equal, check_saved, flat, own_tables, put_rows
from jgs.errors import InputError, check_choice

DTYPES = ("float32", "int32", "uint32")
_STEP_ROWS = 1 << 10


class Tensor(SplitRows):
    """One tensor `[N, ...]` of a `TensorStore`, which makes it.

    `tensor.read(ids)` returns the rows `[S, ...]` of the ids int32 `[S]`, both `OWN`. Ids
    outside `[0, N)` get zeros. `tensor.write(ids, rows)` replaces rows, `tensor.add(ids, rows)`
    adds to them; ids outside `[0, N)` change nothing. With `Alone()` ids and rows are plain
    arrays.

    What all ranks write in one call is as if one rank wrote it: in the order of the ranks, and
    for each rank in the order of its ids. Where one id has several rows, `write` keeps the last
    one, and `add` adds them up in this order. So N ranks equal one, bit for bit on the CPU.

    Each call takes 2 rounds, and more as `SplitRows` says. Raises `InputError` for ids or rows
    of another shape or dtype.

    Attributes:
      shape, dtype: the shape of a row, and the dtype.
      num_rows, extra_rounds: `N`, and the rounds so far beyond 2 a call.
    """

    def __init__(self, owners: Owners, rows: Sequence[Any]):
        own = own_tables(owners, [flat(of_rank) for of_rank in rows])
        super().__init__(owners, own, rows[0].shape[1:])
        self.dtype, self.num_rows = jnp.dtype(rows[0].dtype), owners.num_rows
        self._put, self._more = self._changing(self._written), self._changing(self._added)

    def read(self, ids: Any) -> Any:
        return self.pull(ids)[0]

    def write(self, ids: Any, rows: Any) -> None:
        self._change(self._put, self._token(ids), rows)

    def add(self, ids: Any, rows: Any) -> None:
        self._change(self._more, self._token(ids), rows)

    def local(self) -> list[np.ndarray]:
        """NumPy copies of each local rank's own rows `[n_r, ...]`."""
        return [own.reshape(len(own), *self.shape) for own in self._local()]

    def load(self, whole: Any) -> None:
        """Takes the rows of `whole` `[N, ...]`. A rank reads its own rows alone."""
        check_saved(whole, self.num_rows, self.shape, self.dtype)
        self._load(flat(whole))

    # -- inside a program: one rank ----------------------------------------------------------

    def _arrived(self, token: Token, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """int32 `[M]`, the rows of this rank that all ranks name (-1: none), and `[M, W]`, what
        they say of these, in the order of the ranks and of their ids."""
        want = ", ".join(map(str, (*token[0].place.shape, *self.shape)))
        form, remedy = f"{self.dtype} [{want}]", "Give the tensor's dtype and shape of a row."
        require_array("rows", rows, f"{form}, one for each of the ids", remedy)
        (own, values), *rounds = self.owners.deliver(token, flat(rows))
        if not rounds:
            return own, values
        asked, said = (
            jnp.concatenate(
                [one.reshape(self.comm.size, -1, *one.shape[1:]) for one in each], 1
            )
            for each in zip(*rounds, strict=True)
        )
        # What a rank says itself goes where its own requests would be: it sends itself none.
        first, num = self.comm.index() * asked.shape[1], own.shape[0]
        nth = jnp.arange(num + asked.size)
        order = jnp.where(nth < first, nth + num, nth - first)
        order = jnp.where(nth < first + num, order, nth)
        ids = jnp.concatenate([own, asked.reshape(-1)])
        return ids[order], jnp.concatenate([values, said.reshape(-1, values.shape[1])])[order]

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
        if self.dtype != jnp.float32:  # the order of the sum changes nothing
            at = jnp.where(ids >= 0, ids, table.shape[0])
            return table.at[at].add(values, mode="drop"), slots
        touched, total, _, slots = add_equal(ids, values, slots, _STEP_ROWS)
        real = jnp.where(touched[:, None] >= 0, total, 0)  # the rest holds anything
        return put_rows(table, touched, read(table, touched) + real), slots


class TensorStore:
    """Any number of named `Tensor`s of the nodes or of the edges, split over the ranks.

    `memory = store.create("memory", (64,))` makes one, `store["memory"]` finds it again.

    Args:
      comm: the communicator; `Alone()` for a loop on one machine.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      edge_offsets: the same for the edges; there are fewer than 2^31. `graph.indptr[offsets]`
        gives each edge to the owner of its target.
      capacity: the most ids that one rank asks another for in a round; by default the most rows
        that a rank has. Messages are padded to it, so several ranks should give what a batch
        needs. Where some rank needs more, all ranks take further rounds.

    For a checkpoint, `jgs.train.loop.checkpoint.save` takes `store.arrays()`, from which
    `store.load_state(arrays)` goes on with any number of ranks.

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
        """Makes the tensor `name` of the "nodes" or "edges". Its rows have this shape and one
        of the `DTYPES`. `rows` has for each local rank its own rows `[n_r, ...]`; by default
        they are zeros."""
        check_choice("dtype", dtype, DTYPES)
        if of not in self._owners:
            rule = f"of must be one of {', '.join(self._owners)}"
            raise InputError(rule, repr(of), "A store of edges needs edge_offsets.")
        if name in self._tensors:
            raise InputError("a tensor's name must be new", name, "Give it another name.")
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
        self._tensors[name] = Tensor(owners, [np.asarray(own, dtype) for own in rows])
        return self._tensors[name]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def arrays(self) -> dict[str, np.ndarray]:
        """Every tensor `[N, ...]` by its name: the values on the process of rank 0, zeros on
        the others. All ranks call it."""
        return {name: tensor._whole() for name, tensor in self._tensors.items()}

    def load_state(self, arrays: dict[str, Any]) -> None:
        """Continues from what `arrays()` returned, or from memory maps of it. It must be equal
        on all ranks: `jgs.dist.broadcast_arrays` sends what rank 0 has read."""
        if sorted(arrays) != sorted(self._tensors):
            raise InputError(
                f"the state must have the tensors {sorted(self._tensors)}",
                sorted(arrays),
                "Create the same tensors first.",
            )
        for name, whole in arrays.items():
            self._tensors[name].load(whole)
