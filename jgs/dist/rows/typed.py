"""`TypedExchange`: the feature rows of a batch's nodes, where each node type has a table.

It is the exchange of `FeatureExchange` for all types at once. A step takes one request and one
reply. The request has the ids of all types one after the other, and the reply their rows, of
each type its own width, dtype and sparsity, in words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows.demand import rounded
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError
from jgs.graph import Schema, TypedFeatures, TypedRows
from jgs.graph.row_tables.table import as_table


class Found(NamedTuple):
    """What one rank knows after a round.

    Fields:
      kind: int32 `[S]`, the number of each node's type; -1 in padding.
      within: int32 `[S]`, each node's place among those of its type; -1 in padding.
      places: for each type with features int32 `[S]`: `FeatureExchange`'s places of its nodes.
      replies: for each type with features what the other ranks sent, as its wire has them.
    """

    kind: jax.Array
    within: jax.Array
    places: tuple[jax.Array, ...]
    replies: tuple[list[jax.Array], ...]


class TypedExchange:
    """`rows, _ = exchange(nodes)` finds the rows of the nodes int32 `[S]` as `TypedRows`, both
    `OWN`.

    Args:
      comm: the communicator.
      schema: of the whole graph. Rank `r` of `R` owns the `r`-th `P / R` of its `P` parts.
      features: for each local rank the `TypedFeatures` of its own nodes. Memory maps are used
        where they lie.
      capacities: for each node type the most nodes that one rank asks another for in a round,
        equal on all ranks. Where some rank needs more of a type, all ranks take further rounds:
        nothing is dropped.
      wire: as for `FeatureExchange`.
      in_place: whether rows may stay where they lie.

    With `in_place`, and where the wire rounds nothing, the table of a type of dense rows is the
    tuple of the rank's own matrices, its cache, and what other ranks sent: no row is put
    together. Otherwise it is one matrix of the rows of the batch's nodes of that type, with
    some room to spare. A node of a type without features has its place within the type of the
    whole graph, by which a model finds its learned row.

    All ranks must call it equally often. A call takes 2 rounds, and 2 more as a call of
    `FeatureExchange` does. Raises `InputError`.

    Attributes:
      exchanges: for each node type its `FeatureExchange`, which has the rows, the capacity and
        the cache; None for a type without features. Nodes are places within the type there.
      extra_rounds: the rounds so far beyond 2 a call.
    """

    def __init__(
        self,
        comm: Communicator,
        schema: Schema,
        features: Sequence[TypedFeatures],
        capacities: Sequence[int],
        wire: str = "float32",
        in_place: bool = True,
    ):
        self.comm, self.schema, self.extra_rounds = comm, schema.without_relations(), 0
        self._in_place = in_place
        every = offsets_by_type(schema, comm.size)
        self.exchanges: list[FeatureExchange | None] = []
        for number, offsets in enumerate(every):
            if features[0].tables[number] is None:
                self.exchanges.append(None)
                continue
            tables = [as_table(own.tables[number]) for own in features]
            capacity = int(capacities[number])
            self.exchanges.append(FeatureExchange(comm, offsets, tables, capacity, wire))
        self._numbers = [n for n, one in enumerate(self.exchanges) if one is not None]
        self._asked = [one for one in self.exchanges if one is not None]
        self._rooms = [1] * len(self._asked)
        self.resize([one.capacity if one is not None else 1 for one in self.exchanges])

    @property
    def capacities(self) -> tuple[int, ...]:
        """As above; 1 for a type without features."""
        return tuple(1 if one is None else one.capacity for one in self.exchanges)

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """The bytes that a cached row of each type takes, 0 for a type without features."""
        return tuple(0 if one is None else one.row_bytes for one in self.exchanges)

    def resize(self, capacities: Sequence[int]) -> None:
        """Sets the capacities. All ranks call it alike; the next call compiles."""
        for exchange, capacity in zip(self.exchanges, capacities, strict=True):
            if exchange is not None and exchange.capacity != capacity:
                exchange.resize(capacity)
        self._fetch = self.comm.program(
            self._one_round, (OWN, OWN, OWN, SAME, SAME), (OWN, SAME)
        )
        self._put = cache(self._put_program)

    def fit_to_demand(self) -> None:
        """As of `FeatureExchange`, for each type by itself."""
        before = self.capacities
        for exchange in self._asked:
            exchange.fit_to_demand()
        if self.capacities != before:
            self.resize(self.capacities)

    def cache(self, nodes: Sequence[Sequence[np.ndarray] | None]) -> None:
        """Keeps the rows of these nodes and no others: for each type with features the places
        within it, as `FeatureExchange.cache` takes them."""
        for exchange, of_type in zip(self.exchanges, nodes, strict=True):
            if exchange is not None and of_type is not None:
                exchange.cache(of_type)

    def __call__(self, nodes: Any, overflow: Any = None) -> tuple[Any, bool]:
        """The rows, and whether the sample of some rank has overflowed, as of
        `FeatureExchange`."""
        if overflow is None:
            overflow = self.comm.own([np.zeros((), bool)] * self.comm.num_local)
        stores = tuple(exchange.store for exchange in self._asked)
        offsets = tuple(exchange.owners.offsets for exchange in self._asked)
        first = self.comm.same(np.int32(0))
        found, said = self._fetch(stores, nodes, overflow, offsets, first)
        lost, *numbers = np.asarray(said).tolist()
        if lost:
            return found, True
        most, sizes = numbers[: len(stores)], numbers[len(stores) :]
        for exchange, num in zip(self._asked, most, strict=True):
            exchange.demand.add(num)
        each = zip(self._asked, most, strict=True)
        further = max((one.owners.further(num) for one, num in each), key=len, default=[])
        self.extra_rounds += 2 * len(further)
        stay = self._in_place and not further
        apart = tuple(exchange.exact and stay for exchange in self._asked)
        program = self._put(self._with_room(sizes, apart), apart)
        place, rows = program(stores, found)
        for nth in further:
            more, _ = self._fetch(stores, nodes, overflow, offsets, nth)
            rows = jax.tree.map(jnp.add, rows, program(stores, more)[1])
        tables: list[Any] = [None] * len(self.exchanges)
        own = zip(self._numbers, self._asked, apart, found.replies, rows, strict=True)
        for number, one, lies_apart, replies, together in own:
            store = one.store
            parted = one.wire.apart(store.own, store.cached, *replies) if lies_apart else None
            tables[number] = together if parted is None else parted
        return TypedRows(tuple(tables), found.kind, place), False

    def _with_room(self, sizes: Sequence[int], apart: Sequence[bool]) -> tuple[int, ...]:
        """The rows of the matrices of types that are put together, 0 for others. They grow with
        what batches need, so that there are few of them: each is compiled."""
        for i, (size, room) in enumerate(zip(sizes, self._rooms, strict=True)):
            if size > room:
                self._rooms[i] = rounded(size + size // 8)
        return tuple(0 if a else r for a, r in zip(apart, self._rooms, strict=True))

    # -- inside a program: one rank ----------------------------------------------------------

    def _one_round(
        self,
        stores: tuple[Any, ...],
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: tuple[jax.Array, ...],
        nth: jax.Array,
    ) -> tuple[Found, jax.Array]:
        """What is found; and whether the sample of some rank has overflowed, for each type the
        most nodes that a rank must ask another for, and for each type the most nodes that a
        rank's batch has: int32 `[1 + 2 T]`."""
        comm = self.comm
        kind, place = self.schema.type_and_place(nodes)
        mine = [kind == number for number in self._numbers]
        both = [
            exchange.requests(store, jnp.where(own, place, -1), begin, nth)
            for exchange, store, own, begin in zip(
                self._asked, stores, mine, offsets, strict=True
            )
        ]
        counts = [jnp.sum(own, dtype=jnp.int32) for own in mine]
        says = jnp.stack([overflow.astype(jnp.int32), *counts])
        head = jnp.broadcast_to(says, (comm.size, says.size))
        received = jnp.concatenate([head, *(asked for asked, _ in both)], axis=1)
        if comm.size > 1:
            received = comm.all_to_all(received)
        ends = np.cumsum([head.shape[1], *(asked.shape[1] for asked, _ in both)])
        head, *wanted = jnp.split(received, ends[:-1], axis=1)
        known = [
            one.owners.asked(some, begin)
            for one, some, begin in zip(self._asked, wanted, offsets, strict=True)
        ]
        each = zip(self._asked, stores, known, strict=True)
        packed = [one.packed(store, asked) for one, store, (asked, _) in each]
        replies = self._sent(packed) if comm.size > 1 else [[] for _ in packed]
        places = tuple(
            one.placed(store, at, one.capacity)
            for one, store, (_, at) in zip(self._asked, stores, both, strict=True)
        )
        lost, *sizes = jnp.max(head, axis=0)
        said = jnp.stack([lost, *(most for _, most in known), *sizes])
        return Found(kind, place, places, tuple(replies)), said

    def _sent(self, packed: list[list[jax.Array]]) -> list[list[jax.Array]]:
        """For each type what the other ranks sent of it, by one round for all types. `packed`
        has for each type what goes to each of them."""
        if not packed:
            return []
        words = [[_words(rows) for rows in of_type] for of_type in packed]
        joined = [jnp.concatenate(to_rank) for to_rank in zip(*words, strict=True)]
        ends = np.cumsum([of_type[0].size for of_type in words])
        found: list[list[jax.Array]] = [[] for _ in packed]
        for message in self.comm.others(joined):
            pieces = jnp.split(message, ends[:-1])
            for of_type, piece, like in zip(found, pieces, packed, strict=True):
                of_type.append(_from_words(piece, like[0]))
        return found

    def _put_program(self, rooms: tuple[int, ...], apart: tuple[bool, ...]) -> Any:
        def put(stores: tuple[Any, ...], found: Found) -> tuple[jax.Array, tuple[Any, ...]]:
            # A node of a type without features has a place, too: learned rows are found by it.
            place, rows = found.within, list[Any]()
            for i, (exchange, number) in enumerate(
                zip(self._asked, self._numbers, strict=True)
            ):
                mine, at = found.kind == number, found.places[i]
                if apart[i]:
                    rows.append(None)
                else:
                    nth = jnp.cumsum(mine, dtype=jnp.int32) - 1
                    slot = jnp.where(mine, nth, rooms[i])
                    slots = jnp.full(rooms[i], -1, jnp.int32).at[slot].set(at, mode="drop")
                    store, replies = stores[i], found.replies[i]
                    rows.append(exchange.wire.read(store.own, store.cached, replies, slots))
                    at = nth
                place = jnp.where(mine, at, place)
            return place, tuple(rows)

        return self.comm.program(put, (OWN, OWN), (OWN, OWN))


