"""The edges that other libraries and NumPy archives hold, as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import described, id_column, require_array
from jgs.errors import InputError, require_columns
from jgs.files import storage
from jgs.files.arrow import read_columns, table_name
from jgs.graph.checks import as_array, integers, node_count
from jgs.graph.node_ids import NodeIds

# The arrays of a NumPy archive that can state the number of nodes, and the form of each.
_COUNTS = {
    "num_nodes": "an integer",
    "labels": "an array [N] or [N, C]",
    "feature_shape": "two integers [N, F]",
    "features": "an array [N, F]",
}


_WEIGHT = "edge_weight"


class EdgeList(NamedTuple):
    """Edges as arrays.

    Fields:
      src, dst: `[E]`, node ids.
      num_nodes: int.
      edge_weight: `[E]`, or None.
    """

    src: np.ndarray
    dst: np.ndarray
    num_nodes: int
    edge_weight: np.ndarray | None


def index_edges(edge_index: Any, num_nodes: int | None, edge_weight: Any) -> EdgeList:
    """See `Graph.from_edge_index`."""
    array = as_array("edge_index", edge_index)
    src, dst = index_rows(array)
    count = count_nodes(src, dst) if num_nodes is None else num_nodes
    return EdgeList(src, dst, count, edge_weight)


def index_rows(edge_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sources and the targets of an `edge_index`."""
    require_array("edge_index", edge_index, "[2, E]", "Transpose it?")
    return edge_index[0], edge_index[1]


def count_nodes(src: np.ndarray, dst: np.ndarray) -> int:
    """One more than the largest id. An array that is not of integers is ignored here: the
    checks of the graph refuse it later."""
    ids = [array for array in (src, dst) if array.size and array.dtype.kind in "iu"]
    return max((int(array.max()) + 1 for array in ids), default=0)


def table_edges(
    table: Any,
    num_nodes: int | None,
    ids: NodeIds | None,
    src: str,
    dst: str,
    weight: str | None,
    columns: Iterable[str] | None,
) -> tuple[EdgeList, dict[str, np.ndarray]]:
    """See `Graph.from_table`; also the edge columns."""
    name = table_name(table)
    # A CSV file says of no column whether 07 is text, which it is beside ids that are text.
    text = ids is not None and ids.values.dtype == object
    found = read_columns(table, [src, dst] if text else [], [src, dst])
    weight = weight or (_WEIGHT if _WEIGHT in found else None)
    special = [src, dst, *([] if weight is None else [weight])]
    needed = special if columns is None else [*special, *columns]
    require_columns(name, found, needed)
    ends = found[src], found[dst]
    if ids is not None:
        if num_nodes is None:
            num_nodes = len(ids)
        ends = ids.nodes(ends[0], f"{src} in {name}"), ids.nodes(ends[1], f"{dst} in {name}")
    else:
        ends = id_column(f"{src} in {name}", ends[0]), id_column(f"{dst} in {name}", ends[1])
        if any(end.size and end.dtype == object for end in ends):
            raise InputError(
                f"{src} and {dst} in {name} must be node ids, integers from 0",
                "text",
                "Map them: ids = jgs.NodeIds.of_edges(src, dst), and give ids=ids.",
            )
    if num_nodes is None:
        num_nodes = count_nodes(*ends)
    others = [c for c in found if c not in special] if columns is None else list(columns)
    edges = EdgeList(*ends, num_nodes, None if weight is None else found[weight])
    return edges, {column: found[column] for column in others}


def scipy_edges(matrix: Any, weighted: bool) -> EdgeList:
    """See `Graph.from_scipy`."""
    rule = "an adjacency matrix must be a SciPy sparse matrix or array"
    _check_has(matrix, ("tocoo",), rule, "Convert it with scipy.sparse.coo_array.")
    remedy = "Give one row and one column for every node."
    require_array("an adjacency matrix", matrix, "[N, N]", remedy)
    coo = matrix.tocoo()
    return EdgeList(coo.row, coo.col, matrix.shape[0], coo.data if weighted else None)


def networkx_edges(graph: Any, weight: str | None) -> tuple[EdgeList, np.ndarray]:
    """See `Graph.from_networkx`; also each edge's position in `graph.edges`."""
    rule, remedy = "the graph must be a NetworkX graph", "Make one, e.g. networkx.Graph(edges)."
    _check_has(graph, ("nodes", "edges", "is_directed"), rule, remedy)
    position = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(position[u], position[v], d) for u, v, d in graph.edges(data=True)]
    src = np.array([e[0] for e in edges], np.int64)
    dst = np.array([e[1] for e in edges], np.int64)
    w = None
    if weight is not None:
        _check_attribute(weight, [d for _, _, d in edges])
        w = np.array([_number(weight, d.get(weight, 1.0)) for _, _, d in edges])
    return _both_ways(EdgeList(src, dst, len(position), w), graph.is_directed())


