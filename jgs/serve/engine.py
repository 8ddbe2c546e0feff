"""`Engine`: an artifact's model and a graph that may grow, without the network."""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import described
from jgs.errors import InputError, one_line
from jgs.export import load_exported
from jgs.export.spec import KIND, array_key, moments_asked
from jgs.files.storage import MANIFEST, open_arrays
from jgs.graph import Graph, Schema
from jgs.graph.live import Change, Live
from jgs.graph.live.base import bases
from jgs.graph.live.log import Unwritten
from jgs.graph.live.room import node_counts
from jgs.graph.row_tables.versioned import PARTS, VersionedFeatures
from jgs.serve.questions import Question

log = logging.getLogger("jgs")
_DENSE = ("float32", "float16", "bfloat16")  # kinds of features that are a matrix of numbers
_LEAST_MERGED = 4096


class NotHere(InputError):
    """A change that another process may take."""


class Engine:
    """Answers of an artifact's model on its graph with the changes of a log.

    An answer is a function of the artifact, the position of the log, the key and the question,
    and has all four. One thread calls the methods.

    Args:
      artifact: the folder that `jgs export --with-graph` wrote; with `--live` for a log.
      folder: that of the live graph, which is made of the artifact's where there is none. None:
        the graph stays.
      follow: whether another process writes the folder.
      position: where to open the graph; None: at its last position. With it nothing is written.
      ahead: how much later a moment may be than the one after the latest time of the graph.
      merge_at: the share of its edges that may come or go, or rows of features be set, before
        the folder is merged in the background; and at least 4,096. 0: never.

    Fields:
      model: the `jgs.export.ExportedModel`.
      digest: SHA-256 of the artifact, which has those of all its files.
      live: the `jgs.graph.Live`, or None.
      writes: whether this process takes changes.
      schema: that of the graph, or None.
      latest: the time of the latest edge or node, or None where the graph has no times.
      edges: how many edges this process has appended.
      merging: the thread that merges, or None.

    Raises `InputError`, also for a folder that another process writes.
    """

    def __init__(
        self,
        artifact: str | Path,
        folder: str | Path | None = None,
        *,
        follow: bool = False,
        position: int | None = None,
        ahead: int = 0,
        merge_at: float = 0,
    ):
        self.model, self.ahead = load_exported(artifact), ahead
        self.digest = hashlib.sha256((Path(artifact) / MANIFEST).read_bytes()).hexdigest()
        self.live: Live | None = None
        self.edges, self._seen, self._stale = 0, time.monotonic(), True
        self.writes = folder is not None and not follow and position is None
        self._folder, graph = folder, self._graph(Path(artifact))
        if folder is not None:
            self.live = self._opened(folder, graph, position)
        else:
            times = [t for t in (graph.edge_time, graph.node_time) if t is not None and t.size]
            self._latest = max((int(np.max(np.asarray(t))) for t in times), default=None)
        self._renew()
        self._merge_at = merge_at if self.writes else 0
        self.merging: threading.Thread | None = None
        self._due = self._merge_due()

    def _graph(self, artifact: Path) -> Graph:
        if not self.model.spec.has_graph:
            rule = "a served artifact must hold its graph"
            raise InputError(rule, "none", "Export the run again with --with-graph.")
        arrays = open_arrays(artifact, KIND, False)  # `load_exported` has verified them
        own = {n.removeprefix("graph."): a for n, a in arrays.items() if n[:6] == "graph."}
        return Graph.from_stored(str(artifact), own)

    def _opened(self, folder: str | Path, graph: Graph, position: int | None) -> Live:
        spec = self.model.spec
        state = any(name.startswith("state.") for name in spec.inputs)
        if state or not spec.room:
            raise InputError(
                "a graph that grows must be of an artifact whose programs read such graphs",
                f"one of {spec.sampler}, without --live" if not state else "one of --half-life",
                "Export the run again with --live, or one without --half-life.",
            )
        counts = node_counts(graph)
        types = [*counts] if spec.typed else [""]
        tables = spec.tables or [None] * len(types)
        # The node types of matrices of features, by array, and whether there are others.
        self._tables = {
            array_key(f"of_type_{number}" if spec.typed else ""): name
            for number, (name, table) in enumerate(zip(types, tables, strict=True))
            if table is not None and table[0] == "dense"
        }
        self._others = len(self._tables) < sum(table is not None for table in tables)
        if bases(folder) or not self.writes:
            return Live.open(folder, position=position, writes=self.writes)
        found = {  # without ids that are free in the program
            name: np.asarray(self.model.graph.arrays[key])[: counts.get(name, graph.num_nodes)]
            for key, name in self._tables.items()
        }
        features = (found or None) if spec.typed else found.get("")
        for name, more in zip(counts, spec.new_nodes or (), strict=False):
            counts[name] += more
        num_nodes = counts[""] if graph.schema is None else counts
        return Live(graph, features, num_nodes=num_nodes, folder=folder)

    @property
    def position(self) -> int:
        return 0 if self.live is None else self.live.position

    @property
    def latest(self) -> int | None:
        return self._latest if self.live is None else self.live.latest

    @property
    def schema(self) -> Schema | None:
        return self.model.graph.schema

    @property
    def num_nodes(self) -> int:
        """The number of nodes there are."""
        count = self.model.num_nodes if self.live is None else self.live.num_nodes
        return sum(count.values()) if isinstance(count, dict) else count

    @property
    def unmerged(self) -> int:
        """How many edges have come or gone, and rows been set, since the last merge."""
        return 0 if self.live is None else self.live.unmerged

    @property
    def key(self) -> tuple[int, int]:
        """The key of a question without one."""
        return self.model.spec.first_key

    @property
    def lag(self) -> float:
        """Seconds since this process knew all changes of the log."""
        return 0.0 if self.live is None or self.writes else time.monotonic() - self._seen

    def advance(self, position: int) -> None:
        """Makes the changes up to a later `position`."""
        if self.live is not None:
            self.live.advance(position)
            self._stale = True
            self._renew()
        if self.position != position:
            rule, value = "the log must have the changes before an answer", f"{self.position}"
            raise InputError(rule, f"{value} of {position}", "Give the log of that server.")

    def follow(self) -> None:
        """Makes the changes that the process that writes has written since."""
        assert self.live is not None
        assert self._folder is not None
        try:
            while self.live.follow():
                self._stale = True
        except InputError:  # that process has merged what this one did not know yet
            self.live, self._stale = Live.open(self._folder, writes=False), True
        self._renew()
        self._seen = time.monotonic()

    # -- changes -------------------------------------------------------------------------------

    def changed(self, changes: Sequence[Change]) -> list[dict[str, Any] | InputError]:
        """Makes the changes, and writes them. Those of one kind that come one after another
        are one change of the log, where they can be. An answer says the position after its
        change, and the numbers of the edges that it added, or how many it removed."""
        answers: list[dict[str, Any] | InputError] = []
        try:
            for _, group in itertools.groupby(changes, _alike):
                answers += _tried(self._made, list(group), InputError)
        finally:
            self._renew()
        if self._due is not None and self.unmerged >= self._due:
            self._due = None
            self.merging = threading.Thread(target=self._merge, daemon=True)
            self.merging.start()
        return answers

    def _merge_due(self, before: int = 0) -> float | None:
        """How many changes may be unmerged, beside those `before`; None: any number."""
        edges = 0 if self.live is None else self.live.num_edges
        return before + max(_LEAST_MERGED, self._merge_at * edges) if self._merge_at else None

    def _merge(self) -> None:
        assert self.live is not None
        left = 0
        try:
            self.live.merge(apart=True)
            log.info("merged the changes into the graph of the folder")
        except (InputError, OSError) as error:  # it is tried again after as many changes
            log.error("the changes of the graph could not be merged: %s", one_line(error))
            left = self.unmerged
        self._due = self._merge_due(left)

    def _made(self, some: list[Change]) -> list[dict[str, Any]]:
        if self.live is None:
            remedy = "Start jgs serve with --log FOLDER."
            raise NotHere("the graph of this server must grow", "one that stays", remedy)
        if not self.writes:
            remedy = "Send it to the process without --follow."
            raise NotHere("changes must go to the process that writes", "a follower", remedy)
        first, parts = some[0], [0]
        fields = first.fields
        if first.kind == "append":
            parts = np.cumsum([0, *(each.fields["src"].size for each in some)]).tolist()
            fields = {
                name: np.concatenate([each.fields[name] for each in some])
                if isinstance(value, np.ndarray)
                else value
                for name, value in fields.items()
            }
        own = "" if not self.model.spec.typed else fields.get("type")
        reads = any(name.endswith(PARTS[2]) for name in self.model.spec.inputs)
        self._check_later(reads or fields.get("time") is None or first.kind != "set_rows")
        sets = first.kind in ("add_nodes", "set_rows")
        lacks = sets and own not in (*self._tables.values(), None)
        if lacks or (first.kind == "delete_nodes" and self._others):
            rule = "nodes must have features in a matrix of numbers to be changed"
            raise InputError(rule, "others", "Export with --feature-dtype float32.")
        self._stale = True  # also where a fault ends the change halfway
        result = self.live.apply(Change(first.kind, fields))
        said = {"artifact": self.digest, "position": self.position}
        if first.kind == "add_nodes":
            return [said | {"nodes": result.tolist()}]
        if first.kind == "set_rows":
            return [said]
        if first.kind != "append":
            return [said | {"edges_removed": int(result)}]
        self.edges += len(result)
        return [said | {"edges": result[a:b].tolist()} for a, b in itertools.pairwise(parts)]

    def _check_later(self, reads: bool) -> None:
        """Raises `InputError` unless programs read the rows that hold from moments on."""
        if not reads:
            spec = self.model.spec
            raise InputError(
                "rows that hold from moments on must be for programs that read them, of models "
                "with times",
                f"one with{'out' * (not spec.timed)} times, of jgs {spec.jgs}",
                "Leave time out." if not spec.timed else "Run jgs export --again ARTIFACT.",
            )

    def _renew(self) -> None:
        """Gives the model the graph as it is now."""
        if self.live is None or not self._stale:
            return
        graph, store = self.live.graph, copy.copy(self.model.graph)
        given = {"indptr": graph.indptr, **graph.edge_arrays()}
        spec, features = self.model.spec, self.live.features
        for key, name in self._tables.items():
            table = features[name] if isinstance(features, dict) else features
            parts, known = {"": table}, store.arrays.get(f"{key}.{PARTS[2]}")
            if getattr(table, "versions", None) is not None:
                self._check_later(known is not None)
                parts = table.parts
            elif not (known is None or table is None or known.shape[1] == len(table) + 1):
                parts = VersionedFeatures.of_parts(table).parts
            given |= {f"{key}.{part}".removesuffix("."): each for part, each in parts.items()}
        wanted = [n for n in spec.inputs if n in given or Graph.is_edge_array(n)]
        own: dict[str, Any] = {name: given.get(name) for name in wanted}
        for name, array in own.items():
            known = store.arrays[name]
            # Without types there may be any number of nodes.
            cut = 2 if name.endswith("indptr") and spec.schema is None else 1
            form = known.dtype, known.shape[cut:]
            if array is None or (array.dtype, array.shape[cut:]) != form:
                raise InputError(
                    f"{self._folder} must hold a graph of the artifact's form",
                    f"{name} {described(array)}",
                    "Give the artifact that it was made with, or another folder.",
                )
        grown = any(store.arrays[name].shape != array.shape for name, array in own.items())
        store.arrays, store.num_edges = store.arrays | own, graph.num_edges
        store.num_nodes, store.schema = graph.num_nodes, graph.schema
        store.gone = self.live.gone
        if self.model.node_ids is not None:
            self.model.node_ids.later = self.live.named
        self.model.graph, self._stale = store, False
        if grown:
            log.info("programs are compiled for more room: %d edges", own["indices"].size)
            self.model.warm()

    # -- answers -------------------------------------------------------------------------------

    def answers(self, questions: Sequence[Question]) -> list[dict[str, Any] | Exception]:
        """An answer to each question, or the exception that it raises."""
        found: list[Any] = [None] * len(questions)
        groups: dict[Any, list[tuple[int, Question]]] = {}
        for at, asked in enumerate(questions):
            try:
                asked = asked._replace(time=self._moments(asked))
            except Exception as error:
                found[at] = error
                continue
            key = (asked.kind, asked.what, asked.key, asked.options)
            groups.setdefault(key, []).append((at, asked))
        for group in groups.values():
            made = _tried(self._answered, [asked for _, asked in group], Exception)
            for (at, _), answer in zip(group, made, strict=True):
                found[at] = answer
        return found

    def _moments(self, asked: Question) -> np.ndarray | None:
        """int64 `[n]`: the moments of a question to a model with times."""
        spec = self.model.spec
        if not spec.timed or asked.kind == "recommend":
            times = None if asked.time is None else moments_asked(spec, asked.time, 1)
            if times is not None and self._prepared != times[0]:
                rule = f"the moment of a list must be that of the candidates, {self._prepared}"
                raise InputError(rule, times[0], "Leave it out, or export with another --at.")
            return times
        now = (self.latest or 0) + 1
        given = now if asked.time is None else asked.time
        times = moments_asked(spec, given, len(asked.rows))
        if times is not None and (times > now + self.ahead).any():
            raise InputError(
                f"a moment must be at most {now + self.ahead}, of a graph whose last time is "
                f"{self.latest}",
                int(times.max()),
                "Append what has happened since, or start the server with --ahead.",
            )
        return times

    @property
    def _prepared(self) -> int | None:
        """The moment of the candidates for lists, if they have one."""
        found = self.model.graph.candidates
        return None if found is None or found.time is None else int(found.time)

    def _answered(self, group: list[Question]) -> list[dict[str, Any]]:
        kind, what, _, _, key, options = group[0]
        rows = np.concatenate([asked.rows for asked in group])
        own, sizes = dict(options), self.model.spec.batch_sizes
        own.setdefault("batch_size", next((s for s in sizes if s >= len(rows)), sizes[-1]))
        common = {"artifact": self.digest, "position": self.position, "key": list(key), **own}
        given, asked_rows = own | {"key": np.array(key, np.uint32)}, rows
        if self.live is not None:  # not all ids have a node
            of_type = what == "nodes" and self.schema is not None
            kind_of = given.pop("node_type", None) if of_type else None
            rows = self.live.ids(rows.reshape(-1), kind_of).reshape(rows.shape)
        if kind == "recommend":
            targets, scores = self.model.recommend(rows, given.pop("k", 10), **given)
            columns = {"targets": targets, "scores": scores}
            common |= {} if self._prepared is None else {"time": self._prepared}
        else:
            times = [asked.time for asked in group if asked.time is not None]
            logits = self.model.logits(
                rows, time=np.concatenate(times) if times else None, **given
            )
            columns = {
                "logits": logits,
                **self.model.answer.columns(self.model.answer.of(logits)),
            }
            if times:
                columns = {"time": np.concatenate(times), **columns}
                common["time_unit"] = self.model.spec.time_unit
        columns = {what: asked_rows, **columns}
        ids = self.model.node_ids
        if ids is not None and "node_type" not in own:
            columns["names"] = self._names(ids, rows)
            if kind == "recommend":
                columns["target_names"] = self._names(ids, targets)
        ends = np.cumsum([0, *(len(asked.rows) for asked in group)]).tolist()
        lists = {name: _listed(array) for name, array in columns.items()}
        return [
            common | {name: values[a:b] for name, values in lists.items()}
            for a, b in itertools.pairwise(ends)
        ]

    def _names(self, ids: Any, nodes: np.ndarray) -> np.ndarray:
        """The names of nodes; None where there is no node."""
        known = (nodes >= 0) & (nodes < len(ids))
        names = np.full(nodes.shape, None, object)
        names[known] = ids[nodes[known]]
        if self.live is not None and self.live.names:
            names[~known] = [self.live.names.get(node) for node in nodes[~known].tolist()]
        return names


def _tried(method: Callable[[list[Any]], Any], some: list[Any], wrong: Any) -> list[Any]:
    """An answer to each of some by a method of several, or what is `wrong` with it."""
    try:
        return [*method(some)]
    except Unwritten as error:
        return [error] * len(some)
    except wrong as error:
        if len(some) == 1:
            return [error]
        return [each for one in some for each in _tried(method, [one], wrong)]


def _alike(change: Change) -> Any:
    """What appends have in common that may be one; everything else is by itself."""
    if change.kind != "append":
        return id(change)
    fields = change.fields
    size = fields["src"].size
    whole = all(v.shape[:1] == (size,) for v in fields.values() if isinstance(v, np.ndarray))
    form = {
        n: (v.dtype, v.shape[1:]) if isinstance(v, np.ndarray) else v for n, v in fields.items()
    }
    return repr(form) if whole else id(change)


def _listed(array: Any) -> list[Any]:
    """`array` as lists for JSON. A float32 is written with the fewest digits that give it
    back; what is not finite is None."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array.tolist()
    flat = [float(str(each)) for each in array.reshape(-1)]
    return (
        np.array([v if np.isfinite(v) else None for v in flat], object)
        .reshape(array.shape)
        .tolist()
    )
