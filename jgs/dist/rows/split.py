"""`SplitRows`: a table whose rows are read and changed by id, on the ranks that own them. It is
what DistDGL's KVStore is (Zheng et al. 2020, section III-C).

`add_equal` adds up what there is for each row, and `put_rows` writes rows. On a CPU the kernels
of jgs/kernels/table_rows.cc do both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import require_array
from jgs.dist.communicators.collect import rows_of_all
from jgs.dist.communicators.comm import OWN, SAME
from jgs.dist.rows.owners import Owners, Token
from jgs.graph import Block
from jgs.kernels.call import floats, handler, vary_alike, where_it_is
from jgs.ops import aggregate


class Sums(NamedTuple):
    """What `add_equal` found: the rows `touched`, int32 `[M']`, each once, in any order, and -1
    after them; their sums `total`, float32 `[M', F]`; their number `num`; and the `slots`,
    int32 `[n]`, in place of those that were given."""

    touched: jax.Array
    total: jax.Array
    num: jax.Array
    slots: jax.Array


def add_equal(ids: jax.Array, rows: jax.Array, slots: jax.Array, step: int) -> Sums:
    """Adds up those of `rows` that belong to the same row of a table, in their order.

    It neither sorts nor works on all of the table.

    Args:
      ids: int32 `[M]`, which of the table's `n` rows each of `rows` belongs to; -1 for none.
      rows: float32 `[M, F]`.
      slots: int32 `[n]`, which may hold anything. Donate it: the result's takes its place.
      step: `M'` is the smallest multiple of it that is at least `M`.
    """
    size = -(-ids.shape[0] // step) * step
    ways = partial(_kernel, size=size), partial(add_equal_plain, size=size)
    return where_it_is(*ways, *vary_alike(ids, rows, slots))


def _kernel(ids, rows, slots, size):
    integers = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((size,), (), slots.shape)]
    results = [integers[0], floats((size, rows.shape[1])), *integers[1:]]
    call = handler("jgs_equal_rows", results, input_output_aliases={2: 3})
    found = call(ids, rows, slots, num_threads=np.int64(kernels.NUM_THREADS))
    return Sums(*vary_alike(*found, rows)[:4])


def add_equal_plain(ids: jax.Array, rows: jax.Array, slots: jax.Array, size: int) -> Sums:
    """`add_equal` in plain JAX; `size` is `M'`."""
    num_slots, nth = slots.shape[0], jnp.arange(ids.shape[0], dtype=jnp.int32)
    real = ids >= 0
    at = jnp.where(real, ids, num_slots)
    # Of the positions that belong to one row, one leads.
    slots = slots.at[at].set(nth, mode="drop")
    leader = jnp.where(real, slots.at[at].get(mode="fill", fill_value=0), 0)
    leads = real & (leader == nth)
    place = jnp.cumsum(leads, dtype=jnp.int32) - 1
    num = jnp.sum(leads, dtype=jnp.int32)
    # What belongs nowhere goes behind the sums, each to a place of its own: in one place they
    # would be a long row.
    behind = num + jnp.cumsum(~real, dtype=jnp.int32) - 1
    touched = (
        jnp.full(size, -1, jnp.int32).at[jnp.where(leads, place, size)].set(ids, mode="drop")
    )
    # Adding rows to their places is the derivative of reading rows from there.
    every = jnp.int32(ids.shape[0])
    indptr = jnp.arange(ids.shape[0] + 1, dtype=jnp.int32)
    block = Block(indptr, jnp.where(real, place[leader], behind), every, every, every)
    zeros = jnp.zeros((size, rows.shape[1]))
    _, transpose = jax.vjp(lambda x: aggregate(block, x, "sum"), zeros)
    (total,) = transpose(rows)
    return Sums(touched, total, num, slots)


def put_rows(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """`table` with its rows `ids` int32 `[M]` replaced by `rows` `[M, ...]`; -1 names no row.
    No id may be given twice. Donate the table: it is then changed where it lies."""
    if table.ndim != 2 or table.dtype != jnp.float32:
        return _put_plain(table, ids, rows)
    return where_it_is(_put_kernel, _put_plain, *vary_alike(table, ids, rows))


def _put_kernel(table, ids, rows):
    put = handler("jgs_put_rows", floats(table.shape), input_output_aliases={0: 0})
    changed = put(table, ids, rows, num_threads=np.int64(kernels.NUM_THREADS))
    return vary_alike(changed, rows)[0]


def _put_plain(table, ids, rows):
    # An index of -1 would wrap around.
    return table.at[jnp.where(ids >= 0, ids, table.shape[0])].set(rows, mode="drop")


class SplitRows:
    """A pytree of arrays `[N, ...]`: each rank has the rows that it owns.

    A pull takes 2 rounds, a find 1, and a change 1. Each further round of a request (see
    `Owners`) takes as many again. All ranks must call each equally often.

    Args:
      owners: which rank owns which row.
      held: `OWN`: for each rank the pytree, `num_own` rows in every leaf, padding included. A
        change takes the memory over.
      shape: of a row of the leaf that is read. The leaf itself is a matrix `[num_own, W]`.
      read: the leaf of the pytree that is read; by default the pytree is that leaf.

    Attributes:
      extra_rounds: the rounds so far that further rounds of requests took.
    """

    def __init__(
        self,
        owners: Owners,
        held: Any,
        shape: tuple[int, ...],
        read: Callable[[Any], Any] = lambda held: held,
    ):
        self.owners, self.comm, self._held = owners, owners.comm, held
        self.shape, self._read, self.extra_rounds = shape, read, 0
        slots = [jnp.zeros(owners.num_own, jnp.int32) for _ in range(self.comm.num_local)]
        self._slots = self.comm.own(slots)
        self._compile()

    def _compile(self) -> None:
        program = self.comm.program
        self._fetch = program(self._one_round, (OWN, OWN, SAME, SAME), (OWN, OWN, SAME))
        self._find = program(self.owners.find, (OWN, SAME, SAME), (OWN, SAME))

    def resize(self, capacity: int) -> None:
        """Sets the `capacity` of the owners. All ranks call it alike; what `_changing` returned
        must be made again."""
        self.owners.resize(capacity)
        self._compile()

    def pull(self, ids: Any) -> tuple[Any, Token]:
        """The rows `[S, ...]` of the ids int32 `[S]`, both `OWN`, and the token of the request.
        Ids outside `[0, N)` get zeros."""
        owners = self.owners
        rows, first, most = self._fetch(self._held, ids, owners.offsets, owners.first)
        token = [first]
        for nth in owners.further(most):
            more, found, _ = self._fetch(self._held, ids, owners.offsets, nth)
            rows = jax.tree.map(jnp.add, rows, more)  # each row comes in one round
            token.append(found)
        self.extra_rounds += 2 * (len(token) - 1)
        return rows, token

    def _token(self, ids: Any) -> Token:
        """The token of the request for the ids int32 `[S]`, `OWN`, without the rows."""
        owners = self.owners
        first, most = self._find(ids, owners.offsets, owners.first)
        further = [self._find(ids, owners.offsets, nth)[0] for nth in owners.further(most)]
        self.extra_rounds += len(further)
        return [first, *further]

    def _changing(self, change: Callable, *kinds: Any) -> Any:
        """`change(held, slots, token, values, ...)`, compiled for all ranks. It runs on each
        rank, and returns the rank's new `held` and `slots`. What all ranks say of its rows it
        takes from `Owners.deliver`. `slots` is int32 `[num_own]`, to be written to, and holds
        anything at first. `kinds` are those of further arguments."""
        return self.comm.program(change, (OWN, OWN, OWN, OWN, *kinds), OWN, donate=(0, 1))

    def _change(self, program: Any, token: Token, values: Any, *more: Any) -> None:
        """Replaces the rows by what `program` makes of them and of `values` `[S, ...]`, `OWN`,
        which have a row for each id of the token, and of its further arguments."""
        self._held, self._slots = program(self._held, self._slots, token, values, *more)
        self.extra_rounds += len(token) - 1

    def _local(self, of: Callable[[Any], Any] = lambda held: held) -> list[Any]:
        """NumPy copies of each local rank's rows, or `of` these: pytrees of `[n_r, ...]`."""
        ranges = self.owners.local_ranges()
        return [
            jax.tree.map(lambda a, n=stop - begin: np.array(a[:n]), of(held))
            for held, (begin, stop) in zip(self.comm.local(self._held), ranges, strict=True)
        ]

    def _whole(self) -> np.ndarray:
        """The leaf that is read, `[N, ...]`: its values on the process of rank 0, elsewhere
        zeros. All ranks call it."""
        tables = [self._read(held) for held in self.comm.local(self._held)]
        return self.joined(tables).reshape(-1, *self.shape)

    def joined(self, own: Sequence[Any]) -> Any:
        """The rows of all ranks, `[N, ...]`, on the process of rank 0, elsewhere zeros. All
        ranks call it. `own` has for each local rank what `_local` returns, or a leaf of it,
        of 4-byte numbers."""
        places = [np.arange(*each, dtype=np.int32) for each in self.owners.local_ranges()]

        def whole(*tables: Any) -> np.ndarray:
            each = zip(tables, places, strict=True)
            rows = [flat(np.asarray(table[: at.size])) for table, at in each]
            found = np.zeros((self.owners.num_rows, rows[0].shape[1]), rows[0].dtype)
            rows_of_all(self.comm, places, rows, found if self.comm.rank == 0 else None)
            return found.reshape(len(found), *tables[0].shape[1:])

        return jax.tree.map(whole, *own)

    def _load(self, whole: Any) -> None:
        """Replaces the rows by those of a pytree of arrays `[N, ...]` that `check_saved` has
        passed. A rank reads its own rows alone, e.g. of memory maps."""
        ranges = [slice(*each) for each in self.owners.local_ranges()]
        self.hold([jax.tree.map(lambda leaf, of=rank: leaf[of], whole) for rank in ranges])

    def hold(self, rows: Sequence[Any]) -> None:
        """Replaces the rows by each local rank's own ones. They are copied."""
        self._held = own_tables(self.owners, rows)

    # -- inside a program: one rank ----------------------------------------------------------

    def _one_round(
        self, held: Any, ids: jax.Array, offsets: jax.Array, nth: jax.Array
    ) -> tuple[jax.Array, Any, jax.Array]:
        token, most = self.owners.find(ids, offsets, nth)
        rows = self.owners.fetch(self._read(held), token)
        return rows.reshape(-1, *self.shape), token, most


def own_tables(owners: Owners, rows: Sequence[Any]) -> Any:
    """The `OWN` pytree of `num_own` rows in every leaf, from each local rank's own rows. It is
    a copy: a program may take its memory over."""

    def padded(own: Any) -> jax.Array:
        table = np.zeros((owners.num_own, *own.shape[1:]), own.dtype)
        table[: len(own)] = own
        return jnp.asarray(table)

    return owners.comm.own([jax.tree.map(padded, own) for own in rows])


def check_saved(whole: Any, num_rows: int, shape: tuple[int, ...], dtype: Any) -> None:
    """Raises `InputError` unless `whole` has `num_rows` rows of this shape and dtype."""
    form = f"{dtype} [{', '.join(map(str, (num_rows, *shape)))}]"
    remedy = (
        "Load what was saved of the same graph and of rows as wide; join the states of "
        "several ranks in their order."
    )
    require_array("the state", whole, form, remedy)


def flat(rows: Any) -> Any:
    """Rows `[n, ...]` as a matrix `[n, W]`."""
    return rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
