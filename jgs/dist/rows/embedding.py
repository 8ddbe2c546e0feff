"""`ShardedEmbedding`: a learned row for every node, kept and updated by the rank that owns it.

Rows are fetched like features. The gradients of the fetched rows go back to the rows' owners,
where a sparse optimiser updates these rows alone. These are DistDGL's distributed embeddings
(Zheng et al. 2020, section III-C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.arrays import require_array
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows.owners import Owners, Token, read
from jgs.dist.rows.split import SplitRows, add_equal, check_saved, put_rows
from jgs.errors import InputError
from jgs.sampling.edges.random import as_key_data

_INIT_ROWS = 1 << 16  # made at a time, so that the random bits of a large table fit in RAM
_STEP_ROWS = 1 << 10  # updated at a time: rows and the optimiser's state stay in cache


class Table(NamedTuple):
    """What is learned, of one rank or of all: `rows` float32 `[n, F]`, and the optimiser's
    state of each row, whose leaves have a leading axis `n`."""

    rows: Any
    opt_state: Any


class ShardedEmbedding(SplitRows):
    """A table float32 `[N, F]` of learned rows, split over the ranks like features.

    `rows, token = table.pull(nodes)` returns the rows float32 `[S, F]` of the nodes int32
    `[S]`, both `OWN`. `table.push(token, gradient)` takes the gradient `[S, F]`, `OWN`, with
    respect to those rows, and steps the optimiser. With `Alone()`, the communicator of one
    rank, nodes, rows and gradients are plain arrays: a table for any loop on one machine.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      width: `F`.
      key: a Threefry key. The first row of node `v` is `init(fold_in(key, v), (F,))`: it
        depends on `(key, v)` alone, not on the number of ranks.
      optimizer: an optimiser of optax, e.g. `optax.adam(1e-2)` or `optax.adagrad(1e-2)`.
      capacity: the most nodes that one rank asks another for in a round, equal on all ranks; by
        default the most rows that a rank has. Messages are padded to it, so several ranks
        should give what a batch needs. Where some rank needs more, all ranks take further
        rounds: nothing is dropped.
      init: an initializer like those of `jax.nn.initializers`; by default normal with a
        standard deviation of `1 / sqrt(F)`, as Flax's `Embed` has it.
      late: the update of a push waits until after the next pull, so that it overlaps the step
        in between. That pull reads rows that lack the update: they are one step old. Results
        then differ from those of `late=False`, but not with the number of ranks.

    A row is touched when some rank pulled it, whatever its gradient is. Its gradients are added
    up: first those of the owner itself, then those of rank 0, 1, ..., each rank's in the order
    of its batch. So the bits are the same every time on the CPU. (DGL takes the mean. A node
    that two ranks pulled would then learn half as fast as on one rank.) Then the optimiser
    steps each touched row alone, from that row's own state. A row's state, Adam's count
    included, moves only when the row is touched, as in DGL's `SparseAdam`. Untouched rows
    neither decay nor drift. Options that mix rows, such as clipping by the global norm, see one
    row at a time. The cost follows the rows touched, not the table.

    A pull takes 2 rounds and a push 1, with `extra_rounds` as of `SplitRows`. Nodes outside
    `[0, N)` are padding: their rows are zeros, and their gradients go nowhere.

    Raises `InputError` for what breaks these rules.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        width: int,
        key: Any,
        optimizer: optax.GradientTransformation,
        *,
        capacity: int | None = None,
        init: Callable[[jax.Array, tuple[int, ...]], jax.Array] | None = None,
        late: bool = False,
    ):
        key_data = as_key_data(key)
        if width < 1:
            raise InputError("width must be at least 1", width, "Raise it.")
        self.owners, self.comm = Owners(comm, offsets, capacity), comm
        self.width, self.late, self._optimizer = width, late, optimizer
        self._init = init or jax.nn.initializers.normal(width**-0.5)
        self._pending: tuple[Token, Any, Any] | None = None
        self._unit = comm.same(np.float32(1))
        made = comm.program(self._make, (SAME, SAME), OWN)
        held = made(self.owners.offsets, comm.same(key_data))
        super().__init__(self.owners, held, (width,), lambda table: table.rows)
        self._apply = self._changing(self._update, SAME)

    @property
    def capacity(self) -> int:
        return self.owners.capacity

    def resize(self, capacity: int) -> None:
        """Sets the capacity. All ranks call it alike; the next pull and push compile."""
        self.flush()
        super().resize(capacity)
        self._apply = self._changing(self._update, SAME)

    def pull(self, nodes: Any) -> tuple[Any, Token]:
        """The rows of `nodes`, and the token that `push` needs. Without a push no row is
        touched."""
        rows, token = super().pull(nodes)
        self.flush()
        return rows, token

    def push(self, token: Token, gradient: Any, scale: Any = None) -> None:
        """Adds up the gradients of all ranks for the rows that they pulled, and updates these.

        `gradient` is that of the loss over the seeds of all ranks. A mean over a rank's own
        seeds must be multiplied by the rank's share of the seeds. `scale`, a `SAME` float32
        scalar, multiplies what the optimiser adds to the rows: a learning rate by the steps of
        a run, where an `optax` schedule would count those in which a row was touched.
        """
        self.flush()
        self._pending = (token, gradient, self._unit if scale is None else scale)
        if not self.late:
            self.flush()

    def flush(self) -> None:
        """Applies the push that `late` holds back, if there is one."""
        if self._pending is not None:
            (token, *values), self._pending = self._pending, None
            self._change(self._apply, token, *values)

    def state(self) -> list[Table]:
        """NumPy copies of the rows `offsets[r]` to `offsets[r+1]`, for each local rank. Joined
        in the order of the ranks they are the table of `N` rows.

        A pending push is applied first: a run that saves its state equals one that is resumed
        from it. With `late` results depend on when states are taken.
        """
        self.flush()
        return self._local()

    def own_rows(self) -> list[np.ndarray]:
        """NumPy copies of the rows of each local rank, float32 `[n_r, F]`, without the
        optimiser's state. A pending push is applied first."""
        self.flush()
        return self._local(self._read)

    def rows(self) -> np.ndarray:
        """float32 `[N, F]`: the learned rows on the process of rank 0, zeros on the others. All
        ranks call it. A pending push is applied first."""
        self.flush()
        return self._whole()

    def load_state(self, whole: Table) -> None:
        """Continues from the `joined` states of any number of ranks. A rank reads its own rows
        alone, e.g. of memory maps."""
        self._pending, like = None, self.comm.local(self._held)[0]
        given, wanted = str(jax.tree.structure(whole)), str(jax.tree.structure(like))
        if given != wanted:
            raise InputError(
                "the state must be of the same optimizer", given, f"Make one of {wanted}."
            )
        for leaf, own in zip(jax.tree.leaves(whole), jax.tree.leaves(like), strict=True):
            check_saved(leaf, self.owners.num_rows, own.shape[1:], own.dtype)
        self._load(whole)

    @property
    def held(self) -> Any:
        """`OWN`: each rank's `Table`, and int32 `[n]` that may hold anything. A program of
        whole steps takes the memory of both over, changes them by `stepped`, and what it
        returns is set here. No push may be pending."""
        return self._held, self._slots

    @held.setter
    def held(self, held: Any) -> None:
        self._held, self._slots = held

    # -- inside a program: one rank ----------------------------------------------------------

    def _make(self, offsets: jax.Array, key_data: jax.Array) -> Table:
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        num_own = self.owners.num_own
        nodes = offsets[self.comm.index()] + jnp.arange(num_own, dtype=jnp.int32)

        def row(node):
            made = self._init(jax.random.fold_in(key, node), (self.width,))
            return made.astype(jnp.float32)

        rows = jax.lax.map(row, nodes, batch_size=_INIT_ROWS)
        return Table(rows, jax.vmap(self._optimizer.init)(rows))

    def _update(
        self,
        table: Table,
        slots: jax.Array,
        token: Token,
        gradient: jax.Array,
        scale: jax.Array,
    ) -> tuple[Table, jax.Array]:
        form, size = "[n, W], as the rows that were pulled", token[0].place.shape[0]
        remedy = "Push the gradient with respect to what `pull` returned."
        require_array("the gradient", gradient, form, remedy, n=size, W=self.width)
        said = self.owners.deliver(token, gradient.astype(jnp.float32))
        return self.stepped((table, slots), said, scale)

    def stepped(
        self,
        held: tuple[Table, jax.Array],
        said: Sequence[tuple[jax.Array, jax.Array]],
        scale: jax.Array,
    ) -> tuple[Table, jax.Array]:
        """Within a program: one rank's share of `held` after a step of the optimiser for the
        rows of which all ranks `said` something, as `Owners.deliver` returns it; `scale` as of
        `push`."""
        table, slots = held
        ids, gradients = (jnp.concatenate(each) for each in zip(*said, strict=True))
        rows, total, num, slots = add_equal(ids, gradients, slots, _STEP_ROWS)

        def step(i, table):
            at = jax.lax.dynamic_slice_in_dim(rows, i * _STEP_ROWS, _STEP_ROWS)
            gradient = jax.lax.dynamic_slice_in_dim(total, i * _STEP_ROWS, _STEP_ROWS)
            touched = jax.tree.map(lambda a: read(a, at), table)
            update = jax.vmap(self._optimizer.update)
            updates, opt_state = update(gradient, touched.opt_state, touched.rows)
            updates = updates * scale
            stepped = Table(optax.apply_updates(touched.rows, updates), opt_state)
            return jax.tree.map(lambda a, new: put_rows(a, at, new), table, stepped)

        return jax.lax.fori_loop(0, -(-num // _STEP_ROWS), step, table), slots