def offsets_by_type(schema: Schema, num_ranks: int) -> list[np.ndarray]:
    """For each node type int `[R+1]`: rank `r` owns its nodes from `offsets[r]` to
    `offsets[r+1]`, counted within the type. Raises `InputError`."""
    parts = schema.parts or (tuple(count for _, count in schema.node_types),)
    if len(parts) % num_ranks:
        raise InputError(
            "the parts of a schema must be a multiple of the ranks",
            f"{len(parts)} for {num_ranks} ranks",
            "Give the schema of a graph in as many parts.",
        )
    ends = np.cumsum([[0] * len(schema.node_types), *parts], axis=0)
    return list(ends[:: len(parts) // num_ranks].T)


def _words(rows: jax.Array) -> jax.Array:
    """int32, one-dimensional: the bits of rows of 32, 16 or 8 bits."""
    flat, number = rows.reshape(-1), 4 // rows.dtype.itemsize
    if number > 1:
        flat = jnp.pad(flat, (0, -flat.size % number)).reshape(-1, number)
    return jax.lax.bitcast_convert_type(flat, jnp.int32)


def _from_words(words: jax.Array, like: jax.Array) -> jax.Array:
    """The rows of which `_words` returned the bits, of the shape and dtype of `like`."""
    flat = jax.lax.bitcast_convert_type(words, like.dtype).reshape(-1)
    return flat[: like.size].reshape(like.shape)
