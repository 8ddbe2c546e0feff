"""The edges in SciPy matrices, NetworkX graphs and NumPy archives, as arrays."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.files import storage
from jgs.graph.checks import COUNTS, number, stated_node_count


class Edges(NamedTuple):
    """Fields:
    src, dst: `[E]`, node ids.
    num_nodes: int.
    edge_weight: `[E]`, or None.
    """

    src: np.ndarray
    dst: np.ndarray
    num_nodes: int
    edge_weight: np.ndarray | None


class Rows(NamedTuple):
    """Fields: as in `Graph`."""

    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray | None


def scipy_edges(matrix: Any, weighted: bool) -> Edges:
    """See `Graph.from_scipy`."""
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
    return Edges(coo.row, coo.col, matrix.shape[0], coo.data if weighted else None)


def networkx_edges(graph: Any, weight: str | None) -> tuple[Edges, np.ndarray]:
    """See `Graph.from_networkx`; also each edge's position in `graph.edges`."""
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
    w = None
    if weight is not None:
        _check_attribute(weight, [d for _, _, d in edges])
        w = np.array([number(weight, d.get(weight, 1.0)) for _, _, d in edges])
    which = np.arange(src.size)
    if not graph.is_directed():
        back = np.flatnonzero(src != dst)
        which = np.r_[which, back]
        src, dst = np.r_[src, dst[back]], np.r_[dst, src[back]]
        w = None if w is None else w[which]
    return Edges(src, dst, len(position), w), which


def _check_attribute(name: str, attributes: list[dict]) -> None:
    if attributes and not any(name in each for each in attributes):
        found = sorted({str(key) for each in attributes for key in each})
        raise InputError(
            f"some edge must have the attribute {name!r}",
            f"edges with {', '.join(map(repr, found)) or 'none'}",
            "Name the one that holds the weights, or leave `weight` out.",
        )


def npz_arrays(path: str | os.PathLike) -> Edges | Rows:
    """See `Graph.from_npz`: what the archive holds."""
    with storage.open_npz(path) as archive:
        weight = archive.get("edge_weight")
        if "indptr" in archive and "indices" in archive:
            return Rows(archive["indptr"], archive["indices"], weight)
        if "edge_index" not in archive:
            raise InputError(
                f"{path} must hold `edge_index`, or `indptr` and `indices`",
                f"arrays {sorted(archive)}",
                "Save the graph with `Graph.save`, or as one of the two.",
            )
        if not (counts := [name for name in COUNTS if name in archive]):
            raise InputError(
                f"{path} must say how many nodes there are",
                f"arrays {sorted(archive)}",
                "Add `num_nodes` to the archive.",
            )
        edges, count = archive["edge_index"], archive[counts[0]]
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise InputError("edge_index must have shape [2, E]", edges.shape, "Transpose it?")
    return Edges(edges[0], edges[1], stated_node_count(path, counts[0], count), weight)
