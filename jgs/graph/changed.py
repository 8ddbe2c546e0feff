"""`Changed`: the changed copies that a `Graph` makes of itself.

Edges that are appended come last in their rows, which stay sorted by time: no edge is sorted
again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from jgs import kernels
from jgs.arrays import aligned_empty, described, refuse_where, require_array
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.arrays import PREFIX, TAKEN, Arrays, GraphArrays
from jgs.graph.device import as_device
from jgs.graph.grouping import group, longs, order_by, pointer, threads
from jgs.graph.rows import (
    bisect,
    offsets_of_rows,
    order_dtype,
    row_of_edges,
    row_offsets,
    row_positions,
)
from jgs.graph.schema import ALWAYS
from jgs.graph.typed_edges import ends_of
from jgs.graph.weights import appended_prefix_sums, check_weights, weight_prefix_sums

_CHUNK = 1 << 16  # edges that a thread inserts at a time
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # of a dtype's kind: it holds lower ones


class Changed(GraphArrays):
    """The methods of `Graph` that return a changed graph. They do not work inside `jax.jit`.
    `edge_order` says which given edge each one is."""

    def symmetrized(self) -> Self:
        """The graph with every edge and its reverse, each once; rows are sorted by source.

        Parallel edges become one edge, and so do parallel self-loops, unless their times
        differ: rows are then sorted by time before source. An edge has the largest weight of
        all edges between its two ends in either direction. Its edge columns and its entry of
        `edge_order` come from the first edge in its own direction or else in the other. This
        takes about 100 bytes an edge for a while. A reverse edge belongs to no relation, so
        node types are kept and edge types are dropped (`from_relations` can add reverse
        relations).
        """
        indptr, arrays = self._numpy(without="edge_type")
        targets, sources = row_of_edges(indptr), arrays["indices"]
        num_edges = sources.size
        rows, sources = np.concatenate([targets, sources]), np.concatenate([sources, targets])
        times = np.tile(arrays.get("edge_time", np.zeros(num_edges, np.int64)), 2)
        # A given edge comes before an equal reverse.
        by_time = None if self.edge_time is None else times
        order = order_by(rows, sources, self.num_nodes, times=by_time)
        rows, sources, times = rows[order], sources[order], times[order]
        first = np.ones(order.size, bool)
        first[1:] = (rows[1:] != rows[:-1]) | (sources[1:] != sources[:-1])
        first[1:] |= times[1:] != times[:-1]
        kept = np.flatnonzero(first)
        of_edge = order % max(num_edges, 1)
        both = taken_edges(arrays, of_edge[kept]) | {"indices": sources[kept]}
        if "edge_weight" in arrays and num_edges:
            both["edge_weight"] = np.maximum.reduceat(arrays["edge_weight"][of_edge], kept)
        offsets = row_offsets(np.bincount(rows[kept], minlength=self.num_nodes))
        return self._remade(offsets, both, sorted_by_source=self.edge_time is None)

    def sorted(self) -> Self:
        """The graph with each row sorted by edge type and by time, if edges have them, and then
        by source; parallel edges keep their order."""
        known = self.edge_type is None and self.edge_time is None
        indptr, arrays = self._numpy()
        keys = arrays.get("edge_type"), arrays.get("edge_time")
        order = order_by(row_of_edges(indptr), arrays["indices"], self.num_nodes, *keys)
        return self._remade(indptr, taken_edges(arrays, order), sorted_by_source=known)

    def with_self_loops(self) -> Self:
        """The graph with a self-loop at the end of each row that has none.

        A new self-loop has weight 1 and 0 in every edge column. Its entry in `edge_order` is
        the largest integer of the dtype, which is out of bounds. A self-loop belongs to no
        relation, so node types are kept and edge types are dropped. Raises `InputError` for a
        graph whose edges have times.
        """
        indptr, arrays = self._numpy(without="edge_type")
        if "edge_time" in arrays:
            raise InputError(
                "a graph that gets self-loops must have no edge times, for a loop has none",
                "one with edge_time",
                "Add the loops yourself, with the times that they shall have.",
            )
        targets, sources = row_of_edges(indptr), arrays["indices"]
        missing = np.ones(self.num_nodes, bool)
        missing[targets[targets == sources]] = False
        nodes = np.flatnonzero(missing)
        order: np.ndarray = np.arange(sources.size, dtype=order_dtype(sources.size))
        arrays = {"edge_order": order} | arrays
        nowhere = np.iinfo(arrays["edge_order"].dtype).max
        added: Mapping = {"indices": nodes, "edge_weight": 1, "edge_order": nowhere}
        ends = indptr[nodes + 1]
        looped = {
            name: np.insert(array, ends, added.get(name, 0), axis=0)
            for name, array in arrays.items()
        }
        return self._remade(row_offsets(np.diff(indptr) + missing), looped)

    def inclusive(self, *node_types: str) -> Self:
        """The graph in which nodes of these types count at their own moment too, and others
        only after theirs, whatever is drawn.

        Their times are 1 less, and so is the time of an edge of such a node, unless its other
        end is of another type and no earlier than the edge. So a cutoff that equals the time
        comes after it, and the age of such an edge is 1 more. Rows are sorted again by type
        and time; equal edges keep their order. Seeds must not be `inclusive` beside it: they
        would see a moment more. What is added to the graph later keeps its times. Raises
        `InputError` for a graph without edge times or node types, and for other types.
        """
        least = np.iinfo(np.int64).min
        if self.schema is None or self.edge_time is None:
            raise InputError(
                "a graph with types that count at their own moment must have edge times",
                "one without types, or without edge times",
                "Make it with Graph.from_relations(..., edge_time=...).",
            )
        kinds = [self.schema.number(name) for name in node_types]
        own = np.isin(self.schema.numbers(np.arange(self.num_nodes)), kinds)
        born = np.asarray(least if self.node_time is None else self.node_time)
        indptr, arrays = self._numpy()
        times, targets, sources = arrays["edge_time"], row_of_edges(indptr), arrays["indices"]
        other = np.where(own, least, born)
        moved = (own[targets] | own[sources]) & (times > least)
        moved &= np.maximum(other[targets], other[sources]) < times
        arrays["edge_time"] = times = times - moved
        keys = times, arrays.get("edge_type", np.zeros(times.size)), targets
        made = self._remade(indptr, taken_edges(arrays, np.lexsort(keys)))
        if self.node_time is None:
            return made
        return made._with(node_time=as_device(born - (own & (born > least))))

    def with_edges(
        self,
        src: Any,
        dst: Any,
        time: Any,
        *,
        edge_weight: Any = None,
        edge_columns: Mapping[str, Any] | None = None,
        num_nodes: int | None = None,
        node_time: Any = None,
        relation: str | None = None,
    ) -> Self:
        """The graph with later edges appended: yesterday's graph becomes today's.

        Args:
          src, dst: integer `[n]`, as in `from_edges`; in a graph with relations they count from
            0 within the types of the `relation`.
          time: integer `[n]`, ascending, and at or after the graph's latest edge. In a graph
            with relations: at or after the latest edge of the `relation`.
          edge_weight, edge_columns: of the new edges, as in `from_edges`, where the graph's
            have them. Columns get the dtypes of the graph's.
          num_nodes: the number of nodes with new ones; None, as for typed graphs: without.
          node_time: integer, the times of the new nodes alone, if the graph's have times. As
            in `from_edges`, edges are not before their ends.
          relation: the name of the edges' relation. A reverse relation gets its edges in a call
            of its own, for edges of the same times.

        The result equals the graph of all edges together, and edges of before keep their
        order. `edge_order` counts on: from the number of edges, or after its largest entry if
        that is more. In a graph with relations it is in the order of the calls. As in every
        graph of other edges `node_columns` are left out, for edges may have decided them.

        No edge is sorted again, but each array of edges is copied once, however few are new.
        Where each call adds at least a fixed share of the edges, all calls together take time
        in proportion to the edges at the end. Raises `InputError`.
        """
        self._refuse_room()
        old_nodes, old_edges = self.num_nodes, self.num_edges
        size = old_nodes if num_nodes is None else checks.node_count(num_nodes)
        if self.edge_time is None:
            raise InputError(
                "a graph to append edges to must have times",
                "one without edge_time",
                "Make it with edge_time=...; or make one of all edges with Graph.from_edges.",
            )
        if size < old_nodes or (size > old_nodes and self.schema is not None):
            raise InputError(
                f"num_nodes must be at least the graph's {old_nodes}, and equal in a typed "
                "graph",
                size,
                "Raise it, or make the graph again.",
            )
        src, dst, kind = appended_ends(self, src, dst, size, relation)
        added = times_of_new(size - old_nodes, node_time, self.node_time is not None)
        born = None if added is None else np.concatenate([np.asarray(self.node_time), added])
        times = _later(self, checks.check_times(time, src.size, "time"), kind)
        new = new_edges(self, src, dst, kind, born, times, edge_weight, edge_columns)
        indptr = np.asarray(self.indptr)
        if size > old_nodes:
            indptr = np.concatenate([indptr, np.full(size - old_nodes, indptr[-1])])
        # In the order of rows, and within them of time, which nodes born late may change.
        by_time = None if born is None else np.argsort(new["edge_time"], kind="stable")
        begins, place = group(dst if by_time is None else dst[by_time], size)
        place = place if by_time is None else by_time[place]
        row, total, counts = dst[place], indptr + begins, np.diff(begins)
        at = indptr[row + 1]
        if kind is not None:  # the last edges of their relations
            own = new["edge_type"][place]
            at = bisect(np.asarray(self.edge_type), indptr[row], at, own, right=True)
        order: Any = self.edge_order
        order = np.arange(old_edges) if order is None else np.asarray(order)
        # Graphs of some of the given edges may know larger numbers than they have edges.
        first = max(old_edges, int(order.max(initial=-1)) + 1)
        dtype = order_dtype(first + src.size)
        old = self.edge_arrays() | {"edge_order": order.astype(dtype, copy=False)}
        new["edge_order"] = np.arange(first, first + src.size)
        new = {name: array[place] for name, array in new.items()}
        again = np.empty(0, np.int64)  # the rows whose prefix sums change
        if edge_weight is not None:
            own = (np.asarray(self.edge_weight), np.asarray(self.edge_weight_prefix))
            added, again = appended_prefix_sums(indptr, *own, new["edge_weight"], at, counts)
            new["edge_weight_prefix"] = added
        arrays = {
            name: inserted(array, at, new[name].astype(array.dtype, copy=False))
            for name, array in ((name, np.asarray(array)) for name, array in old.items())
        }
        if again.size:
            changed, within = row_positions(total, again), offsets_of_rows(total, again)
            sums = weight_prefix_sums(within, arrays["edge_weight"][changed])
            arrays["edge_weight_prefix"][changed] = sums
        made = self.from_edge_arrays(total, arrays, schema=self.schema)
        return made._with(node_time=None if born is None else as_device(born))

    def edge_subgraph(self, kept: Any) -> Self:
        """The graph with all nodes and some of the edges, which keep their order.

        Args:
          kept: bool `[E]`, which edges. Raises `InputError` for another shape or dtype.
        """
        form, kept = "bool [E], one for each edge", np.asarray(kept)
        require_array("kept", kept, form, "Give a mask of the edges.", E=self.num_edges)
        indptr, arrays = self._numpy()
        arrays, offsets = taken_edges(arrays, np.flatnonzero(kept)), row_offsets(kept)[indptr]
        return self._remade(offsets, arrays, sorted_by_source=self.sorted_by_source)

    def subgraph(self, nodes: Any) -> Self:
        """The graph of `nodes` and the edges among them; its node `i` is `nodes[i]` here.

        Args:
          nodes: integer `[n]`, distinct node ids.

        The edges of a row keep their order and their types. `schema` is kept, with new counts,
        if `nodes` are in the order of their types; otherwise it is None. Time and memory are in
        proportion to the edges into `nodes`, also for a memory-mapped graph. Raises
        `InputError`.
        """
        ids = checks.node_ids("nodes", nodes, self.num_nodes)
        checks.check_distinct("nodes", ids)
        schema = self.schema and self.schema.of_nodes(ids)
        born = None if self.node_time is None else as_device(np.asarray(self.node_time)[ids])
        indptr, arrays = self._numpy()
        positions = row_positions(indptr, ids)
        sources = arrays["indices"][positions]
        new_id = np.argsort(ids)  # the new id of each node in ascending order
        ascending = ids[new_id]
        at = np.searchsorted(ascending, sources)
        inside = ascending[np.minimum(at, ids.size - 1)] == sources
        induced = taken_edges(arrays, positions[inside])
        induced["indices"] = new_id[at[inside]].astype(np.int32)
        begins = row_offsets(indptr[ids + 1] - indptr[ids])
        offsets = row_offsets(inside)[begins]
        return self._remade(offsets, induced, schema=schema, node_time=born)


def taken_edges(arrays: Arrays, positions: np.ndarray) -> Arrays:
    """The arrays of the edges at `positions`, with `edge_order`, which is `positions` where
    the given edges had no `edge_order`."""
    taken = {name: array[positions] for name, array in arrays.items()}
    if "edge_order" not in arrays:
        taken["edge_order"] = positions.astype(order_dtype(arrays["indices"].size), copy=False)
    return taken


def inserted(array: np.ndarray, at: np.ndarray, added: np.ndarray) -> np.ndarray:
    """The elements of `array` `[E, ...]` with those of `added` `[n, ...]`, of the same dtype,
    before the elements number `at` int64 `[n]`, ascending. It takes one copy of the array."""
    array, added, at = (np.ascontiguousarray(each) for each in (array, added, at))
    if not kernels.available() or array.size == 0:
        return np.insert(array, at, added, axis=0)
    width = int(np.prod(array.shape[1:], dtype=np.int64))
    out = aligned_empty((len(array) + len(added)) * width, array.dtype)
    item = array.dtype.itemsize * width
    chunks = max(1, -(-len(at) // _CHUNK))
    ends = np.linspace(0, len(at), chunks + 1).astype(np.int64)

    def copy(chunk: int) -> None:
        kernels.function("JgsInsert", None)(
            pointer(array), *longs(len(array)), pointer(added), pointer(at),
            *longs(len(at), item, ends[chunk], ends[chunk + 1]), pointer(out),
        )  # fmt: skip

    kernels.function("JgsGroupResult", None)(pointer(out), ctypes.c_int64(out.nbytes))
    with threads(chunks) as run:
        for _ in run(copy, range(chunks)):
            pass
    return out.reshape(-1, *array.shape[1:])


def new_edges(
    graph: Any, src: Any, dst: Any, kind: Any, born: Any, time: Any, weight: Any, columns: Any
) -> Arrays:
    """The arrays `[n, ...]` by name of new edges like the graph's. The nodes `src` and `dst`
    int32 `[n]` were `born` int64 `[N]`, or always. Raises `InputError`."""
    new = {"indices": src}
    given = ("time", time, graph.edge_time), ("edge_weight", weight, graph.edge_weight)
    for name, value, own in given:
        if (value is None) != (own is None):
            raise InputError(
                f"new edges must have {name} where the graph's have, and nowhere else",
                "none" if value is None else "some",
                f"Give {name}, or leave it out.",
            )
    if weight is not None:
        new["edge_weight"] = check_weights(weight, src.size)
    if time is not None:
        new["edge_time"] = checks.check_times(time, src.size, "time")
        if born is not None:
            new["edge_time"] = checks.times_with_nodes(new["edge_time"], born, src, dst)
    if kind is not None:
        new["edge_type"] = np.full(src.size, kind, np.int16)
    columns = appended_columns(graph, columns, src.size)
    return new | {PREFIX + name: array for name, array in columns.items()}


def appended_ends(
    graph: Any, src: Any, dst: Any, size: int, relation: str | None
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """The ends of the edges as ids of the graph, int32 `[n]`, and the number of their
    relation, or None."""
    number = appended_relation(graph, relation)
    if number is None:
        src, dst = checks.node_ids("src", src, size), checks.node_ids("dst", dst, size)
        checks.check_paired("src and dst", src, dst)
        return src, dst, None
    src, dst = ends_of(graph.schema, graph.schema.relations[number], src, dst)
    return src, dst, number


def appended_relation(graph: Any, relation: Any) -> int | None:
    """The number of the relation that new edges of a graph have; None where it has none. Raises
    `InputError`."""
    schema = graph.schema
    if schema is None or not schema.relations:
        if graph.edge_type is not None:
            raise InputError(
                "a graph with edge_type must have a schema to get edges of a relation",
                "one without",
                "Give schema= to Graph, or make the graph with Graph.from_relations.",
            )
        if relation is not None:
            raise InputError(
                "relation must be for a graph with relations", repr(relation), "Leave it out."
            )
        return None
    if relation is None:
        raise InputError(
            "appended edges of a graph with relations must have one",
            "none",
            f"Give relation=, one of {', '.join(name for _, name, _ in schema.relations)}.",
        )
    return schema.relation(relation)


def times_of_new(count: int, time: Any, timed: bool) -> np.ndarray | None:
    """int64 `[count]`: the times of new nodes, or None in a graph whose nodes have none."""
    if timed != (time is not None) and (count or not timed):
        raise InputError(
            "the times of new nodes must be given where the graph's nodes have times",
            "none" if time is None else "some",
            "Give them, or leave them out.",
        )
    if not timed:
        return None
    return np.full(count, ALWAYS) if time is None else checks.check_node_time(time, count)


def _later(graph: Any, times: np.ndarray, kind: int | None) -> np.ndarray:
    """`times`, which must ascend from the graph's latest edge on, or from that of a relation,
    `kind`."""
    falls = np.flatnonzero(times[1:] < times[:-1])
    if falls.size:
        at = int(falls[0]) + 1
        raise InputError(
            "the times of appended edges must ascend",
            f"{times[at]} after {times[at - 1]} at position {at}",
            "Sort the edges by time, e.g. with numpy.argsort(time, kind='stable').",
        )
    if times.size == 0:
        return times
    known, least = np.asarray(graph.edge_time), np.iinfo(np.int64).min
    if kind is None:  # the last edges of the rows
        ends = np.asarray(graph.indptr)
        last = known[ends[1:][ends[1:] > ends[:-1]] - 1].max(initial=least)
    else:
        last = known.max(initial=least, where=np.asarray(graph.edge_type) == kind)
    if times[0] < last:
        whose = "the graph's" if kind is None else "the relation's"
        raise InputError(
            f"appended edges must not be earlier than {whose} latest, at {last}",
            int(times[0]),
            "Make a graph of all edges with Graph.from_edges or from_relations.",
        )
    return times


def appended_columns(graph: Any, given: Any, num: int) -> dict[str, np.ndarray]:
    """The edge columns of the new edges by name, with the dtypes of the graph's."""
    columns = checks.check_columns(given, num, TAKEN)
    if set(columns) != set(graph.edge_columns):
        raise InputError(
            f"appended edges must have the graph's columns, {', '.join(graph.edge_columns)}",
            ", ".join(columns) or "none",
            "Give edge_columns of these names.",
        )
    for name, array in columns.items():
        what = f"the appended edge column {name!r} must be like the graph's"
        columns[name] = rows_like(what, array, graph.edge_columns[name], "edge")
    return columns


def rows_like(what: str, array: np.ndarray, own: Any, place: str) -> np.ndarray:
    """Numbers `[n, ...]` with the dtype of `own` `[m, ...]`. Raises `InputError` that begins
    with `what`, where they are of another shape or that dtype does not hold them."""
    num, again = len(array), "Convert it, or make a graph of all."
    lossy = num > 0 and _RANK[array.dtype.kind] > _RANK[own.dtype.kind]
    if array.shape[1:] != own.shape[1:] or lossy:
        shape = ", ".join(map(str, (num, *own.shape[1:])))
        raise InputError(f"{what}, {own.dtype}[{shape}]", described(array), again)
    with np.errstate(over="ignore"):
        made = array.astype(own.dtype)
    wrong = np.isfinite(made) != np.isfinite(array)
    if own.dtype.kind in "iu":
        wrong = made != array
    wrong = wrong.any(axis=tuple(range(1, array.ndim)))
    refuse_where(wrong, array, place, f"{what}, which is {own.dtype}", again)
    return made
