"""`Live`: a graph that grows while it is drawn from."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from jgs.errors import InputError, refusing
from jgs.graph import checks
from jgs.graph.arrays import PREFIX
from jgs.graph.graph import Graph
from jgs.graph.live.base import (
    base_at,
    drop_older,
    log_of,
    new_log,
    read_base,
    write_base,
    write_base_apart,
)
from jgs.graph.live.log import KINDS, Change, Log, field
from jgs.graph.live.snapshot import Snapshot, Turns
from jgs.graph.live.state import State
from jgs.graph.schema import ALWAYS
from jgs.graph.shown import Shown

Relation = str | tuple[str, str, str]


class Live(Shown):
    """A graph that changes in place, and that samplers draw from between changes.

        live = Live(graph, num_nodes=graph.num_nodes + 1000)
        batch = sampler.sample(key, live.graph, sampler.init(live.graph), seeds)
        live.append(src, dst, time=time)
        batch = sampler.sample(key, live.graph, sampler.init(live.graph), seeds)

    A draw has the bits of a draw from the graph that is made anew of the edges that are there,
    in the order in which they came. Shapes stay, so that nothing compiles again until more
    edges have come than there is room for, at first about a fifth of those there were.

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
        They follow all ids of the graph, those of the first type first, and are a part of its
        own in the schema (`Schema.parts`).
      keep: int, the time to live of edges in the unit of `edge_time`. An edge is removed once
        another has come that is later by more. None: edges stay.
      folder: a new folder for the graph and a log of its changes. A change is on the disk
        before the method that makes it returns, and `open` finds it there, however the process
        ends. None: nothing is written.

    Fields:
      position: int, the number of changes so far; it names the graph.

    Raises `InputError`, as its methods do; a change that raises it has changed nothing.
    """

    def __init__(
        self,
        graph: Graph,
        features: Any = None,
        *,
        num_nodes: int | Mapping[str, int] | None = None,
        keep: int | None = None,
        folder: str | os.PathLike | None = None,
    ):
        if not isinstance(graph, Graph) or graph.has_room:
            seen = "a live one" if isinstance(graph, Graph) else type(graph).__name__
            remedy = "Make one with Graph.from_edges, from_relations or open."
            raise InputError("a live graph must begin with a jgs.Graph", seen, remedy)
        if keep is not None and (graph.edge_time is None or not _is_int(keep) or keep < 1):
            rule = "keep, a time to live, must be an int of at least 1, for edges with times"
            seen = f"{keep!r} and {'no ' * (graph.edge_time is None)}edge_time"
            raise InputError(rule, seen, "Leave it out, or give the edges times.")
        keep = None if keep is None else int(keep)
        self._state, self.position = State(graph, features, num_nodes, keep), 0
        self._merged = 0  # `State.moved` of the newest base
        self._snapshot: Snapshot | None = None
        self._turns, self._merging, self._half = Turns(), threading.Lock(), False
        self._later: Iterator[Change] = iter(())
        self._last = -1  # position that `_later` leads to
        self._folder, self._log = folder, None
        if folder is not None:
            with ExitStack() as stack:
                self._log = log = new_log(folder)
                stack.callback(log.close)
                self._write_base()
                stack.pop_all()

    @classmethod
    def open(
        cls, folder: str | os.PathLike, *, position: int | None = None, writes: bool = True
    ) -> Self:
        """The live graph in a folder, after the last change that was written.

        Args:
          position: where to open the graph, to be read: it takes no changes. None: at the last.
          writes: whether it takes changes; one process may. False: it can `follow` those that
            another writes.

        Raises `InputError` where the folder holds none, is damaged, or no longer has the
        position.
        """
        if position is not None and not _is_int(position):
            rule = "a position must be an int, a number of changes"
            raise InputError(rule, repr(position), "Give one.")
        while True:
            begin, path = base_at(folder, position)
            try:
                return cls._opened(path, begin, position, writes)
            except (InputError, OSError):
                if base_at(folder, position)[0] == begin:  # else a merge has removed the base
                    raise

    @classmethod
    def _opened(cls, path: Path, begin: int, position: int | None, writes: bool) -> Self:
        """The live graph of the base in `path`, which is at `begin`, and of later changes."""
        log = Log.open(log_of(path.parent), writes=writes and position is None)
        with ExitStack() as stack:
            stack.callback(log.close)
            last = log.position if position is None else position
            if not begin <= last <= log.position:
                rule = f"a position of {path.parent} must be in [{begin}, {log.position}]"
                raise InputError(rule, last, "Ask for another, or restore its log from a copy.")
            graph, features, later, state = read_base(path)
            live = cls(graph, features.get("", features or None), keep=state["keep"])
            live._state.restore(state, later)
            live._folder, live._log, live.position = path.parent, log, begin
            changes = log.changes(begin)
            for change in islice(changes, last - begin):
                live._make(change)
            if log.writes:
                drop_older(path.parent, log, begin)  # what a killed merge has left
            if position is None:
                stack.pop_all()
            else:
                live._later, live._last = changes, log.position
        return live

    def advance(self, position: int) -> None:
        """Goes on to a later position, where this graph was opened at one; at most to the last
        that the log had then."""
        with self._alone():
            if not (_is_int(position) and self.position <= position <= self._last):
                rule = f"the position must be in [{self.position}, {self._last}]"
                raise InputError(rule, repr(position), "Open the graph at a position.")
            for change in islice(self._later, position - self.position):
                self._make(change)

    def close(self) -> None:
        """Ends the writing to the folder; another process may then open it. The graph stays,
        and takes no more changes."""
        with self._turns.turn:
            if self._log is not None:
                self._log.close()

    def _facts(self) -> dict[str, str]:
        used = sum(self._state.room.used.values())
        counts = {"num_nodes": f"{used:,}", "num_edges": f"{self.num_edges:,}"}
        return {**counts, "position": f"{self.position:,}"}

    # -- what there is -------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph, until the next change. Its rows have room, so `indptr` is int64
        `[2, N+1]`: the edges of node `v` are `indptr[0, v]:indptr[1, v]`. `num_edges` is the
        number of slots; those in no row have no edges. `edge_order` has the numbers of edges,
        which are given in the order in which they come."""
        return self._state.graph_of(*self._arrays()[:-1])

    @property
    def features(self) -> Any:
        """The features with rows for all ids, as they were given: an array, or arrays by node
        type; None if there are none. An array of which rows hold from moments on (`set_rows`)
        is `VersionedFeatures`, which a batch reads. The next change donates them too."""
        found = self._arrays()[-1]
        return found.get("", found or None)

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self._state.rows.num_edges

    @property
    def next_edge(self) -> int:
        """The number that the next edge gets."""
        return self._state.next_edge

    @property
    def latest(self) -> int | None:
        """The latest time of an edge, a node or a row that has come, or None."""
        found = max(self._state.latest, self._state.born)
        return None if found == ALWAYS else found

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """How many nodes there are; in a graph with a schema by type."""
        used = self._state.room.used
        return dict(used) if self._state.room.schema is not None else used[""]

    @property
    def names(self) -> Mapping[int, str | int]:
        """The names of nodes that were added with one, by id."""
        return MappingProxyType(self._state.names)

    @property
    def named(self) -> Mapping[str, int]:
        """The ids of the nodes in `names`, by their names as text."""
        return MappingProxyType(self._state.named)

    @property
    def gone(self) -> np.ndarray:
        """bool `[N]`, NumPy's, which changes: deleted nodes of which no edge has come since."""
        return self._state.gone

    def ids(self, nodes: Any, type: str | None = None) -> np.ndarray:
        """int32 `[n]`: the ids of `nodes`, integer `[n]`, which with a `type` count from 0
        within it. Raises `InputError` for ids that no node has yet."""
        return self._state.room.ids("nodes", nodes, type)

    @property
    def unmerged(self) -> int:
        """How many edges have come or gone, and rows of features been set, since the newest
        base was made, or the graph if it has no folder."""
        return self._state.moved - self._merged

    def packed(self) -> Graph:
        """A graph without room of the same nodes and edges, which does not change. It is made
        of all edges."""
        with self._turns.turn:
            self._check_whole()
            return self._state.packed()

    @contextmanager
    def reading(self) -> Iterator[Graph]:
        """A context in which other threads wait with their changes; its value is `graph`. The
        thread that is in it makes none."""
        with self._turns.reading():
            yield self.graph

    # -- changes -------------------------------------------------------------------------------

    def append(
        self,
        src: Any,
        dst: Any,
        *,
        time: Any = None,
        edge_weight: Any = None,
        edge_columns: Mapping[str, Any] | None = None,
        relation: Relation | None = None,
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
        columns = {} if edge_columns is None else edge_columns
        if not isinstance(columns, Mapping):
            checks.check_columns(columns, 0, ())
        named = {f"{PREFIX}{name}": column for name, column in columns.items()}
        return self.apply(Change("append", {**fields, **named, "relation": relation}))

    def add_nodes(
        self,
        count: int,
        *,
        type: str | None = None,
        time: Any = None,
        rows: Any = None,
        names: Any = None,
    ) -> np.ndarray:
        """Gives the next ids to `count` new nodes. Returns int32 `[count]`, ids of the graph.

        Args:
          type: their node type, in a graph with a schema.
          time: integer `[count]`, where the graph's nodes have times.
          rows: numbers `[count, ...]`, their features. None: 0.
          names: text or integers `[count]`, by which `named` finds them.
        """
        fields = {"count": count, "type": type, "time": time, "rows": rows}
        fields |= {} if names is None else {"names": names}
        return self.apply(Change("add_nodes", fields))

    def set_rows(
        self, nodes: Any, rows: Any, *, type: str | None = None, time: Any = None
    ) -> None:
        """Sets the features of `nodes`, integers `[n]`, to `rows` `[n, ...]`. With a `type`
        nodes count from 0 within it.

        Args:
          time: integer `[n]`, or one for all, in any order: the moments from which the rows
            hold, in a graph whose edges have times. A batch then reads for each of its nodes
            the row of the latest moment *before* the node's cutoff, as it sees edges; of equal
            moments that of the last one set. None: the rows hold at every moment, in place of
            all that were set before, and `nodes` are distinct.
        """
        fields = {"nodes": nodes, "rows": rows, "type": type}
        self.apply(Change("set_rows", fields | ({} if time is None else {"time": time})))

    def delete_edges(self, numbers: Any) -> int:
        """Removes the edges of these numbers, integer `[n]`. Those that are gone are passed
        over. Returns how many it removed."""
        return self.apply(Change("delete_edges", {"numbers": numbers}))

    def delete_between(self, src: Any, dst: Any, *, relation: Relation | None = None) -> int:
        """Removes all edges `src[i] -> dst[i]`, of the `relation` where the graph has
        relations; nodes are as in `append`. Returns how many it removed."""
        fields = {"src": src, "dst": dst, "relation": relation}
        return self.apply(Change("delete_between", fields))

    def delete_nodes(self, nodes: Any, *, type: str | None = None) -> int:
        """Removes all edges from and to `nodes`, integer `[n]`, and what `names` has of them,
        and sets their features to 0. Their ids are not given again. With a `type` nodes count
        from 0 within it. Returns how many edges it removed."""
        return self.apply(Change("delete_nodes", {"nodes": nodes, "type": type}))

    def apply(self, change: Change) -> Any:
        """Makes a change, and returns what the method of its name returns."""
        if not isinstance(change, Change) or change.kind not in KINDS:
            rule = f"a change must be one of {', '.join(KINDS)}"
            raise InputError(rule, repr(change), "Correct it.")
        with refusing(
            (TypeError, AttributeError),
            f"a change must have {change.kind}'s fields",
            "Correct it.",
        ):
            fields = {name: field(name, value) for name, value in change.fields.items()}
            signature(getattr(self._state, change.kind)).bind(**fields)
        with self._alone():
            return self._make(Change(change.kind, fields), self._log)

    def follow(self) -> list[Change]:
        """Makes the changes that another process has written since, and returns them."""
        with self._alone():
            changes = [] if self._log is None else self._log.follow()
            for change in changes:
                self._make(change)
            return changes

    def at(self, position: int) -> Live:
        """The graph as it was after so many changes, to be read. Raises `InputError` where the
        folder no longer has it, and without a folder."""
        if self._folder is None:
            rule = "a live graph must have a folder to know what it was"
            raise InputError(rule, "one without", "Give folder= to Live.")
        return Live.open(self._folder, position=-1 if position is None else position)

    def merge(self, *, apart: bool = False) -> None:
        """Writes the graph as a new base of its folder, and removes what was there before: the
        old base, and the changes up to now. What was deleted is in no file then. It may run in
        a thread of its own: draws and changes go on meanwhile, and no draw changes. With
        `apart` a process of its own writes the base, with the lowest priority, so that this
        one does nothing but wait for it. Without a folder it gives the rows new room."""
        if self._folder is None or self._log is None:
            with self._alone():
                self._do(self._state.rows.lay_out_again)
            return
        with self._merging:
            with self._turns.turn:  # no change is between these
                position, moved = self._log.cut(), self._state.moved
            if apart:
                write_base_apart(self._folder, position)
            else:
                self.at(position)._write_base()
            drop_older(self._folder, self._log, position)
            self._merged = moved

    # -- the parts of these --------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A context that no thread reads in."""
        with self._turns.alone():
            self._check_whole()
            yield

    def _check_whole(self) -> None:
        if self._half:
            seen, remedy = "one whose last change was interrupted", "Open its folder again."
            raise InputError("a live graph must be whole", seen, remedy)

    def _make(self, change: Change, log: Log | None = None) -> Any:
        """Checks a change, writes it to a log, and makes it."""
        do = getattr(self._state, change.kind)(**change.fields)
        if log is not None:
            log.write(change)
        result = self._do(do)
        self.position += 1
        return result

    def _do(self, do: Callable[[], Any]) -> Any:
        """Changes the arrays, or copies of those that JAX cannot give up. The graph is not read
        again if this is interrupted."""
        self._half = True
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and not snapshot.release():
            self._state.copy()
        result = do()
        self._half = False
        return result

    def _write_base(self) -> None:
        assert self._folder is not None
        later = {name: rows.packed for name, rows in self._state.later.items()}
        tables = self.packed(), self._state.features, later
        write_base(self._folder, self.position, *tables, self._state.numbers)

    def _arrays(self) -> tuple[Any, ...]:
        with self._turns.turn:
            self._check_whole()
            if self._snapshot is None:
                self._snapshot = Snapshot(self._state.arrays)
            return self._snapshot.arrays


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
