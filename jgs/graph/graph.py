"""`Graph`: what every sampler draws from.

Its docstring is the specification: shape, dtype and meaning of every field. It is a JAX pytree,
so it passes through `jax.jit` as an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.files import storage
from jgs.files.room import with_room
from jgs.files.verified import Verify
from jgs.graph import edits
from jgs.graph.checks import (
    check_arrays,
    check_columns,
    check_csc,
    check_distinct,
    check_node_column,
    integers,
    node_count,
    node_ids,
)
from jgs.graph.convert import Edges, networkx_edges, npz_arrays, scipy_edges
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.relations import typed_edges
from jgs.graph.rows import group
from jgs.graph.schema import Relation, Schema, check_edge_types, check_schema
from jgs.graph.shown import Shown, graph_facts
from jgs.graph.weights import check_weights, weight_prefix_sums

# Every field and the dtypes that it may have. All but `indptr` are columns of the edges.
_FIELDS = {
    "indptr": (np.int64,),
    "indices": (np.int32,),
    "edge_weight": (np.float32,),
    "edge_weight_prefix": (np.int64,),
    "edge_order": (np.int32, np.int64),
    "edge_type": (np.int16,),
}
_COLUMNS, _NODES, _SCHEMA = "edge_columns", "node_columns", "schema"
_OWN = f"{_COLUMNS}."  # before the name of a user's column, among the arrays and the files
_TAKEN = {*_FIELDS, _COLUMNS, _NODES, _SCHEMA}


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Graph(Shown):
    """A directed graph in compressed sparse column form: the in-neighbours of every node.

    Fields (`N` nodes, `E` edges):
      indptr: int64 `[N+1]`; the in-edges of node `v` are `indptr[v]:indptr[v+1]`. Edge
        offsets are 64-bit always, also outside `jax.enable_x64`.
      indices: int32 `[E]`; the source of each edge. An edge's position here is its id.
      edge_weight: float32 `[E]` or None; finite and not negative.
      edge_weight_prefix: int64 `[E]` or None; for each edge the sum of its own fixed-point
        weight and of those before it in the same row (see `jgs.graph.weights`), from which
        weighted sampling draws. Made here from `edge_weight`; 8 bytes an edge.
      edge_order: int32 `[E]` (int64 from 2^31 edges on) or None; the position that each edge
        had in the arrays it was given in, so that `feat[graph.edge_order]` is in the order of
        `indices`. None where `Graph` itself was given them, and kept their order.
      edge_type: int16 `[E]` or None; the number of each edge's relation. Each row is sorted by
        it, so that the edges of a relation are a stretch of the row.
      edge_columns: dict of arrays `[E, ...]` by name, the user's own; 64-bit ones stay so.
      node_columns: dict by name of arrays `[N, ...]` or `SparseFeatures`, what samplers read of
        nodes; see `with_node_columns`.
      schema: `Schema` or None, static; the names of the node types, whose ids are ranges (in
        each part of a partitioned graph), and of the relations. See `from_relations`.

    `Graph(indptr, indices, edge_weight, edge_columns)` checks its arrays, and `edge_type` and
    `schema` if they are given, and raises `InputError`. Arrays are moved to the default device;
    aligned NumPy arrays and memory maps on the CPU are used where they lie, so do not change
    them afterwards. Parallel edges and self-loops are kept: each is a neighbour of its own.
    """

    indptr: jax.Array
    indices: jax.Array
    edge_weight: jax.Array | None
    edge_weight_prefix: jax.Array | None
    edge_order: jax.Array | None
    edge_type: jax.Array | None
    edge_columns: dict[str, jax.Array]
    node_columns: dict[str, Any]
    schema: Schema | None

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        edge_weight: Any = None,
        edge_columns: Any = None,
        *,
        edge_type: Any = None,
        schema: Schema | None = None,
    ):
        indptr = integers("indptr", indptr, np.int64)
        indices = integers("indices", indices, np.int32)
        check_csc(indptr, indices)
        prefix = None
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, indices.size)
            prefix = weight_prefix_sums(indptr, edge_weight)
        columns = check_columns(edge_columns, indices.size, _TAKEN)
        check_schema(schema, indptr.size - 1, edge_type is not None)
        if edge_type is not None:
            edge_type = check_edge_types(edge_type, schema, indptr, indices)
        fields = (indptr, indices, edge_weight, prefix, None, edge_type, columns)
        self._set(*jax.tree.map(as_device, fields), schema=schema)

    @property
    def num_nodes(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]

    _facts = graph_facts
    __reduce__ = reduce_arrays

    # -- pytree: no checks on the way in or out, leaves may be tracers or anything else ------

    def tree_flatten_with_keys(self):
        names = (*_FIELDS, _COLUMNS, _NODES)
        return [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in names], self.schema

    def tree_flatten(self):  # without the names: each call of a jitted function flattens
        own = vars(self)
        return [own[name] for name in (*_FIELDS, _COLUMNS, _NODES)], self.schema

    @classmethod
    def tree_unflatten(cls, schema, leaves) -> Self:
        return cls._unchecked(*leaves, schema=schema)

    @classmethod
    def _unchecked(cls, *fields: Any, schema: Schema | None = None) -> Self:
        """The graph of these fields, as they are; those left out are None, or no columns."""
        graph = object.__new__(cls)
        graph._set(*fields, schema=schema)
        return graph

    def _set(self, *fields: Any, schema: Schema | None) -> None:
        vars(self).update(zip_longest((*_FIELDS, _COLUMNS, _NODES), fields), schema=schema)
        for at, name in enumerate((_COLUMNS, _NODES), len(_FIELDS)):
            if len(fields) <= at:
                vars(self)[name] = {}

    def degrees(self) -> jax.Array:
        """int32 `[N]`: each node's number of in-edges."""
        with jax.enable_x64(True):  # the offsets are 64-bit
            return jnp.diff(self.indptr).astype(jnp.int32)

    # -- columns of the edges: what copies a part of a graph takes them along by these three ---

    def edge_arrays(self) -> dict[str, jax.Array]:
        """All arrays `[E, ...]` with an entry for each edge, by name: the fields that are not
        None, and the user's columns."""
        own = {_OWN + name: array for name, array in self.edge_columns.items()}
        fields = {name: getattr(self, name) for name in _FIELDS if self.is_edge_array(name)}
        return {name: array for name, array in fields.items() if array is not None} | own

    def unweighted(self) -> Self:
        """The same graph without `edge_weight`; nothing is copied."""
        arrays = self.edge_arrays()
        arrays.pop("edge_weight", None), arrays.pop("edge_weight_prefix", None)
        return self._of(arrays, self.schema)._with_nodes(self.node_columns)

    def _of(self, arrays: Mapping[str, Any], schema: Schema | None) -> Self:
        return self.from_edge_arrays(self.indptr, arrays, schema=schema)

    @staticmethod
    def is_edge_array(name: str) -> bool:
        """Whether `edge_arrays` may have this name, among those of other arrays."""
        return name.startswith(_OWN) or (name in _FIELDS and name != "indptr")

    @classmethod
    def from_edge_arrays(
        cls,
        indptr: Any,
        arrays: Mapping[str, Any],
        num_edges: int | None = None,
        schema: Schema | None = None,
    ) -> Self:
        """The graph with rows of offsets `indptr` and edges as `edge_arrays` names them.

        Args:
          indptr: int64 `[N+1]`.
          arrays: of these edges; `edge_weight_prefix` of a row that is whole is as before.
            What is not an edge array is left out.
          num_edges: pads the arrays with zeros to so many, memory maps without a copy (see
            `jgs.files.room`); no row has these edges.
          schema: of these nodes and edges. None: their types have no names.

        Nothing is checked.
        """

        def on_device(array: Any) -> jax.Array:
            if num_edges is not None:
                array = with_room(array, num_edges)
            return array if isinstance(array, jax.Array) else as_device(array)

        put = {n: on_device(array) for n, array in arrays.items() if cls.is_edge_array(n)}
        fields = [put.get(name) for name in list(_FIELDS)[1:]]
        own = {n.removeprefix(_OWN): array for n, array in put.items() if n.startswith(_OWN)}
        indptr = indptr if isinstance(indptr, jax.Array) else as_device(indptr)
        return cls._unchecked(indptr, *fields, own, schema=schema)

    # -- columns of the nodes ----------------------------------------------------------------

    def with_node_columns(self, **columns: Any) -> Self:
        """The same graph, nothing copied, with these node columns too: arrays of numbers
        `[N, ...]` or `SparseFeatures` of `N` rows.

        They are for samplers that read nodes, and travel with the graph as arguments of jitted
        functions. Files do not have them, nor graphs with other edges made of this one.
        Raises `InputError`.
        """
        checked = {n: check_node_column(n, c, self.num_nodes) for n, c in columns.items()}
        return self._with_nodes(self.node_columns | jax.tree.map(as_device, checked))

    def _with_nodes(self, columns: dict[str, Any]) -> Self:
        fields = [getattr(self, name) for name in (*_FIELDS, _COLUMNS)]
        return self._unchecked(*fields, columns, schema=self.schema)

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
        symmetric: bool = False,
    ) -> Self:
        """The graph with an edge `src[i] -> dst[i]` for every `i`.

        Args:
          src, dst: integer `[E]`, each in `[0, num_nodes)`.
          num_nodes: `N`.
          edge_weight: float `[E]`, finite and not negative, or None.
          edge_columns: dict of arrays of numbers `[E, ...]`, which go with the edges.
          symmetric: every edge both ways, each once: see `symmetrized`.

        Within a row the edges keep their order; `edge_order` says where each was. Raises
        `InputError`.
        """
        num_nodes = node_count(num_nodes)
        src, dst = node_ids("src", src, num_nodes), node_ids("dst", dst, num_nodes)
        if src.shape != dst.shape:
            raise InputError(
                "src and dst must have the same length",
                f"{src.shape[0]} and {dst.shape[0]}",
                "Give one source and one target for every edge.",
            )
        columns = check_columns(edge_columns, src.size, _TAKEN)
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, src.size)
        indptr, order = group(dst, num_nodes)
        graph = cls(
            indptr,
            src[order],
            None if edge_weight is None else edge_weight[order],
            {name: array[order] for name, array in columns.items()},
        )
        graph = graph._with_order(order)
        return graph.symmetrized() if symmetric else graph

    def _with_order(self, order: np.ndarray) -> Self:
        return self._of({**self.edge_arrays(), "edge_order": order}, self.schema)

    @classmethod
    def from_relations(
        cls,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Any, Any]],
        edge_weight: Mapping[Relation, Any] | None = None,
        *,
        both_ways: bool = False,
    ) -> Self:
        """The typed graph of these relations, with `edge_type` and `schema`.

        Args:
          num_nodes: how many nodes each type has, by its name. Ids in the graph are given in
            this order: `graph.schema.nodes(name)` is the range of a type's.
          edges: of each relation, (source type, name, target type), a pair `src`, `dst` of
            integers `[E]`, which count from 0 in each type.
          edge_weight: float `[E]` of some relations, as of `from_edges`; 1 in the others.
          both_ways: adds the reverse of each relation `(a, name, b)` as the relation
            `(b, "rev_" + name, a)`, after all those given.

        Rows are sorted by relation, in the order given; of one relation they keep the order of
        `src`. `edge_order` counts the edges of all relations, one after the other. Raises
        `InputError`.
        """
        src, dst, types, weight, schema = typed_edges(num_nodes, edges, edge_weight, both_ways)
        graph = cls.from_edges(src, dst, schema.num_nodes, weight)
        arrays: dict[str, Any] = graph.edge_arrays()
        if schema.relations:
            arrays["edge_type"] = types[np.asarray(graph.edge_order)]
        return graph._of(arrays, schema)

    @classmethod
    def from_scipy(
        cls, matrix: Any, weighted: bool = False, *, symmetric: bool = False
    ) -> Self:
        """The graph of a square SciPy sparse matrix: entry `(i, j)` is an edge `i -> j`.

        With `weighted` the entries are the edge weights; otherwise every stored entry is an
        edge, whatever its value. Duplicate entries of a COO matrix stay separate edges.
        `edge_order` counts the entries of `matrix.tocoo()`. With `symmetric` every edge is
        there both ways, once: see `symmetrized`. Raises `InputError`.
        """
        return cls.from_edges(*scipy_edges(matrix, weighted), symmetric=symmetric)

    @classmethod
    def from_networkx(
        cls, graph: Any, weight: str | None = None, *, symmetric: bool = False
    ) -> Self:
        """The graph of a NetworkX graph; node `i` is the `i`-th of `graph.nodes`.

        An undirected edge becomes two directed ones (a self-loop one). `weight` names the
        edge attribute that holds the edge's weight; edges without it weigh 1, and where there
        are edges one must have it. `edge_order` counts `graph.edges`. With `symmetric` every
        edge is there both ways, once: see `symmetrized`. Raises `InputError`.
        """
        edges, position = networkx_edges(graph, weight)
        made = cls.from_edges(*edges)
        order = np.asarray(made.edge_order)
        made = made._with_order(position[order].astype(order.dtype))
        return made.symmetrized() if symmetric else made

    @classmethod
    def from_npz(cls, path: str | os.PathLike, *, symmetric: bool = False) -> Self:
        """The graph in a NumPy archive (read without pickles).

        Either `edge_index` `[2, E]` (row 0 sources, row 1 targets), with the number of nodes
        taken from `num_nodes`, `labels` or `feature_shape`, or `indptr` and `indices` as in
        `Graph`. An `edge_weight` is used when there. With `symmetric` every edge is there both
        ways, once: see `symmetrized`.
        """
        found = npz_arrays(path)
        graph = cls.from_edges(*found) if isinstance(found, Edges) else cls(*found)
        return graph.symmetrized() if symmetric else graph

    # -- other graphs of these edges, not in `jax.jit`; `edge_order` tells where each is from -

    def symmetrized(self) -> Self:
        """With every edge and its reverse, each once; self-loops once; rows sorted by source.

        Of edges that become one, both ways counted, the largest weight is kept. Its columns
        and its place in `edge_order` are those of the first edge in that direction, or, if
        there is none, of the first in the other. Memory: about 100 bytes an edge meanwhile.
        The reverse of an edge is of no relation: of types those of the nodes are kept, and
        edges have none (`from_relations` can add reverse relations).
        """
        return self._without_edge_types()._edited(edits.both_ways)

    def sorted(self) -> Self:
        """With each row sorted by edge type, if there are any, and then by source; parallel
        edges keep their order."""
        return self._edited(edits.sorted_rows)

    def with_self_loops(self) -> Self:
        """With a self-loop at the end of each row that has none.

        Its weight is 1, its entry in each of the user's columns 0, and in `edge_order` the
        largest integer there is: no position, so that an index there is out of bounds. A
        self-loop is of no relation: of types those of the nodes are kept, and edges have none.
        """
        return self._without_edge_types()._edited(edits.with_loops)

    def subgraph(self, nodes: Any) -> Self:
        """The graph of `nodes` and the edges among them: node `i` is `nodes[i]`.

        Args:
          nodes: integer `[n]`, distinct nodes.

        Rows keep their order. Edges keep their types; `schema` is that of `nodes` if they are
        in the order of their types, and else None. Time and memory are in proportion to the
        rows of `nodes`, also of a memory-mapped graph. Raises `InputError`.
        """
        ids = check_distinct("nodes", node_ids("nodes", nodes, self.num_nodes))
        schema = self.schema and self.schema.of_nodes(ids)
        graph = self._edited(edits.among, ids)
        return graph._of(graph.edge_arrays(), schema)

    def _without_edge_types(self) -> Self:
        arrays = self.edge_arrays()
        arrays.pop("edge_type", None)
        return self._of(arrays, self.schema and self.schema.without_relations())

    def _edited(self, edit: Callable, *args: Any) -> Self:
        given = self.edge_arrays().items()
        arrays = {n: np.asarray(array) for n, array in given if n != "edge_weight_prefix"}
        indptr, arrays = edit(np.asarray(self.indptr), arrays, *args)
        if self.edge_weight is not None:
            prefix = weight_prefix_sums(indptr, arrays["edge_weight"])
            arrays["edge_weight_prefix"] = prefix
        return self.from_edge_arrays(indptr, arrays, schema=self.schema)

    # -- files -------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike) -> None:
        """Write the graph to `folder`: one `.npy` file a field or column, and a manifest.

        The manifest (`manifest.json`) names each file's shape, dtype and SHA-256. The folder
        appears whole or not at all. An earlier graph there is replaced; raises `InputError`
        when the folder holds anything else, or cannot be written, or the graph's arrays have
        become such as `open` would refuse.
        """
        given = {"indptr": self.indptr, **self.edge_arrays()}
        arrays = {name: np.asarray(array) for name, array in given.items()}
        check_arrays("the graph", arrays, _FIELDS, "Make it again from what it was made of.")
        if self.schema is not None:
            arrays[_SCHEMA] = self.schema.as_bytes()
        storage.save_arrays(folder, "jgs.graph", arrays)

    @classmethod
    def open(cls, folder: str | os.PathLike, verify: Verify = True) -> Self:
        """The graph that `save` wrote to `folder`, memory-mapped: nothing is read into RAM.

        Shapes, dtypes and file sizes are always checked. `verify` also reads each file and
        compares its checksum (about a second a gigabyte); "once" does so unless this user
        found that very file whole on this machine before. The values themselves were checked
        when the graph was made. Raises `InputError`.
        """
        arrays = storage.open_arrays(folder, "jgs.graph", verify)
        again = "Write the folder again with `Graph.save`."
        named = arrays.pop(_SCHEMA, None)
        check_arrays(str(folder), arrays, _FIELDS, again)
        schema = Schema.from_bytes(str(folder), named)
        check_schema(schema, arrays["indptr"].size - 1, "edge_type" in arrays)
        return cls.from_edge_arrays(arrays["indptr"], arrays, schema=schema)