def igraph_edges(graph: Any, weight: str | None) -> tuple[EdgeList, np.ndarray]:
    """See `Graph.from_igraph`; also each edge's position in `graph.es`."""
    rule = "the graph must be an igraph graph"
    remedy = "Make one, e.g. igraph.Graph(edges=pairs)."
    _check_has(graph, ("get_edgelist", "vcount", "is_directed"), rule, remedy)
    ends = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    w = None
    if weight is not None:
        found = graph.es.attributes()
        _check_attribute(weight, [dict.fromkeys(found)] * bool(len(ends)))
        values = graph.es[weight] if weight in found else []
        w = np.array([_number(weight, value) for value in values], np.float64)
    edges = EdgeList(ends[:, 0], ends[:, 1], graph.vcount(), w)
    return _both_ways(edges, graph.is_directed())


def _check_has(value: Any, names: Iterable[str], rule: str, remedy: str) -> None:
    if not all(hasattr(value, name) for name in names):
        raise InputError(rule, f"a {type(value).__name__}", remedy)


def _number(name: str, value: Any) -> float:
    """The value of the edge attribute `name` as a float; text is refused, even "1.5"."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the edge attribute {name!r} must be a float",
        " ".join(repr(value).split()),
        "Convert it with float() on every edge.",
    )


def _both_ways(edges: EdgeList, directed: bool) -> tuple[EdgeList, np.ndarray]:
    """The edges, followed by their reverses if the graph is undirected, and the position that
    each of them has among the given edges."""
    src, dst, num_nodes, w = edges
    which = np.arange(src.size)
    if not directed:
        back = np.flatnonzero(src != dst)
        which = np.r_[which, back]
        src, dst = np.r_[src, dst[back]], np.r_[dst, src[back]]
        w = None if w is None else w[which]
    return EdgeList(src, dst, num_nodes, w), which


def tuple_edges(graphs: Any) -> tuple[EdgeList, dict[str, Any], dict[str, Any]]:
    """See `Graph.from_graphs_tuple`; also the columns of its edges and of its nodes."""
    fields = ("senders", "receivers", "n_node", "nodes", "edges")
    rule = f"a GraphsTuple must have the fields {', '.join(fields)}"
    _check_has(graphs, fields, rule, "Make one with jraph.GraphsTuple.")
    src, dst = as_array("senders", graphs.senders), as_array("receivers", graphs.receivers)
    counts = integers("n_node", graphs.n_node, np.int64)
    edges = EdgeList(src, dst, node_count(int(counts.sum())), None)
    return edges, _columns("edges", graphs.edges), _columns("nodes", graphs.nodes)


def _columns(name: str, values: Any) -> dict[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return dict(values)
    if isinstance(values, tuple | list):
        raise InputError(
            f"the {name} of a GraphsTuple must be an array or a dict of arrays",
            f"a {type(values).__name__}",
            "Give each array a name.",
        )
    return {"features": values}


def _check_attribute(name: str, attributes: list[dict]) -> None:
    if attributes and not any(name in each for each in attributes):
        found = sorted({str(key) for each in attributes for key in each})
        raise InputError(
            f"some edge must have the attribute {name!r}",
            f"edges with {', '.join(map(repr, found)) or 'none'}",
            "Name the one that holds the weights, or leave `weight` out.",
        )


def npz_arrays(path: str | os.PathLike) -> tuple[EdgeList | tuple, dict[str, Any]]:
    """See `Graph.from_npz`: edges, or `indptr`, `indices` and `edge_weight` as in `Graph`; and
    `edge_time` and `node_time`, arrays or None."""
    with storage.open_npz(path) as archive:
        weight = archive.get("edge_weight")
        times = {name: archive.get(name) for name in ("edge_time", "node_time")}
        if "indptr" in archive and "indices" in archive:
            return (archive["indptr"], archive["indices"], weight), times
        if "edge_index" not in archive:
            raise InputError(
                f"{path} must hold `edge_index`, or `indptr` and `indices`",
                f"arrays {sorted(archive)}",
                "Save the graph with `Graph.save`, or as one of the two.",
            )
        if not (counts := [name for name in _COUNTS if name in archive]):
            raise InputError(
                f"{path} must say how many nodes there are",
                f"arrays {sorted(archive)}",
                "Add `num_nodes` to the archive.",
            )
        edges, count = archive["edge_index"], archive[counts[0]]
    ends = index_rows(edges)
    return EdgeList(*ends, _stated_node_count(path, counts[0], count), weight), times


def _stated_node_count(path: str | os.PathLike, name: str, value: np.ndarray) -> int:
    if value.ndim > (name == "features") and name in ("labels", "features"):
        return value.shape[0]
    if value.dtype.kind in "iu":
        if name == "num_nodes" and value.ndim == 0:
            return int(value)
        if name == "feature_shape" and value.shape == (2,):
            return int(value[0])
    raise InputError(
        f"`{name}` in {path} must be {_COUNTS[name]}, to say how many nodes there are",
        described(value),
        "Correct it, or add `num_nodes` to the archive.",
    )
