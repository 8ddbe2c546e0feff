"""`Changed`: the changed copies that a `Graph` makes of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.appended import appended
from jgs.graph.arrays import Arrays, GraphArrays
from jgs.graph.device import as_device
from jgs.graph.grouping import order_by
from jgs.graph.rows import order_dtype, row_of_edges, row_offsets, row_positions


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
        both = _take(arrays, of_edge[kept]) | {"indices": sources[kept]}
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
        return self._remade(indptr, _take(arrays, order), sorted_by_source=known)

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
          num_nodes: the number of nodes with new ones; None: there are none. A typed graph gets
            none.
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
        given = (edge_weight, edge_columns, num_nodes, node_time, relation)
        return appended(self, src, dst, time, *given)

    def edge_subgraph(self, kept: Any) -> Self:
        """The graph with all nodes and some of the edges, which keep their order.

        Args:
          kept: bool `[E]`, which edges. Raises `InputError` for another shape or dtype.
        """
        form, kept = "bool [E], one for each edge", np.asarray(kept)
        require_array("kept", kept, form, "Give a mask of the edges.", E=self.num_edges)
        indptr, arrays = self._numpy()
        arrays, offsets = _take(arrays, np.flatnonzero(kept)), row_offsets(kept)[indptr]
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
        induced = _take(arrays, positions[inside])
        induced["indices"] = new_id[at[inside]].astype(np.int32)
        begins = row_offsets(indptr[ids + 1] - indptr[ids])
        offsets = row_offsets(inside)[begins]
        return self._remade(offsets, induced, schema=schema, node_time=born)


def _take(arrays: Arrays, positions: np.ndarray) -> Arrays:
    """The arrays of the edges at `positions`, with `edge_order`, which is `positions` where
    the given edges had no `edge_order`."""
    taken = {name: array[positions] for name, array in arrays.items()}
    if "edge_order" not in arrays:
        taken["edge_order"] = positions.astype(order_dtype(arrays["indices"].size), copy=False)
    return taken
