"""`ShardedEmbedding`: a learned row for every node, kept and updated by the rank that owns it.
Rows are fetched like features. The gradients of the fetched rows go back to the rows' owners,
where a sparse optimiser updates these rows alone. These are DistDGL's distributed embeddings
(Zheng et al. 2020, section III-C).

`TensorStore`: a user's own tensors of nodes or edges, such as memories or counters, split over
the ranks like the nodes, as DistDGL's DistTensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.arrays import require_array
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows.owners import Owners, Token, read
from jgs.dist.rows.split import SplitRows, add_equal, check_saved, flat, own_tables, put_rows
from jgs.errors import InputError, check_choice
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


DTYPES = ("float32", "int32", "uint32")


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
