"""`NodeRoom`: the ids of a live graph, of which some have no node yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.arrays import aligned_zeros, described
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.arrays import Arrays
from jgs.graph.graph import Graph
from jgs.graph.row_tables.table import RowTable

_NUMBERS = "an array of numbers [n, ...]"
_ADD = "Give nodes that there are, or add them first (add_nodes, /nodes)."
_WHOLE = "A graph without a schema has one number; give one with a schema a dict by type."


class NodeRoom:
    """The ids of the nodes of each type, with room for more.

    Fields:
      schema: the `Schema` with the numbers of ids, or None.
      used: how many nodes there are by type; `{"": n}` without a schema.
      num_nodes: the number of ids.
    """

    def __init__(self, graph: Graph, wanted: Any):
        schema = graph.schema
        self._typed = schema is not None
        old = node_counts(graph)
        if wanted is None:
            wanted = {}
        elif self._typed != isinstance(wanted, Mapping):
            raise InputError(
                "num_nodes must be an int, or a dict by type", repr(wanted), _WHOLE
            )
        elif not self._typed:
            wanted = {"": wanted}
        for name in wanted:
            if schema is not None:
                schema.number(name)
        sizes = {
            name: checks.node_count(wanted.get(name, count)) for name, count in old.items()
        }
        for name, count in old.items():
            if sizes[name] < count:
                rule = f"num_nodes must be at least the graph's {count}{_of(name)}"
                raise InputError(rule, sizes[name], "Raise it.")
        self.used, self._sizes = dict(old), sizes
        self.num_nodes = checks.node_count(sum(sizes.values()))
        more = [sizes[name] - count for name, count in old.items()]
        self.schema = schema and schema.extended(more)

    def of_edges(self, graph: Graph) -> tuple[np.ndarray, Arrays]:
        """The offsets int64 `[N+1]` and the edge arrays of a graph, with these ids."""
        more = self.num_nodes - graph.num_nodes
        arrays = {name: np.asarray(array) for name, array in graph.edge_arrays().items()}
        return np.pad(np.asarray(graph.indptr), (0, more), "edge"), arrays

    def of_nodes(self, array: np.ndarray, name: str | None = None) -> np.ndarray:
        """The rows `[n, ...]` of all the nodes, or of those of a type, with rows of zeros for
        the ids that have no node. A copy."""
        size = self.num_nodes if name is None else self._sizes[name]
        width = int(np.prod(array.shape[1:], dtype=np.int64))
        made = aligned_zeros(size * width, array.dtype).reshape(size, *array.shape[1:])
        made[: len(array)] = array
        return made

    def features(self, given: Any) -> Arrays:
        """Copies with room of features `[n, ...]`, by type; `""` for those of all nodes."""
        if given is None:
            return {}
        if isinstance(given, Mapping) and not self._typed:
            raise InputError("features must be an array [N, ...]", "a dict", _WHOLE)
        found = {}
        for name, array in given.items() if isinstance(given, Mapping) else [(None, given)]:
            if name is not None and self.schema is not None:
                self.schema.number(name)
            count = self.used[name] if name is not None else sum(self.used.values())
            found[name or ""] = self.of_nodes(dense_rows("features", array, count), name)
        return found

    def targets(self, edge_type: np.ndarray) -> list[tuple[range, ...]]:
        """The ids that the edges of each relation may lead to."""
        if self.schema is None or not self.schema.relations:
            return [(range(self.num_nodes),)] * (int(edge_type.max(initial=-1)) + 1)
        return [self.schema.ranges(name) for _, _, name in self.schema.relations]

    def places(self, ids: np.ndarray, name: str) -> np.ndarray:
        """Where the rows of ids are in the features of a type; those of others are left out.
        `""`: in the features of all nodes."""
        if not name or self.schema is None:
            return ids
        return self.schema.places(ids[self.schema.numbers(ids) == self.schema.number(name)])

    def type_of(self, ids: np.ndarray) -> str | None:
        """The type of all of these ids; None without a schema, and where they have several."""
        kinds = [] if self.schema is None else np.unique(self.schema.numbers(ids)).tolist()
        return [*self.used][kinds[0]] if len(kinds) == 1 else None

    def ids(self, what: str, nodes: Any, name: str | None) -> np.ndarray:
        """int32 `[n]`: the ids of nodes, which count from 0 in their type, or among all where
        `name` is None. Raises `InputError` for ids that no node has."""
        if name is not None or self.schema is None:
            if name is not None:
                self._check_type(name)
            places = checks.node_ids(what, nodes, self.used[name or ""], _ADD)
            return self._ids(places, name)
        ids = checks.node_ids(what, nodes, self.num_nodes, _ADD)
        limit = np.array([*self.used.values()])[self.schema.numbers(ids)]
        rule = f"{what} must be nodes that there are"
        checks.refuse_where(self.schema.places(ids) >= limit, ids, "position", rule, _ADD)
        return ids

    def _ids(self, places: np.ndarray, name: str | None) -> np.ndarray:
        if name is None or self.schema is None:
            return places
        return self.schema.ids(name, places).astype(np.int32)

    def new(self, count: Any, name: str | None) -> np.ndarray:
        """int32 `[count]`: the next ids of a type, unused so far. Raises `InputError`."""
        count = checks.node_count(count)
        if self._typed != (name is not None):
            raise InputError(
                "the type of new nodes must be given where the graph has a schema",
                repr(name),
                f"Give type=, one of {', '.join(self.used)}."
                if self._typed
                else "Leave it out.",
            )
        if name is not None:
            self._check_type(name)
        used, size = self.used[name or ""], self._sizes[name or ""]
        if used + count > size:
            raise InputError(
                f"there must be room for new nodes{_of(name)}, of {size} ids",
                f"{used} nodes and {count} new ones",
                "Make the live graph with a larger num_nodes; for jgs serve, export with more "
                "--new-nodes.",
            )
        return self._ids(np.arange(used, used + count, dtype=np.int32), name)

    def _check_type(self, name: Any) -> None:
        if self.schema is None or not isinstance(name, str):
            rule = "type must be the name of a node type, in a graph with a schema"
            raise InputError(rule, repr(name), "Leave it out, or give a name.")
        self.schema.number(name)

    def take(self, count: int, name: str | None) -> None:
        """Gives the ids of `new` to nodes."""
        self.used[name or ""] += count


def node_counts(graph: Graph) -> dict[str, int]:
    """How many nodes of each type a graph has; `{"": n}` without a schema."""
    return {"": graph.num_nodes} if graph.schema is None else dict(graph.schema.node_types)


def dense_rows(what: str, rows: Any, num: int) -> np.ndarray:
    """`rows` as a NumPy array of numbers `[num, ...]`; raises `InputError`."""
    array = None if isinstance(rows, RowTable) else checks.as_array(what, rows, _NUMBERS)
    if array is None or not checks.is_column(array) or array.shape[0] != num:
        raise InputError(
            f"the {what} of a live graph must be {_NUMBERS}, {num} rows",
            type(rows).__name__ if array is None else described(array),
            "Give a row of a dense array for each node.",
        )
    return array


def _of(name: str | None) -> str:
    return f" of {name!r}" if name else ""
