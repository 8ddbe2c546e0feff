"""`FeatureExchange`: the feature rows of a batch's nodes, wherever they lie.

Every rank holds the rows of its own nodes. A rank gets the other rows by one request and one
reply, each an all_to_all of equal parts (DistDGL, Zheng et al. 2020, section III-C; FastSample
2023, section 3.3: the 2 rounds of hybrid partitioning). Where each node type has a table, the
request has the ids of all types one after the other, and the reply their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows import owners
from jgs.dist.rows.embedding import ShardedEmbedding
from jgs.dist.rows.split_table import RankRows, SplitTable
from jgs.errors import check_choice
from jgs.graph import Schema, TypedRows
from jgs.graph.row_tables.table import as_table
from jgs.models.inputs import Placed

WIRE = ("float32", "float16", "bfloat16")
_VOID = 2**31 - 1  # takes the place of what is needed most where some rank has overflowed


class Found(NamedTuple):
    """What one rank knows after a round: int32 `[S]` the number of each node's type, -1 in
    padding, or None without types, and its place `within` the type; and for each table int32
    `[S]`, the places of its nodes in the rank's own rows, its cache and the replies, and these
    `replies` as the wire has them. The `token` is that of the learned rows."""

    kind: Any
    within: jax.Array
    places: tuple[jax.Array, ...]
    replies: tuple[list[jax.Array], ...]
    token: owners.Round | None


class FeatureExchange:
    """`x, _ = exchange(nodes)` reads the rows float32 `[S, F]` of the nodes int32 `[S]`, both
    `OWN`; or their `TypedRows`, where features are by node type.

    Args:
      comm: the communicator.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`. Where
        features are by node type, the `Schema` of the whole graph: rank `r` of `R` owns the
        `r`-th `P / R` of its `P` parts. Of a graph in one part it owns the `r`-th `R`-th of
        the nodes of each type.
      features: for each local rank the rows of its own nodes: matrices `[n_i, F]` (float32 or
        float16, NumPy or JAX), or a `RowTable`, or `TypedFeatures`. Memory maps are used where
        they lie.
      capacity: the most nodes that one rank asks another for in a round, equal on all ranks;
        one for each node type. Where some rank needs more, all ranks take further rounds:
        nothing is dropped.
      wire: the dtype of rows that are sent, one of `WIRE`; for sparse rows the dtype of their
        values. A rank's own rows are rounded to it too, so results do not depend on who owns
        what. Rows that are float16 on all ranks are sent as float16 where the wire is float32.
        Quantized rows are always sent as they are stored. Neither rounds anything.
      in_place: the rows are not put together. A call returns a `Placed` in place of `x`, for
        models that read the rows where they lie. It has no effect where rows must be rounded or
        made dense, and on a call that takes further rounds.
      learned: the rows of the nodes of types without features, type after type, which `read`
        takes too. They are asked for in the same rounds, are sent as float32, and are not
        cached.

    Of `TypedRows` the table of a type of rows in place is the tuple of the rank's own matrices,
    its cache, and what other ranks sent. Otherwise it is one matrix of the rows of the batch's
    nodes of that type, with some room to spare. A node of a type without features has its place
    within the type of the whole graph, by which a model finds its learned row.

    Raises `InputError` on the rank whose features do not fit its offsets, and `FailedElsewhere`
    on the others.

    All ranks must call it equally often. A call takes 2 rounds. It takes 2 more each time that
    the rank asked for most nodes of a table is asked for another `capacity` of them. Nodes
    outside `[0, N)` are padding, and get rows of zeros.

    Attributes:
      tables: for each node type its `SplitTable`, in which nodes are places within the type, or
        None. Without types one, of all nodes.
      capacity, row_bytes: the capacity, and the bytes of a cached row; for each node type 1 and
        0 where it has no features.
      extra_rounds: the rounds so far beyond 2 a call.
      store: the `RankRows` of the ranks, `OWN`, of the first table.
    """

    def __init__(
        self,
        comm: Communicator,
        offsets: Any,
        features: Sequence[Any],
        capacity: int | Sequence[int],
        wire: str = "float32",
        in_place: bool = False,
        learned: ShardedEmbedding | None = None,
    ):
        check_choice("wire", wire, WIRE)
        self.comm, self.extra_rounds, self._in_place = comm, 0, in_place
        typed = isinstance(offsets, Schema)
        self.schema: Any = offsets.without_relations() if typed else None
        bounds = (
            [offsets] if self.schema is None else owners.offsets_by_type(self.schema, comm.size)
        )
        of_ranks = [as_table(own).by_type.values() for own in features]
        self.tables = [
            None if own[0] is None else SplitTable(comm, begins, own, most, wire)
            for begins, most, *own in zip(bounds, self._each(capacity), *of_ranks, strict=True)
        ]
        self._asked = [table for table in self.tables if table is not None]
        self._rooms, self._every = [1] * len(self._asked), list(self._asked)
        if learned is not None:
            of_learned = learned.owners.ranges, learned.width, self._of_learned(capacity)
            self._every.append(SplitTable(comm, *of_learned))
        self._compile()

    def _of_learned(self, of_types: Any) -> int:
        """The sum of what there is of each type without features."""
        each = zip(self.tables, of_types, strict=True)
        return sum(number for table, number in each if table is None)

    def _each(self, value: Any) -> Any:
        return value if self.schema is not None else [value]

    def _of_all(self, name: str, none: int) -> Any:
        each = tuple(none if one is None else getattr(one, name) for one in self.tables)
        return each[0] if self.schema is None else each

    @property
    def capacity(self) -> Any:
        return self._of_all("capacity", 1)

    @property
    def row_bytes(self) -> Any:
        return self._of_all("row_bytes", 0)

    @property
    def store(self) -> Any:
        return self._asked[0].store

    def replace(self, features: Sequence[Any]) -> None:
        """Takes other rows of the same shapes. Nothing stays cached."""
        of_ranks = [as_table(own).by_type.values() for own in features]
        for table, *own in zip(self.tables, *of_ranks, strict=True):
            if table is not None:
                table.replace(own)

    def cache(self, nodes: Any) -> None:
        """Keeps the rows of these nodes and no others, as `SplitTable.cache` takes them; for
        each node type the places within it, or None."""
        for table, own in zip(self.tables, self._each(nodes), strict=True):
            if table is not None and own is not None:
                table.cache(own)

    def resize(self, capacity: Any) -> None:
        """Sets `capacity`. All ranks call it alike; the next call compiles."""
        for table, most in zip(self.tables, self._each(capacity), strict=True):
            if table is not None:
                table.resize(most)
        for table in self._every[len(self._asked) :]:
            table.resize(self._of_learned(capacity))
        self._compile()

    def _compile(self) -> None:
        self._reads = self.schema is None and not (self._in_place and self._asked[0].wire.exact)
        kinds = (OWN, OWN, OWN, SAME, SAME)
        program = self._round_and_rows if self._reads else self._one_round
        self._fetch = self.comm.program(program, kinds, (OWN, SAME))
        self._put = cache(self._put_program)

    def fit_to_demand(self) -> None:
        """Enlarges `capacity` where the calls so far say that one call in ten thousand or more
        will need further rounds. All ranks call it, and have seen the same calls. Where it
        enlarges, the next call compiles."""
        before = self.capacity
        for table in self._every:
            table.fit_to_demand()
        if self.capacity != before:
            self._compile()

    def __call__(self, nodes: Any, overflow: Any = None) -> tuple[Any, bool]:
        """The rows, and whether the sample of some rank has overflowed: all ranks then draw
        theirs again. `overflow`: `OWN` bool scalars, by default False."""
        if overflow is None:
            overflow = self.comm.own([np.zeros((), bool)] * self.comm.num_local)
        stores = tuple(table.store for table in self._asked)
        asked = stores, nodes, overflow, tuple(t.owners.offsets for t in self._asked)
        found, said = self._fetch(*asked, self.comm.same(np.int32(0)))
        lost, *numbers = np.asarray(said).tolist()
        if lost:
            return found, True
        most, sizes = numbers[: len(stores)], numbers[len(stores) :]
        each = list(zip(self._asked, most, strict=True))
        for table, num in each:
            table.demand.add(num)
        further = max((table.owners.further(num) for table, num in each), key=len, default=[])
        self.extra_rounds += 2 * len(further)
        if self._reads:
            for nth in further:
                found = jax.tree.map(jnp.add, found, self._fetch(*asked, nth)[0])
            return found, False
        stay = self._in_place and not further
        apart: Sequence[bool] = self._apart(stay)
        if self.schema is None and stay:
            place, rows = found.places[0], (None,)
        else:
            program = self._put(self._with_room(sizes, apart), apart)
            place, rows = program(stores, found)
            for nth in further:
                more, _ = self._fetch(*asked, nth)
                rows = jax.tree.map(jnp.add, rows, program(stores, more)[1])
        return self._joined(stores, found, place, rows, apart), False

    def _apart(self, stay: bool) -> tuple[bool, ...]:
        """Which tables are left where they lie, if rows `stay` in place."""
        return tuple(table.wire.exact and stay for table in self._asked)

    def _with_room(self, sizes: Sequence[int], apart: Sequence[bool]) -> tuple[int, ...]:
        """The rows of the matrices of types that are put together, 0 for others. They grow with
        what batches need, so that there are few of them: each is compiled."""
        for i, (size, room) in enumerate(zip(sizes, self._rooms, strict=False)):
            if size > room:
                self._rooms[i] = owners.rounded(size + size // 8)
        return self._rooms_of(apart)

    def _rooms_of(self, apart: Sequence[bool]) -> tuple[int, ...]:
        return tuple(0 if a else r for a, r in zip(apart, self._rooms, strict=True))

    def _joined(
        self, stores: Any, found: Found, place: jax.Array, rows: Any, apart: Sequence[bool]
    ) -> Any:
        """What a call returns. `rows` has the matrices of tables that do not lie `apart`."""
        each = zip(self._asked, stores, apart, found.replies, rows, strict=False)
        tables: list[Any] = [
            table.wire.apart(store.own, store.cached, *replies) if lies_apart else together
            for table, store, lies_apart, replies, together in each
        ]
        if self.schema is None:
            return Placed(tables[0], place) if apart[0] else tables[0]
        given = iter(tables)
        every = tuple(None if table is None else next(given) for table in self.tables)
        return TypedRows(every, found.kind, place)

    # What a program of a whole step takes beside a batch, and what it has needed.

    @property
    def asked(self) -> tuple[Any, Any]:
        """The rows of the ranks, `OWN`, and who owns them, `SAME`, as `read` takes them."""
        stores = tuple(t.store for t in self._asked)
        return stores, tuple(t.owners.offsets for t in self._every)

    @property
    def limits(self) -> tuple[int, ...]:
        """The most that a round may need, by what `read` says of it: whether the sample of some
        rank has overflowed; of each table the nodes that a rank asks another for; and of each
        node type the nodes of a batch."""
        apart = self._apart(self._in_place) if self.schema is not None else ()
        sizes = (_VOID if a else r for a, r in zip(apart, self._rooms, strict=False))
        return (0, *(t.capacity for t in self._every), *sizes)

    def note(self, needs: np.ndarray) -> None:
        """Takes what steps have needed, a row of what `read` says for each: `fit_to_demand`
        goes by it."""
        for table, of_table in zip(self._every, needs.T[1:].tolist(), strict=False):
            for need in of_table:
                table.demand.add(need)

    def make_room(self, said: Sequence[int]) -> bool:
        """Makes room for a step that needed so much; returns whether the sample of some rank
        has overflowed, of which the rest is not known."""
        if said[0]:
            return True
        needs = list(zip(self._every, said[1:], strict=False))
        if any(most > table.capacity for table, most in needs):
            for table, most in needs:
                table.resize(max(table.capacity, owners.rounded(most + most // 8)))
            self._compile()
        self._with_room(said[1 + len(needs) :], self._apart(self._in_place))
        return False

    # -- inside a program: one rank ----------------------------------------------------------

    def _one_round(
        self,
        stores: tuple[RankRows, ...],
        nodes: jax.Array,
        overflow: jax.Array,
        offsets: tuple[jax.Array, ...],
        nth: jax.Array,
    ) -> tuple[Found, jax.Array]:
        """What is found; and whether the sample of some rank has overflowed, for each table the
        most nodes that a rank must ask another for, and for each type the most nodes that a
        rank's batch has: int32 `[1 + 2 T]`, without types `[2]`. The request tells them."""
        comm = self.comm
        kind, within, ids = self._by_table(nodes)
        each = list(zip(self._every, stores, ids, offsets, strict=False))
        both = [table.requests(store, own, begin, nth) for table, store, own, begin in each]
        requests, places = zip(*both, strict=True) if both else ((), ())
        if self.schema is None:
            (own,) = requests
            requests = (own.at[:, -1].set(jnp.where(overflow, _VOID, own[:, -1])),)
            head = jnp.zeros((comm.size, 0), jnp.int32)
        else:
            featured = ids[: len(self._asked)]
            counts = [jnp.sum(own >= 0, dtype=jnp.int32) for own in featured]
            says = jnp.stack([overflow.astype(jnp.int32), *counts])
            head = jnp.broadcast_to(says, (comm.size, says.size))
        received = jnp.concatenate([head, *requests], axis=1)
        if comm.size > 1:
            received = comm.all_to_all(received)
        ends = np.cumsum([head.shape[1], *(own.shape[1] for own in requests)])
        head, *wanted = jnp.split(received, ends[:-1], axis=1)
        known = [
            table.owners.asked(own, begin)
            for (table, _, _, begin), own in zip(each, wanted, strict=True)
        ]
        replies = tuple(list[jax.Array]() for _ in each)
        if comm.size > 1:
            replies = self._sent(
                [t.packed(s, own) for (t, s, *_), (own, _) in zip(each, known, strict=True)]
            )
        found = tuple(
            table.placed(store, at, table.capacity)
            for (table, store, *_), at in zip(each, places, strict=True)
        )
        most = [num for _, num in known]
        if self.schema is None:
            lost, sizes = (most[0] == _VOID).astype(jnp.int32), []
        else:
            lost, *sizes = jnp.max(head, axis=0)
        said = jnp.stack([lost, *most, *sizes])
        token = owners.Round(places[-1], known[-1][0]) if len(each) > len(self._asked) else None
        return Found(kind, within, found, replies, token), said

    def _by_table(self, nodes: jax.Array) -> tuple[Any, jax.Array, list[jax.Array]]:
        """`kind` and `within` of `Found`, and for each table the ids of its nodes in it."""
        if self.schema is None:
            return None, nodes, [nodes]
        kind, place = self.schema.type_and_place(nodes)
        numbers = [number for number, one in enumerate(self.tables) if one is not None]
        ids = [jnp.where(kind == number, place, -1) for number in numbers]
        if len(self._every) > len(self._asked):
            begins = owners.first_learned(self.schema, self.tables)
            mine = [kind == number for number in begins]
            at = [begin + place for begin in begins.values()]
            ids.append(jnp.select(mine, at, -1))
        return kind, place, ids

    def _sent(self, packed: list[list[jax.Array]]) -> tuple[list[jax.Array], ...]:
        """For each table what the other ranks sent of it, by one round for all. `packed` has
        for each table what goes to each of them."""
        if len(packed) < 2:
            return tuple(self.comm.others(to_ranks) for to_ranks in packed)
        words = [[owners.to_words(rows.reshape(1, -1))[0] for rows in each] for each in packed]
        joined = [jnp.concatenate(to_rank) for to_rank in zip(*words, strict=True)]
        ends = np.cumsum([of_table[0].size for of_table in words])
        found: list[list[jax.Array]] = [[] for _ in packed]
        for message in self.comm.others(joined):
            pieces = jnp.split(message, ends[:-1])
            for of_table, piece, like in zip(found, pieces, packed, strict=True):
                rows = owners.from_words(piece[None], like[0].dtype, like[0].size)
                of_table.append(rows.reshape(like[0].shape))
        return tuple(found)

    def _round_and_rows(self, stores: Any, *asked: Any) -> tuple[jax.Array, jax.Array]:
        found, said = self._one_round(stores, *asked)
        return self._put_together(stores, found, (0,), (False,))[1][0], said

    def read(
        self,
        nodes: jax.Array,
        overflow: jax.Array,
        stores: Any,
        offsets: Any,
        learned: jax.Array | None = None,
    ) -> tuple[Any, jax.Array, owners.Round | None]:
        """Within a program of a step: what a call returns of `nodes`, by one round, and what
        the round has needed; and of learned rows the token by which `deliver` sends what
        belongs to them. `fits` says whether the rows are right; after `make_room` of what was
        needed, the program is traced anew.

        Args:
          nodes, overflow: as of a call, one rank's.
          stores, offsets: the `OWN` and the `SAME` value that `asked` returns.
          learned: float32 `[n, W]`, the rank's own rows of the embedding, if there is one.
        """
        held = stores if learned is None else (*stores, self._every[-1].holding(learned))
        found, said = self._one_round(held, nodes, overflow, offsets, jnp.int32(0))
        apart = self._apart(self._in_place)
        place, rows = self._put_together(stores, found, self._rooms_of(apart), apart)
        x = self._joined(stores, found, place, rows, apart)
        if learned is not None:
            own = held[-1].own, held[-1].cached, found.replies[-1], found.places[-1]
            x = x._replace(learned=self._every[-1].wire.read(*own))
        return x, said, found.token

    def deliver(self, token: Any, values: jax.Array, fits: jax.Array) -> Any:
        """Within a program of a step: what all ranks say of this rank's learned rows, as
        `Owners.deliver` returns it; nothing unless the step `fits`. `values` float32 `[S, W]`
        has a row for each node that was read. One round."""
        kept = owners.Round(*(jnp.where(fits, ids, -1) for ids in token))
        return self._every[-1].owners.deliver([kept], values)

    def fits(self, said: jax.Array) -> jax.Array:
        return jnp.all(said <= jnp.array(self.limits, jnp.int32))

    def _put_program(self, rooms: tuple[int, ...], apart: tuple[bool, ...]) -> Any:
        def put(stores: Any, found: Found) -> Any:
            return self._put_together(stores, found, rooms, apart)

        return self.comm.program(put, (OWN, OWN), (OWN, OWN))

    def _put_together(
        self, stores: Any, found: Found, rooms: tuple[int, ...], apart: tuple[bool, ...]
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        """The place of each node in the table of its type, and of each table that does not lie
        `apart` the rows: those of all nodes, or of the nodes of its type in `rooms` rows."""
        # A node of a type without features has a place, too: learned rows are found by it.
        place, rows = found.within, list[Any]()
        numbers = [number for number, one in enumerate(self.tables) if one is not None]
        for i, (table, number) in enumerate(zip(self._asked, numbers, strict=True)):
            at, mine = found.places[i], None if found.kind is None else found.kind == number
            if apart[i]:
                rows.append(None)
            else:
                slots = at
                if mine is not None:
                    nth = jnp.cumsum(mine, dtype=jnp.int32) - 1
                    slot = jnp.where(mine, nth, rooms[i])
                    slots = jnp.full(rooms[i], -1, jnp.int32).at[slot].set(at, mode="drop")
                    at = nth
                store, replies = stores[i], found.replies[i]
                rows.append(table.wire.read(store.own, store.cached, replies, slots))
            place = at if mine is None else jnp.where(mine, at, place)
        return place, tuple(rows)
