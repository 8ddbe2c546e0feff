"""`ShardedEmbedding`: a learned row for every node, kept and updated by the rank that owns it.

DistDGL's distributed embeddings (Zheng et al. 2020, section 5.4, the KVStore): rows are fetched
like features, and the gradients of the fetched rows alone go back to their owners, where a
sparse optimiser updates these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.dist.comm import OWN, SAME, Communicator
from jgs.dist.owners import Owners, Token, read
from jgs.dist.table_rows import add_equal, put_rows
from jgs.errors import InputError
from jgs.sampling.random import as_key_data

_INIT_ROWS = 1 << 16  # made at a time: the random bits of a large table need not fit in RAM
_STEP_ROWS = 1 << 10  # updated at a time: they and the optimiser's state stay in cache


class Table(NamedTuple):
    """What is learned; of one rank `n` rows, or of the whole graph `N`.

    Fields:
      rows: float32 `[n, F]`.
      opt_state: the optimiser's state of each row: a leading axis `n` in every leaf.
    """

    rows: Any
    opt_state: Any


class ShardedEmbedding:
    """A table float32 `[N, F]` of learned rows, split over the ranks like features.

    `rows, token = table.pull(nodes)`: float32 `[S, F]`, the rows of nodes int32 `[S]`, both
    `OWN`. `table.push(token, gradient)`: takes the gradient `[S, F]`, `OWN`, with respect to
    those rows, and steps the optimiser. With `Alone()`, the communicator of one rank, nodes,
    rows and gradients are plain arrays: a table for any loop on one machine.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      width: `F`.
      key: a Threefry key. The first row of node `v` is `init(fold_in(key, v), (F,))`: it
        depends on `(key, v)` alone, not on the number of ranks.
      optimizer: of optax, e.g. `optax.adam(1e-2)` or `optax.adagrad(1e-2)`.
      capacity: the most nodes asked of a rank in a round. Where some rank needs more, all do
        further rounds: nothing is dropped. Equal on all ranks. By default the most rows that
        a rank has: of several ranks give what a batch needs, messages are padded to it.
      init: an initializer as those of `jax.nn.initializers`; by default normal with a standard
        deviation of `1 / sqrt(F)`, as Flax's `Embed`.
      late: the update of a push waits until after the next pull, so that it overlaps the step
        in between. That pull then reads rows without the update (one step stale): results
        differ from `late=False`, and still not with the number of ranks.

    The sparse update: a row is touched when some rank pulled it, whatever its gradient is. Its
    gradients, of all ranks and of repeated nodes, are added: own ones first, then those of
    rank 0, 1, ... and each rank's in batch order, so on the CPU the same bits every time. Then
    the optimiser steps each touched row alone, from that row's own state. A row's state,
    Adam's count included, moves only when the row is touched, as in DGL's `SparseAdam`
    (`torch.optim.SparseAdam` has one count for the table): untouched rows neither decay nor
    drift, and a row goes where dense Adam would take it if the other steps had not been. DGL
    takes the mean where we add; then a node that two ranks pulled would learn half as fast as
    on one rank. Options that mix rows (clipping by the global norm) see one row at a time. The
    cost follows the rows touched, not the table.

    All ranks must call it equally often. A pull is 2 rounds and a push 1, and as many more for
    each time `capacity` that the most wanted rank is asked for more. Padding, nodes outside
    `[0, N)`, gets zeros, and its gradients go nowhere.

    Raises `InputError` for what breaks these rules.

    Attributes:
      extra_rounds: rounds beyond these so far.
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
        self._owners = Owners(comm, offsets, capacity)
        self.comm, self.width, self.late = comm, width, late
        self.capacity = self._owners.capacity
        self.extra_rounds = 0
        self._optimizer = optimizer
        self._init = init or jax.nn.initializers.normal(width**-0.5)
        self._pending: tuple[Token, Any] | None = None
        make = comm.program(self._make, (SAME, SAME), OWN)
        self._table, self._slots = make(self._owners.offsets, comm.same(key_data))
        self._fetch = comm.program(self._owners.fetch, (OWN, OWN, SAME, SAME), (OWN, OWN, SAME))
        self._apply = comm.program(self._update, (OWN, OWN, OWN, OWN), OWN, donate=(0, 1))

    def pull(self, nodes: Any) -> tuple[Any, Token]:
        """The rows of `nodes`, and what `push` needs. Without a push nothing is touched."""
        rows, first, most = self._round(nodes, 0)
        token = [first]
        for nth in range(1, self._owners.num_rounds(most)):
            more, further, _ = self._round(nodes, nth)
            rows = jax.tree.map(jnp.add, rows, more)
            token.append(further)
        self.extra_rounds += 2 * (len(token) - 1)
        self.flush()
        return rows, token

    def push(self, token: Token, gradient: Any) -> None:
        """Adds up what all ranks say of the rows that they pulled, and updates these.

        `gradient` is of the loss of all ranks' seeds: a mean over a rank's own seeds must be
        weighed by its share of them.
        """
        self.flush()
        self._pending = (token, gradient)
        self.extra_rounds += len(token) - 1
        if not self.late:
            self.flush()

    def flush(self) -> None:
        """Applies the push that `late` holds back, if any."""
        if self._pending is not None:
            (token, gradient), self._pending = self._pending, None
            self._table, self._slots = self._apply(self._table, self._slots, token, gradient)

    def state(self) -> list[Table]:
        """NumPy copies for each local rank, rows `offsets[r]` to `offsets[r+1]` of the whole.

        Joined in rank order they are the table of `N` rows, whatever the number of ranks; no
        rank ever holds another's. A pending push is applied first: a run that saves its state
        equals one that is resumed from it. (With `late` the next pull then sees that push, so
        that results depend on when states are taken.)
        """
        self.flush()
        tables = self.comm.local(self._table)
        return [
            jax.tree.map(lambda a, n=stop - begin: np.array(a[:n]), table)
            for table, (begin, stop) in zip(tables, self._owners.local_ranges(), strict=True)
        ]

    def load_state(self, whole: Table) -> None:
        """Continues from a state of any number of ranks.

        Each leaf of `whole` has `N` rows and can be sliced; of memory maps a rank reads its own
        rows only.
        """
        self._pending, num_nodes = None, int(self._owners.ranges[-1])
        like = self.comm.local(self._table)[0]
        given, wanted = str(jax.tree.structure(whole)), str(jax.tree.structure(like))
        if given != wanted:
            raise InputError(
                "the state must be of the same optimizer", given, f"Make one of {wanted}."
            )
        for leaf, own in zip(jax.tree.leaves(whole), jax.tree.leaves(like), strict=True):
            if leaf.shape != (num_nodes, *own.shape[1:]) or leaf.dtype != own.dtype:
                raise InputError(
                    f"the state must have {num_nodes} rows of {own.dtype}{list(own.shape[1:])}",
                    f"{leaf.dtype}{list(leaf.shape)}",
                    "Join the ranks' states in order; keep the graph and the width.",
                )
        self._table = self.comm.own(
            [
                jax.tree.map(lambda a, b=begin, e=stop: self._owners.padded(a[b:e]), whole)
                for begin, stop in self._owners.local_ranges()
            ]
        )

    def _round(self, nodes: Any, nth: int) -> tuple[Any, Any, Any]:
        nth = self.comm.same(np.int32(nth))
        return self._fetch(self._table.rows, nodes, self._owners.offsets, nth)

    # -- inside a program: one rank ----------------------------------------------------------

    def _make(self, offsets: jax.Array, key_data: jax.Array) -> tuple[Table, jax.Array]:
        """The table, and int32 `[n]` for `_update` to write to."""
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        nodes = offsets[self.comm.index()] + jnp.arange(self._owners.num_own, dtype=jnp.int32)

        def row(node):
            made = self._init(jax.random.fold_in(key, node), (self.width,))
            return made.astype(jnp.float32)

        rows = jax.lax.map(row, nodes, batch_size=_INIT_ROWS)
        return Table(rows, jax.vmap(self._optimizer.init)(rows)), jnp.zeros_like(nodes)

    def _update(
        self, table: Table, slots: jax.Array, token: Token, gradient: jax.Array
    ) -> tuple[Table, jax.Array]:
        if gradient.shape != (*token[0].place.shape, self.width):
            raise InputError(
                "the gradient must have the shape of the rows that were pulled",
                f"{list(gradient.shape)} for {token[0].place.shape[0]} rows",
                "Push the gradient with respect to what `pull` returned.",
            )
        place = token[0].place  # own rows come in the first round only
        ids = [jnp.where(place < self._owners.num_own, place, -1)]
        gradients = [gradient.astype(jnp.float32)]
        if self.comm.size > 1:
            ids += [one.asked for one in token]
            gradients += [self._owners.send(gradients[0], one.place) for one in token]
        every = jnp.concatenate(ids), jnp.concatenate(gradients)
        rows, total, num, slots = add_equal(*every, slots, _STEP_ROWS)

        def step(i, table):
            at = jax.lax.dynamic_slice_in_dim(rows, i * _STEP_ROWS, _STEP_ROWS)
            gradient = jax.lax.dynamic_slice_in_dim(total, i * _STEP_ROWS, _STEP_ROWS)
            touched = jax.tree.map(lambda a: read(a, at), table)
            update = jax.vmap(self._optimizer.update)
            updates, opt_state = update(gradient, touched.opt_state, touched.rows)
            stepped = Table(optax.apply_updates(touched.rows, updates), opt_state)
            return jax.tree.map(lambda a, new: put_rows(a, at, new), table, stepped)

        return jax.lax.fori_loop(0, -(-num // _STEP_ROWS), step, table), slots
