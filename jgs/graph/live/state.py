"""`State`: what a live graph holds, and the changes of it. `LaterRows`: rows of features that
hold from moments on, which come and go in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from jgs.arrays import aligned_zeros, id_column
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.arrays import PREFIX
from jgs.graph.changed import appended_relation, new_edges, rows_like, times_of_new
from jgs.graph.device import aligned_copy, as_device
from jgs.graph.graph import Graph
from jgs.graph.grouping import RelationIndex
from jgs.graph.live.room import NodeRoom, dense_rows
from jgs.graph.live.rows import Rows, RowsByKey, Runs
from jgs.graph.row_tables.versioned import VersionedFeatures, Versions
from jgs.graph.rows import order_dtype, row_of_edges, row_offsets
from jgs.graph.schema import ALWAYS

_LEAST_LATER = 1 << 10  # rows that there is room for


class LaterRows:
    """The later rows of a table of features, in memory: `Versions` with room.

    Fields:
      index: the `Rows` of the table's `N` rows. Their edges are versions: `edge_time` is the
        moment, and `indices` the row, `N + i` for row `i` of `rows`.
      rows: `[R, F]`; those that no version has are 0.
    """

    def __init__(
        self, table: np.ndarray, nodes: np.ndarray, time: np.ndarray, rows: np.ndarray
    ):
        """The `rows` `[V, F]` that `nodes` int `[V]`, ascending, have from `time` on, int64
        `[V]`, ascending within a node. The `table` `[N, F]` has the rows from before."""
        self._first, self._used = len(table), nodes.size
        number = self._first + np.arange(nodes.size, dtype=np.int32)
        ends = row_offsets(np.bincount(nodes, minlength=self._first))
        self.index = Rows(ends, {"edge_time": time, "indices": number})
        self._free: list[int] = []
        self.rows = rows
        self._make_room()
        self._lay_out()

    def of(self, table: Any) -> VersionedFeatures:
        """The features that begin with the rows of the table."""
        index = self.index.bounds, *(self.index.arrays[n] for n in ("edge_time", "indices"))
        return VersionedFeatures((table, self.rows), Versions(*index))

    @property
    def packed(self) -> tuple[np.ndarray, ...]:
        """What `LaterRows` takes beside the table."""
        ends, own = self.index.packed()
        return row_of_edges(ends), own["edge_time"], self.rows[own["indices"] - self._first]

    def add(self, nodes: np.ndarray, time: np.ndarray, rows: np.ndarray) -> None:
        """Adds versions, each after those of its node that are not later."""
        again, self._free = self._free[: nodes.size], self._free[nodes.size :]
        begin, self._used = self._used, self._used + nodes.size - len(again)
        if self._used > len(self.rows):
            self._make_room()
        number = np.concatenate([again, np.arange(begin, self._used)]).astype(np.int32)
        self.rows[number] = rows
        self.index.insert(nodes, {"edge_time": time, "indices": self._first + number})

    def remove(self, nodes: np.ndarray) -> None:
        """Removes the versions of nodes, and leaves no byte of them."""
        slots, row = self.index.slots(np.unique(nodes))
        if slots.size:
            number = self.index.arrays["indices"][slots] - self._first
            self.rows[number], self._free = 0, self._free + number.tolist()
            self.index.remove(slots, row)

    def copy(self) -> None:
        """Moves all arrays to other memory."""
        self._lay_out()
        self.rows = aligned_copy(self.rows)

    def _lay_out(self) -> None:  # for so many that the cost of all rows is theirs
        self.index.lay_out_again(self._first // 4)

    def _make_room(self) -> None:
        size = max(_LEAST_LATER, 1 << max(self._used - 1, 0).bit_length())
        width = self.rows.shape[1]
        room = aligned_zeros(size * width, self.rows.dtype).reshape(size, width)
        room[: len(self.rows)], self.rows = self.rows, room


_NONE = np.empty(0, np.int64)
_EARLIEST, _LEAST = np.iinfo(np.int64).min, 1 << 16
Do = Callable[[], Any]  # makes a change that has been checked


class State:
    """The nodes and edges of a live graph, in memory.

    Each method that is named as a `Change` checks its fields, raises `InputError`, and returns
    what makes the change.

    Fields:
      room: the ids.
      rows: the edges.
      times: int64 `[N]`, those of the nodes, or None.
      features: by type, `""` for those of all nodes; and `later`, their rows that hold from
        moments on, where there have been some.
      next_edge, keep: as in `Live`.
      latest: the latest time of an edge that has come, and `born` that of a node or a row.
      names: of nodes that were added with one, by id; and `named`, their ids by name as text.
      gone: bool `[N]`, the deleted nodes of which no edge has come since.
      moved: how many edges have come or gone, and how often a node's features were set.
    """

    def __init__(self, graph: Graph, features: Any, num_nodes: Any, keep: int | None):
        self.room = NodeRoom(graph, num_nodes)
        indptr, arrays = self.room.of_edges(graph)
        order = _numbers(arrays.get("edge_order", np.arange(graph.num_edges)))
        self.next_edge = int(order.max(initial=-1)) + 1
        dtype = order_dtype(2 * self.next_edge + (1 << 30))
        arrays["edge_order"] = order.astype(dtype, copy=False)
        runs = None
        if graph.edge_type is not None:
            runs = Runs(self.room.targets(arrays["edge_type"]), self.room.num_nodes)
        self.rows, self.times = Rows(indptr, arrays, runs), None
        if graph.node_time is not None:
            self.times = self.room.of_nodes(np.asarray(graph.node_time))
        self.features, self.later = self.room.features(features), dict[str, LaterRows]()
        self._empty = Graph.from_edge_arrays(
            np.zeros(1, np.int64),
            {name: array[:0] for name, array in arrays.items()},
            schema=self.room.schema,
        )
        self.keep, self._expiry = keep, RowsByKey()
        self.latest = _last(arrays.get("edge_time", _NONE))
        self.born = _last(_NONE if self.times is None else self.times)
        self.names: dict[int, str | int] = {}
        self.named: dict[str, int] = {}
        self.gone = aligned_zeros(self.room.num_nodes, bool)  # pages that are read take none
        self.moved = 0
        self._index: tuple[RowsByKey, RowsByKey] | None = None
        self._most = 0  # edges of the index
        if keep is not None and graph.num_edges:
            self._expiry.add(arrays["edge_time"], row_of_edges(indptr))
            self._expire()

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What a graph and its features are made of, a pytree of arrays."""
        runs, later = self.rows.runs, self.later
        index = None if runs is None else RelationIndex(runs.indptr, runs.runs)  # type: ignore
        features = {n: later[n].of(a) if n in later else a for n, a in self.features.items()}
        return self.rows.bounds, self.rows.arrays, self.times, index, features

    def graph_of(self, indptr: Any, edges: Any, times: Any, index: Any) -> Graph:
        made = Graph.from_edge_arrays(indptr, edges, schema=self.room.schema)
        return made._with(node_time=times, relation_index=index)

    def packed(self) -> Graph:
        """A copy of the graph without room."""
        born = None if self.times is None else as_device(self.times.copy())
        return self.graph_of(*self.rows.packed(), born, None)

    @property
    def numbers(self) -> dict[str, Any]:
        """What a base says beside arrays, in JSON."""
        own: dict[str, Any] = {"next_edge": self.next_edge, "used": self.room.used}
        own |= {"keep": self.keep, "latest": self.latest, "born": self.born}
        own |= {"names": [*self.names.items()]}
        return own | {"gone": np.flatnonzero(self.gone).tolist()}

    def restore(self, numbers: dict[str, Any], later: Mapping[str, Any]) -> None:
        """Sets what `numbers` returned, and `LaterRows.packed` of each of `later`."""
        for name, parts in later.items():
            self.later[name] = LaterRows(self.features[name], *parts)
            self.born = max(self.born, _last(parts[1]))
        self.next_edge = numbers["next_edge"]
        # Also of an edge, a node or a row that is gone; older bases do not say all.
        self.latest = max(self.latest, numbers.get("latest", _EARLIEST))
        self.born = max(self.born, numbers.get("born", _EARLIEST))
        self.room.used = dict(numbers["used"])
        self._name(numbers.get("names", ()))  # older bases have none
        self.gone[numbers.get("gone", [])] = True

    def copy(self) -> None:
        """Moves all arrays to other memory."""
        if self.rows.runs is not None:
            self.rows.runs = self.rows.runs.copy()
        self.rows.lay_out_again()
        self.times = None if self.times is None else aligned_copy(self.times)
        self.features = {name: aligned_copy(array) for name, array in self.features.items()}
        for later in self.later.values():
            later.copy()

    def append(
        self, src: Any, dst: Any, time: Any, edge_weight: Any, relation: Any, **columns: Any
    ) -> Do:
        source, row, kind = self._ends(src, dst, relation)
        num, given = row.size, {n.removeprefix(PREFIX): a for n, a in columns.items()}
        of = source, row, kind, self.times
        new = new_edges(self._empty, *of, time, edge_weight, given)

        def do() -> np.ndarray:
            numbers = np.arange(self.next_edge, self.next_edge + num)
            if not num:
                return numbers
            self.next_edge += num
            if self.next_edge > np.iinfo(self.rows.arrays["edge_order"].dtype).max:
                wide = aligned_copy(self.rows.arrays["edge_order"].astype(np.int64))
                self.rows.arrays["edge_order"] = wide
            self.rows.insert(row, new | {"edge_order": numbers})
            self.moved += num
            for ends in (source, row):
                if self.gone[ends].any():
                    self.gone[ends] = False
            for index, key in zip(self._index or (), (numbers, source), strict=False):
                index.add(key, row)
            if time is not None:
                self.latest = max(self.latest, int(new["edge_time"].max()))
            if self.keep is not None:
                self._expiry.add(new["edge_time"], row)
                self._expire()
            return numbers

        return do

    def add_nodes(self, count: Any, type: Any, time: Any, rows: Any, names: Any = None) -> Do:
        ids = self.room.new(count, type)
        born = times_of_new(ids.size, time, self.times is not None)
        own = None if rows is None else self._own_rows(self._table_of(type), rows, ids.size)
        new = [] if names is None else self._new_names(names, ids.size)

        def do() -> np.ndarray:
            self.room.take(ids.size, type)
            self._name(zip(ids.tolist(), new, strict=False))
            if born is not None:
                assert self.times is not None
                self.times[ids], self.born = born, max(self.born, _last(born))
            if own is not None:
                self._set(ids, self._table_of(type), own)
            return ids

        return do

    def set_rows(self, nodes: Any, rows: Any, type: Any, time: Any = None) -> Do:
        ids = self.room.ids("nodes", nodes, type)
        name = self._table_of(self.room.type_of(ids) if type is None else type)
        own = self._own_rows(name, rows, ids.size)
        if time is None:
            checks.check_distinct("nodes", ids)
            return lambda: self._set(ids, name, own)
        if self._empty.edge_time is None or own.ndim != 2:
            raise InputError(
                "rows that hold from moments on must be numbers [n, F], in a graph whose edges "
                "have times",
                f"{list(own.shape)}, {'no ' * (self._empty.edge_time is None)}edge_time",
                "Leave time out, so that they hold at every moment.",
            )
        time = np.full(ids.size, time) if np.ndim(time) == 0 else time
        return partial(self._add, ids, name, own, checks.check_times(time, ids.size, "time"))

    def delete_edges(self, numbers: Any) -> Do:
        numbers = checks.integers("numbers", numbers, np.int64)
        rule, remedy = "numbers must be those of edges", "Give numbers that append returned."
        checks.check_range(rule, numbers, self.next_edge, remedy)

        def do() -> int:
            return self._remove(
                self._known()[0].of(numbers),
                lambda slots, _: np.isin(self.rows.arrays["edge_order"][slots], numbers),
            )

        return do

    def delete_between(self, src: Any, dst: Any, relation: Any) -> Do:
        source, row, kind = self._ends(src, dst, relation)

        def wanted(slots: np.ndarray, row_of: np.ndarray) -> np.ndarray:
            pairs = source.astype(np.int64) << 32 | row
            found = self.rows.arrays["indices"][slots].astype(np.int64) << 32 | row_of
            own = np.isin(found, pairs)
            return own if kind is None else own & (self.rows.arrays["edge_type"][slots] == kind)

        return lambda: self._remove(np.unique(row), wanted)

    def delete_nodes(self, nodes: Any, type: Any) -> Do:
        ids = self.room.ids("nodes", nodes, type)

        def wanted(slots: np.ndarray, row_of: np.ndarray) -> np.ndarray:
            return np.isin(row_of, ids) | np.isin(self.rows.arrays["indices"][slots], ids)

        def do() -> int:
            self.gone[ids] = True
            for node in self.names.keys() & ids.tolist():
                del self.named[str(self.names.pop(node))]
            if self.times is not None:
                self.times[ids] = ALWAYS
            for name in self.features:
                self._set(ids, name, 0)
            return self._remove(np.union1d(ids, self._known()[1].of(ids)), wanted)

        return do

    # -- the parts of changes ------------------------------------------------------------------

    def _ends(
        self, src: Any, dst: Any, relation: Any
    ) -> tuple[np.ndarray, np.ndarray, int | None]:
        """The ids of the ends int32 `[n]`, and the number of their relation or None."""
        relation = relation.tolist() if isinstance(relation, np.ndarray) else relation
        kind = appended_relation(self._empty, relation)
        types: tuple[str | None, str | None] = (None, None)
        if kind is not None and self.room.schema is not None:
            types = self.room.schema.relations[kind][::2]
        source = self.room.ids("src", src, types[0])
        row = self.room.ids("dst", dst, types[1])
        checks.check_paired("src and dst", source, row)
        return source, row, kind

    def _table_of(self, type: str | None) -> str:
        """The name of the features that nodes of a type are in."""
        return type if type is not None and type in self.features else ""

    def _own_rows(self, name: str, rows: Any, num: int) -> np.ndarray:
        """`rows` as `num` rows of the features `name`."""
        if (table := self.features.get(name)) is None:
            known = ", ".join(map(repr, self.features))
            raise InputError(
                "rows must be for nodes that have features",
                f"a live graph with those of {known} alone" if known else "one without any",
                "Give features to Live, name the type of the nodes, or leave rows out.",
            )
        found = dense_rows("rows", rows, num)
        return rows_like("rows must be like the features", found, table, "position")

    def _new_names(self, names: Any, num: int) -> list[Any]:
        """A list of `num` names that no node has that was added with one."""
        # Text as objects: one that is long does not make all others as long.
        names = np.array(names, object) if isinstance(names, tuple) else names
        own = id_column("names of new nodes", names).tolist()
        distinct = {*map(str, own)}
        if len(own) != num or len(distinct) < num or distinct & self.named.keys():
            again = sorted(distinct & self.named.keys())[:1]
            value = f"{len(own)}, {len(distinct)} different" + f", {again} again" * bool(again)
            rule = f"names of new nodes must be one for each of {num}, which no other node has"
            raise InputError(rule, value, "Give each node a name of its own.")
        return own

    def _name(self, nodes: Iterable[Any]) -> None:
        for node, name in nodes:
            self.names[node], self.named[str(name)] = name, node

    def _set(self, ids: np.ndarray, name: str, rows: Any) -> None:
        """Sets the rows of ids, of those of them that are in the features `name`, for ever."""
        places = self.room.places(ids, name)
        self.features[name][places] = rows
        self.moved += places.size
        if name in self.later:
            self.later[name].remove(places)

    def _add(self, ids: np.ndarray, name: str, rows: np.ndarray, time: np.ndarray) -> None:
        """Sets the rows of ids from their moments on."""
        self.moved, self.born = self.moved + ids.size, max(self.born, _last(time))
        if name not in self.later:
            self.later[name] = LaterRows(self.features[name], _NONE, _NONE, rows[:0])
        self.later[name].add(self.room.places(ids, name), time, rows)

    def _known(self) -> tuple[RowsByKey, RowsByKey]:
        """The rows of edges by number and by source; also of edges that are gone, until so many
        have come that it is made again."""
        if self._index is None or self._index[0].size > self._most:
            self._index = RowsByKey(), RowsByKey(np.int32)
            slots, row = self.rows.slots(np.arange(self.room.num_nodes, dtype=np.int32))
            for index, name in zip(self._index, ("edge_order", "indices"), strict=True):
                index.add(self.rows.arrays[name][slots], row)
            self._most = _LEAST + 2 * row.size
        return self._index

    def _remove(
        self, nodes: np.ndarray, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> int:
        """Removes the edges of the rows of `nodes`, distinct, that are `wanted`, given their
        slots and rows."""
        slots, row = self.rows.slots(nodes)
        which = wanted(slots, row)
        if which.any():
            self.rows.remove(slots[which], row[which])
        self.moved += (num := int(which.sum()))
        return num

    def _expire(self) -> None:
        """Removes the edges whose time to live is over."""
        assert self.keep is not None
        since = max(self.latest - self.keep, _EARLIEST)
        self._remove(
            self._expiry.take_before(since),
            lambda slots, _: self.rows.arrays["edge_time"][slots] < since,
        )


def _numbers(order: np.ndarray) -> np.ndarray:
    """int64 `[E]`: the numbers of edges by their `edge_order`. Those that are out of bounds in
    it, as loops of `Graph.with_self_loops` are, get the next ones."""
    number = order.astype(np.int64)
    lost = order == np.iinfo(order.dtype).max
    number[lost] = number[~lost].max(initial=-1) + 1 + np.arange(lost.sum())
    return number


def _last(times: np.ndarray) -> int:
    return int(times.max(initial=_EARLIEST))
