"""`Graph`: what every sampler draws from. Its docstring specifies every field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from jgs.arrays import check_range
from jgs.graph import checks, foreign
from jgs.graph.arrays import PREFIX, TAKEN
from jgs.graph.changed import Changed, taken_edges
from jgs.graph.device import as_device
from jgs.graph.grouping import group_values, order_by, order_by_time, taken
from jgs.graph.node_ids import NodeIds
from jgs.graph.reordered import nodes_in_order
from jgs.graph.rows import row_of_edges, row_offsets
from jgs.graph.schema import Relation, Schema, check_edge_types, check_schema
from jgs.graph.shown import Shown
from jgs.graph.typed_edges import typed_edges
from jgs.graph.weights import check_weights, weight_prefix_sums

if TYPE_CHECKING:
    from jax.experimental.sparse import BCOO


@jax.tree_util.register_pytree_with_keys_class
class Graph(Shown, Changed):
    """A directed graph in compressed sparse column form: the in-neighbours of every node.

    Fields (`N` nodes, `E` edges):
      indptr: int64 `[N+1]`; the in-edges of node `v` are `indptr[v]:indptr[v+1]`. These
        offsets are always 64-bit, also outside `jax.enable_x64`.
      indices: int32 `[E]`; the source of each edge. The position of an edge in this array is
        the edge's id.
      edge_weight: float32 `[E]` or None; finite and not negative.
      edge_weight_prefix: int64 `[E]` or None; inclusive prefix sums of the fixed-point weights
        within each row (see `jgs.graph.weights`), which the constructor makes. Weighted
        sampling draws from them.
      edge_order: int32 `[E]` (int64 from 2^31 edges on) or None; the position that each edge
        had in the arrays given to a constructor such as `from_edges`. An array `feat` in the
        order of those arrays becomes `feat[graph.edge_order]` in the order of `indices`. None
        where the edges were given in compressed form and kept their order.
      edge_type: int16 `[E]` or None; the number of each edge's relation. Each row is sorted by
        edge type, so the edges of one relation are one contiguous range of the row.
      edge_time: int64 `[E]` or None; each edge's time, in any unit. The edges of a row, or of
        one relation in it, are sorted by time, so those before a time are one contiguous range.
      node_time: int64 `[N]` or None; the time from which each node exists. No edge is before
        both its ends exist: the constructors raise `edge_time` to theirs.
      edge_columns: dict of arrays `[E, ...]` by name, which the user adds; 64-bit dtypes stay
        64-bit.
      node_columns: dict by name of arrays `[N, ...]` or `SparseFeatures`, which samplers read;
        see `with_node_columns`.
      relation_index: of a graph with `edge_type` whose rows have room; None elsewhere. See
        `jgs.graph.grouping`.
      schema: `Schema` or None, static; the names of the node types and of the relations. See
        `from_relations`.
      sorted_by_source: bool, static; True: every row is sorted by source. False: that is not
        known. Graphs from `sorted` and `symmetrized` know it, if they have no types and times.

    `Graph(indptr, indices, edge_weight, edge_columns)` checks its arrays, and `edge_type`,
    `edge_time`, `node_time` and `schema` if they are given, and raises `InputError`. Arrays are
    moved to the default device. Aligned NumPy arrays and memory maps on the CPU are used in
    place, without a copy, so do not change them afterwards. Parallel edges and self-loops are
    kept: each counts as a neighbour.
    """

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        edge_weight: Any = None,
        edge_columns: Any = None,
        *,
        edge_type: Any = None,
        edge_time: Any = None,
        node_time: Any = None,
        schema: Schema | None = None,
    ):
        indptr = checks.integers("indptr", indptr, np.int64)
        indices = checks.integers("indices", indices, np.int32)
        checks.check_csc(indptr, indices)
        prefix = None
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, indices.size)
            prefix = weight_prefix_sums(indptr, edge_weight)
        columns = checks.check_columns(edge_columns, indices.size, TAKEN)
        check_schema(schema, indptr.size - 1, edge_type is not None)
        if edge_type is not None:
            edge_type = check_edge_types(edge_type, schema, indptr, indices)
        if edge_time is not None:
            edge_time = checks.check_times(edge_time, indices.size)
        if node_time is not None:
            node_time = checks.check_node_time(node_time, indptr.size - 1)
            edge_time = checks.times_with_nodes(
                edge_time, node_time, indices, row_of_edges(indptr)
            )
        if edge_time is not None:
            checks.check_times_ascend(edge_time, edge_type, indptr)
        of_edges = (indices, edge_weight, prefix, None, edge_type, edge_time, columns)
        self._set(*jax.tree.map(as_device, (indptr, *of_edges, {}, node_time)), schema=schema)

    def _facts(self) -> dict[str, str]:
        names = ", ".join([*sorted(self.edge_columns), *sorted(self.node_columns)])
        words = ["weighted"] if self.edge_weight is not None else []
        words += ["edge times"] if self.edge_time is not None else []
        words += ["node times"] if self.node_time is not None else []
        if self.schema is not None:
            types, relations = len(self.schema.node_types), len(self.schema.relations)
            words += [f"{types} node types", f"{relations} relations"]
        words += [f"columns {names}"] if names else []
        sizes = {"num_nodes": f"{self.num_nodes:,}", "num_edges": f"{self.num_edges:,}"}
        return sizes | {"": ", ".join(words)}

    def with_node_columns(self, **columns: Any) -> Self:
        """The same graph with these node columns added.

        Args:
          columns: by name, arrays of numbers `[N, ...]` or `SparseFeatures` of `N` rows.

        Nothing is copied: aligned NumPy arrays on the CPU are used in place, so do not change
        them afterwards. `save` does not write node columns, and methods that change the edges
        drop them. Raises `InputError`.
        """
        added = jax.tree.map(as_device, checks.check_node_columns(columns, self.num_nodes))
        return self._with(node_columns=self.node_columns | added)

    # -- constructors ------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        src: Any,
        dst: Any,
        num_nodes: int,
        edge_weight: Any = None,
        *,
        edge_columns: Any = None,
        edge_time: Any = None,
        node_time: Any = None,
        symmetric: bool = False,
    ) -> Self:
        """The graph with an edge `src[i] -> dst[i]` for every `i`.

        Args:
          src, dst: integer `[E]`, each in `[0, num_nodes)`.
          num_nodes: `N`.
          edge_weight: float `[E]`, finite and not negative, or None.
          edge_columns: dict of arrays of numbers `[E, ...]`, one row an edge.
          edge_time: integer `[E]`, the time of each edge, or None.
          node_time: integer `[N]`, the time from which each node exists, or None. An edge whose
            time is before that of one of its ends gets that time. Without `edge_time` these are
            the times of all edges.
          symmetric: whether to add the reverse of every edge: see `symmetrized`.

        Within a row the edges keep their order or, if they have times, are sorted by them,
        stably. `edge_order` says where each edge was. Raises `InputError`.
        """
        num_nodes = checks.node_count(num_nodes)
        src = checks.id_array("src", src, num_nodes)
        dst = checks.id_array("dst", dst, num_nodes)
        checks.check_paired("src and dst", src, dst)
        columns = checks.check_columns(edge_columns, src.size, TAKEN)
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, src.size)
        if edge_time is not None:
            edge_time = checks.check_times(edge_time, src.size)
        if node_time is not None:
            node_time = checks.check_node_time(node_time, num_nodes)
        fields = {"edge_weight": edge_weight, "edge_time": edge_time}
        if node_time is not None:
            _check_ends(src, dst, num_nodes)
            fields["edge_time"] = checks.times_with_nodes(edge_time, node_time, src, dst)
        del edge_time
        graph = cls._of_ends([src, dst], num_nodes, fields, columns, node_time)
        return graph.symmetrized() if symmetric else graph

    @classmethod
    def _of_ends(
        cls,
        ends: list[np.ndarray],
        num_nodes: int,
        fields: dict[str, np.ndarray | None],
        columns: dict[str, np.ndarray],
        node_time: np.ndarray | None,
        schema: Schema | None = None,
    ) -> Self:
        """The graph of edges in any order. Their `fields`, arrays by name or None, have been
        checked, and the ids of their sources and targets, the `ends`, have not. Lists and dicts
        are emptied, so that what has been used takes no memory."""
        (src, dst), times, types = ends, fields.pop("edge_time"), fields.get("edge_type")
        ends.clear()
        first = None
        if times is not None:
            first = order_by_time(times, types)
            src, dst = taken(src, first), taken(dst, first)
        groups = group_values(dst, src, num_nodes)
        if groups is None:
            _check_ends(src, dst, num_nodes)
        assert groups is not None
        del src, dst
        indptr, order, indices = groups
        assert indices is not None
        if first is not None:
            order = taken(first, order)
        checks.check_csc(indptr, indices)
        named = {PREFIX + name: columns.pop(name) for name in sorted(columns)}
        given = {**fields, "edge_time": times, **named}
        fields.clear()
        del groups, first, times, types, named
        arrays = {n: taken(a, order) for n in [*given] if (a := given.pop(n)) is not None}
        made = cls._built(indptr, arrays | {"indices": indices, "edge_order": order}, schema)
        return made if node_time is None else made._with(node_time=as_device(node_time))

    @classmethod
    def from_relations(
        cls,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Any, Any]],
        edge_weight: Mapping[Relation, Any] | None = None,
        *,
        edge_columns: Mapping[Relation, Mapping[str, Any]] | None = None,
        edge_time: Mapping[Relation, Any] | None = None,
        node_time: Mapping[str, Any] | None = None,
        both_ways: bool = False,
    ) -> Self:
        """The typed graph of these relations, with `edge_type` and `schema`.

        Args:
          num_nodes: the number of nodes of each type, by the type's name. Node ids follow this
            order: `graph.schema.nodes(name)` is the range of the ids of a type.
          edges: a pair `src`, `dst` of integers `[E]` for each relation, by (source type, name,
            target type). The integers count from 0 within each node type.
          edge_weight: float `[E]` by relation, as in `from_edges`. A relation that is left out
            has weights 1.
          edge_columns: by relation, a dict as in `from_edges`; all have the same names.
          edge_time: integer `[E]` by relation, as in `from_edges`, for all relations or None.
          node_time: integer `[n]` by node type, as in `from_edges`. The nodes of a type that is
            left out have always existed.
          both_ways: whether to add the reverse of each relation `(a, name, b)` as the relation
            `(b, "rev_" + name, a)`, after all the given ones. Reverse edges have the weights,
            columns and times of the given ones.

        Rows are sorted by relation, in the given order. Edges of one relation are sorted by
        time, if they have times, and otherwise keep the order of `src`. `edge_order` counts
        through the edges of all relations, one relation after the other. Raises `InputError`.
        """
        *ends, fields, columns, born, schema = typed_edges(
            num_nodes, edges, edge_weight, edge_columns, edge_time, node_time, both_ways
        )
        return cls._of_ends(ends, schema.num_nodes, fields, columns, born, schema)

    @classmethod
    def from_scipy(
        cls, matrix: Any, weighted: bool = False, *, symmetric: bool = False
    ) -> Self:
        """The graph of a square SciPy sparse matrix: entry `(i, j)` is an edge `i -> j`.

        With `weighted` the entries are the edge weights; otherwise every stored entry is an
        edge, whatever its value. Duplicate entries of a COO matrix stay separate edges.
        `edge_order` has positions among the entries of `matrix.tocoo()`. For `symmetric` see
        `from_edges`. Raises `InputError`.
        """
        return cls.from_edges(*foreign.scipy_edges(matrix, weighted), symmetric=symmetric)

    @classmethod
    def from_networkx(
        cls, graph: Any, weight: str | None = None, *, symmetric: bool = False
    ) -> Self:
        """The graph of a NetworkX graph; node `i` is the `i`-th of `graph.nodes`.

        An undirected edge becomes two directed ones (a self-loop becomes one). `weight` names
        the edge attribute that holds the edge's weight. Edges without this attribute have
        weight 1; at least one edge must have it, unless there are no edges. `edge_order` has
        positions in `graph.edges`. For `symmetric` see `from_edges`. Raises `InputError`.
        """
        return cls._from_pairs(*foreign.networkx_edges(graph, weight), symmetric)

    @classmethod
    def from_igraph(
        cls, graph: Any, weight: str | None = None, *, symmetric: bool = False
    ) -> Self:
        """The graph of an igraph graph; node ids are the numbers of its vertices.

        This works as `from_networkx` does, but every edge must have the attribute `weight`.
        `edge_order` has positions in `graph.es`. Raises `InputError`.
        """
        return cls._from_pairs(*foreign.igraph_edges(graph, weight), symmetric)

    @classmethod
    def _from_pairs(
        cls, edges: foreign.EdgeList, position: np.ndarray, symmetric: bool
    ) -> Self:
        made = cls.from_edges(*edges)
        order = np.asarray(made.edge_order)
        made = made._with(edge_order=as_device(position[order].astype(order.dtype)))
        return made.symmetrized() if symmetric else made

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Any = None,
        *,
        edge_columns: Any = None,
        symmetric: bool = False,
    ) -> Self:
        """The graph of an `edge_index`, the format of PyG and jraphx.

        Args:
          edge_index: integer `[2, E]`, sources and targets: an array of NumPy, JAX, or any
            library whose arrays have `__array__` or DLPack, such as torch.
          num_nodes: `N`. None: one more than the largest id.
          edge_weight, edge_columns, symmetric: as in `from_edges`.

        Raises `InputError`.
        """
        edges = foreign.index_edges(edge_index, num_nodes, edge_weight)
        return cls.from_edges(*edges, edge_columns=edge_columns, symmetric=symmetric)

    @classmethod
    def from_graphs_tuple(cls, graphs: Any, *, symmetric: bool = False) -> Self:
        """The graph of a `jraph.GraphsTuple`, or of any object with the same fields.

        Several graphs in the tuple, padding graphs too, become one graph without edges between
        them. `edges` become edge columns and `nodes` become node columns: a dict of arrays
        keeps its names, a single array becomes the column `features`. `globals` are left out.
        For `symmetric` see `from_edges`. Raises `InputError`.
        """
        edges, columns, of_nodes = foreign.tuple_edges(graphs)
        made = cls.from_edges(*edges, edge_columns=columns, symmetric=symmetric)
        return made.with_node_columns(**of_nodes)

    @classmethod
    def from_table(
        cls,
        table: Any,
        num_nodes: int | None = None,
        *,
        ids: NodeIds | None = None,
        src: str = "src",
        dst: str = "dst",
        weight: str | None = None,
        columns: Iterable[str] | None = None,
        symmetric: bool = False,
    ) -> Self:
        """The graph of a table that has one edge in each row.

        Args:
          table: the path of a Parquet or CSV file (extra `tables`), a data frame of pandas or
            Polars, an Arrow table, or a dict of arrays.
          num_nodes: `N`. None: as many as `ids` has, or one more than the largest id.
          ids: maps the names of the nodes in the table to node ids: see `jgs.NodeIds`. It is
            needed where they are text, or do not count from 0. None: the table has node ids.
          src, dst: the names of the columns with the sources and the targets.
          weight: the name of the column with the weights. None: `edge_weight` if there is one.
          columns: the names of the columns that become edge columns. None: all the others.
          symmetric: as in `from_edges`.

        Raises `InputError`.
        """
        edges, found = foreign.table_edges(table, num_nodes, ids, src, dst, weight, columns)
        return cls.from_edges(*edges, edge_columns=found, symmetric=symmetric)

    @classmethod
    def from_npz(cls, path: str | os.PathLike, *, symmetric: bool = False) -> Self:
        """The graph in a NumPy archive (read without pickles).

        The archive holds `indptr` and `indices` as in `Graph`, or else `edge_index` `[2, E]`
        (row 0 sources, row 1 targets); the number of nodes then comes from `num_nodes`,
        `labels`, `feature_shape` or `features`. `edge_weight`, `edge_time` and `node_time` in
        the archive are used. For `symmetric` see `from_edges`. Raises `InputError`.
        """
        found, times = foreign.npz_arrays(path)
        make = cls.from_edges if isinstance(found, foreign.EdgeList) else cls
        graph = make(*found, **times)
        return graph.symmetrized() if symmetric else graph

    def reordered(self, order: Any = "degree") -> tuple[Self, np.ndarray]:
        """The graph with other numbers of its nodes, so that what is read together lies
        together.

        Args:
          order: `"degree"`: nodes that are the source of most edges come first, for their
            features are read most often. `"rcm"`: neighbours get near numbers (reverse
            Cuthill-McKee, by SciPy). Or integer `[N]`, each node once: the order.

        Nodes of a type stay together. Rows are sorted as by `sorted`, and `edge_order` says
        which given edge each one is. Node columns are left out. A sample has the law of the
        same sample of this graph, and other bits.

        Returns the graph and `old`, int32 `[N]`: its node `i` is `old[i]` here, so
        `features[old]` are its features, and `np.argsort(old)[seeds]` its numbers of `seeds`.
        Raises `InputError`.
        """
        indptr, arrays = self._numpy()
        old = nodes_in_order(self, order)
        new = np.empty_like(old)
        new[old] = np.arange(old.size, dtype=np.int32)
        rows, sources = new[row_of_edges(indptr)], new[arrays["indices"]]
        keys = arrays.get("edge_type"), arrays.get("edge_time")
        place = order_by(rows, sources, self.num_nodes, *keys)
        edges = taken_edges(arrays, place) | {"indices": sources[place]}
        born = None if self.node_time is None else as_device(np.asarray(self.node_time)[old])
        by_source = keys[0] is None and keys[1] is None
        offsets = row_offsets(np.diff(indptr)[old])
        return self._remade(offsets, edges, node_time=born, sorted_by_source=by_source), old

    # -- formats of other libraries; these methods do not work inside `jax.jit` ---------------

    def edge_index(self) -> np.ndarray:
        """int32 `[2, E]`: the source and the target of each edge, in the order of `indices`."""
        self._refuse_room()
        return np.stack([np.asarray(self.indices), row_of_edges(np.asarray(self.indptr))])

    def to_scipy(self) -> scipy.sparse.csc_array:
        """The adjacency matrix `[N, N]`, float32: entry `(i, j)` is the weight of `i -> j`,
        or 1. Parallel edges are separate entries, which most SciPy operations add up."""
        self._refuse_room()
        arrays = (foreign.weights_or_ones(self), *map(np.asarray, (self.indices, self.indptr)))
        return scipy.sparse.csc_array(arrays, shape=(self.num_nodes,) * 2)

    def to_bcoo(self) -> BCOO:
        """The matrix of `to_scipy` for `jax.experimental.sparse`; entries are in the order of
        `indices`."""
        from jax.experimental.sparse import BCOO  # a slow import

        entries = jnp.asarray(foreign.weights_or_ones(self)), jnp.asarray(self.edge_index().T)
        return BCOO(entries, shape=(self.num_nodes,) * 2)

    def to_networkx(self) -> Any:
        """A `networkx.DiGraph`, or a `MultiDiGraph` where there are parallel edges.

        Nodes are numbers from 0. Edges have an attribute for each edge column, and `weight` if
        the graph is weighted. Nodes have an attribute for each node column that is not sparse.
        Raises `InputError` where NetworkX is not installed.
        """
        return foreign.networkx_graph(self)


def _check_ends(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> None:
    for name, ids in (("src", src), ("dst", dst)):
        check_range(f"{name} must be node ids", ids, num_nodes)
