"""`Live`: a graph that grows while it is drawn from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.arrays import PREFIX
from jgs.graph.changed import appended_columns
from jgs.graph.device import aligned_copy, as_device
from jgs.graph.graph import Graph
from jgs.graph.live.change import KINDS, Change
from jgs.graph.live.expiry import Expiry
from jgs.graph.live.index import Index
from jgs.graph.live.room import NodeRoom, times_of_new
from jgs.graph.live.rows import Rows
from jgs.graph.live.snapshot import Snapshot
from jgs.graph.rows import order_dtype, row_of_edges
from jgs.graph.weights import check_weights

_INDPTR, _BORN, _FEATURES = "indptr", "node_time", "features."
_EARLIEST = np.iinfo(np.int64).min
Do = Callable[[], Any]  # makes a change that has been checked


class Live:
    """A graph that changes in place, and that samplers draw from between changes.

        live = Live(graph, num_nodes=graph.num_nodes + 1000)
        batch = sampler.sample(key, live.graph, sampler.init(live.graph), seeds)
        live.append(src, dst, time=time)
        batch = sampler.sample(key, live.graph, sampler.init(live.graph), seeds)

    A draw has the bits of a draw from the graph that is made anew of the edges that are there,
    in the order in which they came. Shapes stay, so that nothing compiles again until more
    edges have come than there is room for, at first about a third of those there were.

    Methods that change the graph *donate* `graph` and `features`, as `jax.jit` does with
    donated arguments: programs that read them end first, and whoever uses them afterwards gets
    JAX's error "Array has been deleted". `reading` keeps the changes of other threads away.

    A change costs in proportion to what it changes and the rows that it touches, but for these,
    which read all edges: the first deletion of nodes or of edges by number; the first change
    when there is no more room; and one while a NumPy array of `graph` is held, which copies.

    Args:
      graph: the graph to begin with. It is copied, with room. Its node columns are left out.
      features: an array of numbers `[N, ...]`, or in a graph with a schema one `[n, ...]` for
        each of some node types by name, or None. They are copied.
      num_nodes: how many ids there shall be: an int, or in a graph with a schema one for each
        node type by name; types that are left out have as many as in the graph. None: as many
        as the graph has, so that no nodes can be added. Ids that no node has yet have no edges.
        In a graph with a schema, more ids of a type shift those of later types.
      keep: int, the time to live of edges in the unit of `edge_time`. An edge is removed once
        another has come that is later by more. None: edges stay.

    Fields:
      position: int, the number of changes so far; it names the graph.
      next_edge: int, the number that the next edge gets. Edges are numbered as they come; their
        numbers are `graph.edge_order`.

    Raises `InputError`, as its methods do; a change that raises it has changed nothing.
    """

    def __init__(
        self,
        graph: Graph,
        features: Any = None,
        *,
        num_nodes: int | Mapping[str, int] | None = None,
        keep: int | None = None,
    ):
        if not isinstance(graph, Graph) or graph.has_room:
            raise InputError(
                "a live graph must begin with a jgs.Graph",
                "a live one" if isinstance(graph, Graph) else type(graph).__name__,
                "Make one with Graph.from_edges, from_relations or open.",
            )
        if keep is not None and (graph.edge_time is None or type(keep) is not int or keep < 1):
            raise InputError(
                "keep, a time to live, must be an int of at least 1, for edges with times",
                f"{keep!r} and {'no ' * (graph.edge_time is None)}edge_time",
                "Leave it out, or give the edges times.",
            )
        self._room = NodeRoom(graph, num_nodes)
        indptr, arrays = self._room.of_edges(graph)
        order = arrays.get("edge_order", np.arange(graph.num_edges))
        self.position, self.next_edge = 0, int(order.max(initial=-1)) + 1
        dtype = order_dtype(2 * self.next_edge + (1 << 30))
        arrays["edge_order"] = order.astype(dtype, copy=False)
        self._rows, self._of_nodes = Rows(indptr, arrays), {}
        if graph.node_time is not None:
            self._of_nodes[_BORN] = self._room.of_nodes(np.asarray(graph.node_time))
        for name, array in self._room.features(features).items():
            self._of_nodes[_FEATURES + name] = array
        self._empty = Graph.from_edge_arrays(
            np.zeros(1, np.int64), {name: array[:0] for name, array in arrays.items()}
        )
        self.keep, self._latest = keep, _EARLIEST
        self._expiry, self._index = Expiry(), None
        self._snapshot: Snapshot | None = None
        self._turn, self._readers = threading.Condition(threading.RLock()), 0
        if keep is not None and graph.num_edges:
            self._expiry.add(arrays["edge_time"], row_of_edges(indptr))
            self._expire(int(arrays["edge_time"].max()))

    # -- what there is -------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph, until the next change. Its rows have room, so `indptr` is int64
        `[2, N+1]`: the edges of node `v` are `indptr[0, v]:indptr[1, v]`. `num_edges` is the
        number of slots; those in no row have no edges. `packed` makes a graph without room."""
        arrays = dict(self._arrays())
        indptr, born = arrays.pop(_INDPTR), arrays.pop(_BORN, None)
        made = Graph.from_edge_arrays(indptr, arrays, schema=self._room.schema)
        return made._with(node_time=born)

    @property
    def features(self) -> Any:
        """The features with rows for all ids, as they were given: an array, or arrays by node
        type; None if there are none. The next change donates them too."""
        found = {
            name.removeprefix(_FEATURES): array
            for name, array in self._arrays().items()
            if name.startswith(_FEATURES)
        }
        return found.get("", found or None)

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self._rows.num_edges

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """How many nodes there are; in a graph with a schema by type."""
        used = self._room.used
        return dict(used) if self._room.schema is not None else used[""]

    def packed(self) -> Graph:
        """A graph without room of the same nodes and edges, which does not change. It is made
        of all edges."""
        with self._turn:
            indptr, arrays = self._rows.packed()
            born = self._of_nodes.get(_BORN)
        made = Graph.from_edge_arrays(indptr, arrays, schema=self._room.schema)
        return made if born is None else made._with(node_time=as_device(born.copy()))

    @contextmanager
    def reading(self) -> Iterator[Graph]:
        """A context in which other threads wait with their changes; its value is `graph`."""
        with self._turn:
            self._readers += 1
            graph = self.graph
        try:
            yield graph
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    # -- changes -------------------------------------------------------------------------------

    def append(
        self,
        src: Any,
        dst: Any,
        *,
        time: Any = None,
        edge_weight: Any = None,
        edge_columns: Mapping[str, Any] | None = None,
        relation: str | tuple[str, str, str] | None = None,
    ) -> np.ndarray:
        """Adds an edge `src[i] -> dst[i]` for every `i`. Returns int64 `[n]`, their numbers.

        Args:
          src, dst: integer `[n]`, nodes that there are. In a graph with relations they count
            from 0 within the types of the `relation`.
          time: integer `[n]`, in any order, also earlier than edges that are there; where the
            graph's edges have times. Edges are not before their ends, as in `from_edges`.
          edge_weight, edge_columns: of the edges, as in `Graph.with_edges`.
          relation: the relation of the edges, where the graph has relations. A reverse relation
            gets its edges in a call of its own.
        """
        fields = {"src": src, "dst": dst, "time": time, "edge_weight": edge_weight}
        named = {PREFIX + name: column for name, column in (edge_columns or {}).items()}
        return self.apply(Change("append", {**fields, **named, "relation": relation}))

    def add_nodes(
        self, count: int, *, type: str | None = None, time: Any = None, rows: Any = None
    ) -> np.ndarray:
        """Gives the next ids to `count` new nodes. Returns int32 `[count]`, ids of the graph.

        Args:
          type: their node type, in a graph with a schema.
          time: integer `[count]`, where the graph's nodes have times.
          rows: numbers `[count, ...]`, their features. None: 0.
        """
        fields = {"count": count, "type": type, "time": time, "rows": rows}
        return self.apply(Change("add_nodes", fields))

    def set_rows(self, nodes: Any, rows: Any, *, type: str | None = None) -> None:
        """Sets the features of `nodes`, distinct integers `[n]`, to `rows` `[n, ...]`. With a
        `type` nodes count from 0 within it."""
        self.apply(Change("set_rows", {"nodes": nodes, "rows": rows, "type": type}))

    def delete_edges(self, numbers: Any) -> int:
        """Removes the edges of these numbers, integer `[n]`. Those that are gone are passed
        over. Returns how many it removed."""
        return self.apply(Change("delete_edges", {"numbers": numbers}))

    def delete_between(
        self, src: Any, dst: Any, *, relation: str | tuple[str, str, str] | None = None
    ) -> int:
        """Removes all edges `src[i] -> dst[i]`, of the `relation` where the graph has
        relations; nodes are as in `append`. Returns how many it removed."""
        fields = {"src": src, "dst": dst, "relation": relation}
        return self.apply(Change("delete_between", fields))

    def delete_nodes(self, nodes: Any, *, type: str | None = None) -> int:
        """Removes all edges from and to `nodes`, integer `[n]`, and sets their features to 0.
        Their ids are not given again. With a `type` nodes count from 0 within it. Returns how
        many edges it removed."""
        return self.apply(Change("delete_nodes", {"nodes": nodes, "type": type}))

    def apply(self, change: Change) -> Any:
        """Makes a change, and returns what the method of its name returns."""
        if change.kind not in KINDS:
            known = ", ".join(KINDS)
            raise InputError(f"a change must be one of {known}", repr(change.kind), "Correct it.")
        with self._turn:
            do = getattr(self, f"_{change.kind}")(**change.fields)
            self._turn.wait_for(lambda: self._readers == 0)
            self._write(change)
            self._donate()
            result = do()
            self.position += 1
            return result

    def _write(self, change: Change) -> None:
        """Writes a change that has been checked, and will be made."""

    # -- each kind: checks its fields, and returns what makes the change -----------------------

    def _append(
        self, src: Any, dst: Any, time: Any, edge_weight: Any, relation: Any, **columns: Any
    ) -> Do:
        row_of, new = self._ends(src, dst, relation), {}
        source, row, kind = row_of
        num, like = row.size, self._empty
        given = {name.removeprefix(PREFIX): column for name, column in columns.items()}
        for name, array in appended_columns(like, given, num).items():
            new[PREFIX + name] = array
        for what, value, own in (
            ("time", time, like.edge_time),
            ("edge_weight", edge_weight, like.edge_weight),
        ):
            if (value is None) != (own is None):
                raise InputError(
                    f"new edges must have a {what} where the graph's have, and nowhere else",
                    "none" if value is None else "some",
                    f"Give {what}, or leave it out.",
                )
        if edge_weight is not None:
            new["edge_weight"] = check_weights(edge_weight, num)
        if time is not None:
            new["edge_time"] = checks.check_times(time, num, "time")
            if (born := self._of_nodes.get(_BORN)) is not None:
                new["edge_time"] = checks.times_with_nodes(new["edge_time"], born, source, row)
        if kind is not None:
            new["edge_type"] = np.full(num, kind, np.int16)
        new["indices"] = source

        def do() -> np.ndarray:
            numbers = np.arange(self.next_edge, self.next_edge + num)
            if not num:
                return numbers
            self.next_edge += num
            if self.next_edge > np.iinfo(self._rows.arrays["edge_order"].dtype).max:
                wide = aligned_copy(self._rows.arrays["edge_order"].astype(np.int64))
                self._rows.arrays["edge_order"] = wide
            self._rows.insert(row, new | {"edge_order": numbers})
            if self._index is not None:
                self._index.add(source, row)
            if self.keep is not None:
                self._expiry.add(new["edge_time"], row)
                self._expire(int(new["edge_time"].max()))
            return numbers

        return do

    def _add_nodes(self, count: Any, type: Any, time: Any, rows: Any) -> Do:
        ids = self._room.new(count, type)
        born = times_of_new(ids.size, time, _BORN in self._of_nodes)
        table, rows = self._table(type, rows, ids.size) if rows is not None else (None, None)

        def do() -> np.ndarray:
            self._room.take(ids.size, type)
            if born is not None:
                self._of_nodes[_BORN][ids] = born
            if table is not None:
                table[self._places(ids, type)] = rows
            return ids

        return do

    def _set_rows(self, nodes: Any, rows: Any, type: Any) -> Do:
        ids = self._room.ids("nodes", nodes, type)
        checks.check_distinct("nodes", ids)
        table, rows = self._table(type, rows, ids.size)

        def do() -> None:
            table[self._places(ids, type)] = rows

        return do

    def _delete_edges(self, numbers: Any) -> Do:
        numbers = checks.integers("numbers", numbers, np.int64)
        checks.check_range("numbers must be those of edges", numbers, self.next_edge)

        def do() -> int:
            return self._remove(self._known().rows_of(numbers), lambda slots, _: np.isin(
                self._rows.arrays["edge_order"][slots], numbers
            ))

        return do

    def _delete_between(self, src: Any, dst: Any, relation: Any) -> Do:
        source, row, kind = self._ends(src, dst, relation)

        def wanted(slots: np.ndarray, row_of: np.ndarray) -> np.ndarray:
            pairs = source.astype(np.int64) << 32 | row
            found = self._rows.arrays["indices"][slots].astype(np.int64) << 32 | row_of
            own = np.isin(found, pairs)
            return own if kind is None else own & (self._rows.arrays["edge_type"][slots] == kind)

        return lambda: self._remove(np.unique(row), wanted)

    def _delete_nodes(self, nodes: Any, type: Any) -> Do:
        ids = self._room.ids("nodes", nodes, type)

        def wanted(slots: np.ndarray, row_of: np.ndarray) -> np.ndarray:
            return np.isin(row_of, ids) | np.isin(self._rows.arrays["indices"][slots], ids)

        def do() -> int:
            for name, table in self._of_nodes.items():
                if name.startswith(_FEATURES):
                    own = name.removeprefix(_FEATURES)
                    table[self._room.places(ids, own)] = 0
            return self._remove(np.union1d(ids, self._known().rows_from(ids)), wanted)

        return do

    # -- the parts of changes ------------------------------------------------------------------

    def _ends(
        self, src: Any, dst: Any, relation: Any
    ) -> tuple[np.ndarray, np.ndarray, int | None]:
        """The ids of the ends int32 `[n]`, and the number of their relation or None."""
        schema, kind = self._room.schema, None
        types: tuple[str | None, str | None] = (None, None)
        if self._empty.edge_type is not None:
            if schema is None or not schema.relations or relation is None:
                known = () if schema is None else (name for _, name, _ in schema.relations)
                raise InputError(
                    "edges of a graph with relations must have one",
                    repr(relation),
                    f"Give relation=, one of {', '.join(known) or 'a schema, which it lacks'}.",
                )
            kind = schema.relation(relation)
            types = schema.relations[kind][0], schema.relations[kind][2]
        elif relation is not None:
            rule = "relation must be for a graph with relations"
            raise InputError(rule, repr(relation), "Leave it out.")
        source = self._room.ids("src", src, types[0])
        row = self._room.ids("dst", dst, types[1])
        checks.check_paired("src and dst", source, row)
        return source, row, kind

    def _table(self, type: str | None, rows: Any, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The features that nodes of a type are in, and `rows` as `num` rows of them."""
        name = type if type is not None and _FEATURES + type in self._of_nodes else ""
        if (table := self._of_nodes.get(_FEATURES + name)) is None:
            raise InputError(
                "rows must be for nodes that have features",
                f"a live graph without them{f' for {type!r}' * bool(type)}",
                "Give features to Live, or leave rows out.",
            )
        found = np.asarray(checks.check_node_columns({"rows": rows}, num)["rows"])
        if found.shape[1:] != table.shape[1:]:
            raise InputError(
                f"rows must be [{num}, {', '.join(map(str, table.shape[1:]))}]",
                str(list(found.shape)),
                "Give a row of the features' width for each node.",
            )
        return table, found

    def _places(self, ids: np.ndarray, type: str | None) -> np.ndarray:
        own = type if type is not None and _FEATURES + type in self._of_nodes else ""
        return self._room.places(ids, own)

    def _known(self) -> Index:
        if self._index is None or self._index.is_stale():
            self._index = Index(self._rows, self.next_edge)
        return self._index

    def _remove(
        self, nodes: np.ndarray, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> int:
        """Removes the edges of the rows of `nodes`, distinct, that are `wanted`, given their
        slots and rows."""
        slots, row = self._rows.slots(nodes)
        which = wanted(slots, row)
        if which.any():
            self._rows.remove(slots[which], row[which])
        return int(which.sum())

    def _expire(self, latest: int) -> None:
        """Removes the edges whose time to live is over."""
        assert self.keep is not None
        self._latest = max(self._latest, latest)
        since = max(self._latest - self.keep, _EARLIEST)
        self._remove(
            self._expiry.before(since),
            lambda slots, _: self._rows.arrays["edge_time"][slots] < since,
        )

    def _arrays(self) -> dict[str, Any]:
        with self._turn:
            if self._snapshot is None:
                held = {_INDPTR: self._rows.bounds, **self._rows.arrays, **self._of_nodes}
                self._snapshot = Snapshot(held)
            return self._snapshot.arrays

    def _donate(self) -> None:
        """Ends what JAX reads of the arrays, or copies them where it cannot be ended."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and not snapshot.release():
            self._rows.lay_out_again()
            for name, array in self._of_nodes.items():
                self._of_nodes[name] = aligned_copy(array)
