"""`Graph`: what every sampler draws from.

Its docstring is the specification: shape, dtype and meaning of every field. It is a JAX pytree,
so it passes through `jax.jit` as an argument.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

import jax
import numpy as np

from jgs.errors import InputError
from jgs.files import storage
from jgs.graph.checks import (
    COUNTS,
    check_csc,
    integers,
    node_count,
    node_ids,
    number,
    stated_node_count,
)
from jgs.graph.device import as_device
from jgs.graph.weights import check_weights, weight_prefix_sums

_FIELDS = {
    "indptr": np.int64,
    "indices": np.int32,
    "edge_weight": np.float32,
    "edge_weight_prefix": np.int64,
}


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Graph:
    """A directed graph in compressed sparse column form: the in-neighbours of every node.

    Fields (`N` nodes, `E` edges):
      indptr: int64 `[N+1]`; the in-edges of node `v` are `indptr[v]:indptr[v+1]`. Edge
        offsets are 64-bit always, also outside `jax.enable_x64`.
      indices: int32 `[E]`; the source of each edge. An edge's position here is its id.
      edge_weight: float32 `[E]` or None; finite and not negative.
      edge_weight_prefix: int64 `[E]` or None; for each edge the sum of its own fixed-point
        weight and of those before it in the same row (see `jgs.graph.weights`), from which
        weighted sampling draws. Made here from `edge_weight`; 8 bytes an edge.

    `Graph(indptr, indices, edge_weight)` checks its arrays and raises `InputError`. Arrays
    are moved to the default device; aligned NumPy arrays and memory maps on the CPU are
    used where they lie, so do not change them afterwards. Parallel edges and self-loops are
    kept: each is a neighbour of its own.
    """

    indptr: jax.Array
    indices: jax.Array
    edge_weight: jax.Array | None
    edge_weight_prefix: jax.Array | None

    def __init__(self, indptr: Any, indices: Any, edge_weight: Any = None):
        indptr = integers("indptr", indptr, np.int64)
        indices = integers("indices", indices, np.int32)
        check_csc(indptr, indices)
        prefix = None
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, indices.size)
            prefix = weight_prefix_sums(indptr, edge_weight)
        for name, array in zip(_FIELDS, (indptr, indices, edge_weight, prefix), strict=True):
            object.__setattr__(self, name, None if array is None else as_device(array))

    @property
    def num_nodes(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]

    def __repr__(self) -> str:
        weighted = ", weighted" if self.edge_weight is not None else ""
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}{weighted})"

    # -- pytree: no checks on the way in or out, leaves may be tracers or anything else ------

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in _FIELDS], None

    @classmethod
    def tree_unflatten(cls, _, leaves) -> Self:
        return cls._unchecked(*leaves)

    @classmethod
    def _unchecked(cls, *arrays: Any) -> Self:
        """The graph of these fields, as they are; those left out are None."""
        graph = object.__new__(cls)
        for name, array in zip_longest(_FIELDS, arrays):
            object.__setattr__(graph, name, array)
        return graph

    # -- constructors ------------------------------------------------------------------------

    @classmethod
    def from_edges(cls, src: Any, dst: Any, num_nodes: int, edge_weight: Any = None) -> Self:
        """The graph with an edge `src[i] -> dst[i]` for every `i`.

        Args:
          src, dst: integer `[E]`, each in `[0, num_nodes)`.
          num_nodes: `N`.
          edge_weight: float `[E]`, finite and not negative, or None.

        Within a row the edges keep their order. Raises `InputError`.
        """
        num_nodes = node_count(num_nodes)
        src, dst = node_ids("src", src, num_nodes), node_ids("dst", dst, num_nodes)
        if src.shape != dst.shape:
            raise InputError(
                "src and dst must have the same length",
                f"{src.shape[0]} and {dst.shape[0]}",
                "Give one source and one target for every edge.",
            )
        order = np.argsort(dst, kind="stable")
        indptr = np.zeros(num_nodes + 1, np.int64)
        np.cumsum(np.bincount(dst, minlength=num_nodes), out=indptr[1:])
        if edge_weight is not None:
            edge_weight = check_weights(edge_weight, src.size)[order]
        return cls(indptr, src[order], edge_weight)

    @classmethod
    def from_scipy(cls, matrix: Any, weighted: bool = False) -> Self:
        """The graph of a square SciPy sparse matrix: entry `(i, j)` is an edge `i -> j`.

        With `weighted` the entries are the edge weights; otherwise every stored entry is an
        edge, whatever its value. Duplicate entries of a COO matrix stay separate edges.
        Raises `InputError`.
        """
        if not hasattr(matrix, "tocoo"):
            raise InputError(
                "an adjacency matrix must be a SciPy sparse matrix or array",
                f"a {type(matrix).__name__}",
                "Convert it with scipy.sparse.coo_array.",
            )
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(
                "an adjacency matrix must be square",
                f"shape {matrix.shape}",
                "Give one row and one column for every node.",
            )
        coo = matrix.tocoo()
        return cls.from_edges(coo.row, coo.col, matrix.shape[0], coo.data if weighted else None)

    @classmethod
    def from_networkx(cls, graph: Any, weight: str | None = None) -> Self:
        """The graph of a NetworkX graph; node `i` is the `i`-th of `graph.nodes`.

        An undirected edge becomes two directed ones (a self-loop one). `weight` names the
        edge attribute that holds the edge's weight; edges without it weigh 1. Raises
        `InputError`.
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise InputError(
                "the graph must be a NetworkX graph",
                f"a {type(graph).__name__}",
                "Make one, e.g. networkx.Graph(edges).",
            )
        position = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(position[u], position[v], d) for u, v, d in graph.edges(data=True)]
        src = np.array([e[0] for e in edges], np.int64)
        dst = np.array([e[1] for e in edges], np.int64)
        w = (
            None
            if weight is None
            else np.array([number(weight, d.get(weight, 1.0)) for _, _, d in edges])
        )
        if not graph.is_directed():
            back = src != dst
            src, dst = np.r_[src, dst[back]], np.r_[dst, src[back]]
            w = None if w is None else np.r_[w, w[back]]
        return cls.from_edges(src, dst, len(position), w)

    @classmethod
    def from_npz(cls, path: str | os.PathLike) -> Self:
        """The graph in a NumPy archive (read without pickles).

        Either `edge_index` `[2, E]` (row 0 sources, row 1 targets), with the number of nodes
        taken from `num_nodes`, `labels` or `feature_shape`, or `indptr` and `indices` as in
        `Graph`. An `edge_weight` is used when there.
        """
        with storage.open_npz(path) as archive:
            weight = archive.get("edge_weight")
            csc = "indptr" in archive and "indices" in archive
            if csc:
                indptr, indices = archive["indptr"], archive["indices"]
            elif "edge_index" not in archive:
                raise InputError(
                    f"{path} must hold `edge_index`, or `indptr` and `indices`",
                    f"arrays {sorted(archive)}",
                    "Save the graph with `Graph.save`, or as one of the two.",
                )
            elif not (counts := [name for name in COUNTS if name in archive]):
                raise InputError(
                    f"{path} must say how many nodes there are",
                    f"arrays {sorted(archive)}",
                    "Add `num_nodes` to the archive.",
                )
            else:
                edges, count = archive["edge_index"], archive[counts[0]]
        if csc:
            return cls(indptr, indices, weight)
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise InputError("edge_index must have shape [2, E]", edges.shape, "Transpose it?")
        num_nodes = stated_node_count(path, counts[0], count)
        return cls.from_edges(edges[0], edges[1], num_nodes, weight)

    # -- files -------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike) -> None:
        """Write the graph to `folder`: one `.npy` file a field and a manifest.

        The manifest (`manifest.json`) names each file's shape, dtype and SHA-256. The folder
        appears whole or not at all. An earlier graph there is replaced; raises `InputError`
        when the folder holds anything else, or cannot be written.
        """
        arrays = {n: np.asarray(a) for n in _FIELDS if (a := getattr(self, n)) is not None}
        storage.save_arrays(folder, "jgs.graph", arrays)

    @classmethod
    def open(cls, folder: str | os.PathLike, verify: bool = True) -> Self:
        """The graph that `save` wrote to `folder`, memory-mapped: nothing is read into RAM.

        Shapes, dtypes and file sizes are always checked. `verify` also reads each file once
        and compares its checksum (about a second a gigabyte); the values themselves were
        checked when the graph was made. Raises `InputError`.
        """
        arrays = storage.open_arrays(folder, "jgs.graph", verify)
        weighted = "edge_weight" in arrays or "edge_weight_prefix" in arrays
        names = [n for n in _FIELDS if weighted or not n.startswith("edge_weight")]
        for name in names:
            dtype = _FIELDS[name]
            if name not in arrays or arrays[name].dtype != dtype or arrays[name].ndim != 1:
                raise InputError(
                    f"{folder} must hold a one-dimensional {np.dtype(dtype)} array `{name}`",
                    {k: f"{v.dtype}{list(v.shape)}" for k, v in arrays.items()},
                    "Write the folder again with `Graph.save`.",
                )
        indptr, indices = arrays["indptr"], arrays["indices"]
        if indptr.size == 0 or indptr[0] != 0 or indptr[-1] != indices.size:
            raise InputError(
                "indptr must run from 0 to the number of edges",
                f"{indptr.size} entries, {indices.size} edges",
                "Write the folder again with `Graph.save`.",
            )
        for name in names[2:]:
            if arrays[name].size != indices.size:
                raise InputError(
                    f"{name} must have one entry for every edge",
                    f"{arrays[name].size} entries, {indices.size} edges",
                    "Write the folder again with `Graph.save`.",
                )
        fields = (arrays.get(name) for name in _FIELDS)
        return cls._unchecked(*(None if a is None else as_device(a) for a in fields))
