"""Graphs of other libraries and for them: the edges that libraries and NumPy archives hold, as
arrays; graphs and batches in the formats of SciPy, NetworkX, `jax.experimental.sparse` and
jraph; and the edges of a batch, named by node ids of the graph."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, id_column, require_array
from jgs.errors import InputError, refusing, require_columns
from jgs.files import storage
from jgs.files.arrow import read_columns, table_name
from jgs.graph.checks import as_array, integers, node_count
from jgs.graph.node_ids import NodeIds
from jgs.settings import exact_integers

# The arrays of a NumPy archive that can state the number of nodes, and the form of each.
_COUNTS = {
    "num_nodes": "an integer",
    "labels": "an array [N] or [N, C]",
    "feature_shape": "two integers [N, F]",
    "features": "an array [N, F]",
}
_WEIGHT, _INSTALLED = "edge_weight", "{} must be installed for this"


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


def edge_targets(num_slots, indptr, num_targets, num_edges):
    """The target of each edge, int32 `[E]`, `T` in padding; and whether it is real, bool `[E]`.

    Args:
      num_slots: int; `E`, the block's edge capacity.
      indptr: int32 `[T+1]`, as in `Block`.
      num_targets, num_edges: int32 scalars, as in `Block`.
    """
    num_rows = indptr.shape[0] - 1
    if num_rows == 0:  # of which `repeat` makes nothing
        return jnp.zeros(num_slots, jnp.int32), jnp.zeros(num_slots, bool)
    row = jnp.repeat(
        jnp.arange(num_rows, dtype=jnp.int32), jnp.diff(indptr), total_repeat_length=num_slots
    )
    # `repeat` assigns the remaining slots to the last row.
    real = jnp.arange(num_slots, dtype=jnp.int32) < jnp.minimum(num_edges, indptr[-1])
    real &= row < num_targets
    return jnp.where(real, row, num_rows), real


def targets_of(block: Any) -> tuple[jax.Array, jax.Array]:
    """The `edge_targets` of a block."""
    return edge_targets(block.edge_capacity, block.indptr, block.num_targets, block.num_edges)


class Csc(NamedTuple):
    """The real edges of a block in compressed columns, as gSampler and DGL name them: rows are
    sources, columns are targets.

    Fields:
      indptr: int32 `[num_cols + 1]`; the edges of column `c` are `indptr[c]:indptr[c + 1]`.
      indices: int32 `[num_edges]`, each edge's row.
      edge_ids: int64 `[num_edges]`, its position in the graph; None where the block has none.
      values: float32 `[num_edges]`, the block's `edge_weight`; None where it has none.
      num_rows, num_cols: int, the sources and the targets.
    """

    indptr: np.ndarray
    indices: np.ndarray
    edge_ids: np.ndarray | None
    values: np.ndarray | None
    num_rows: int
    num_cols: int


class Coo(NamedTuple):
    """The real edges of a block as pairs: `row` and `col` int32 `[num_edges]`, in the order of
    `Csc`. The other fields are those of `Csc`."""

    row: np.ndarray
    col: np.ndarray
    edge_ids: np.ndarray | None
    values: np.ndarray | None
    num_rows: int
    num_cols: int


def weights_or_ones(graph: Any) -> np.ndarray:
    """float32 `[E]`: the weight of each edge, 1 without weights."""
    if graph.edge_weight is None:
        return np.ones(graph.num_edges, np.float32)
    return np.asarray(graph.edge_weight)


def networkx_graph(graph: Any) -> Any:
    """See `Graph.to_networkx`."""
    with refusing(ImportError, _INSTALLED.format("networkx"), "pip install 'networkx'"):
        import networkx  # optional, and a slow import
    src, dst = graph.edge_index()
    columns = {name: np.asarray(array) for name, array in graph.edge_columns.items()}
    if graph.edge_weight is not None:
        columns["weight"] = weights_or_ones(graph)
    names, values = list(columns), [_entries(array) for array in columns.values()]
    entries = zip(*values, strict=True) if values else iter([()] * src.size)
    pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
    made = networkx.MultiDiGraph() if len(set(pairs)) < len(pairs) else networkx.DiGraph()
    made.add_nodes_from(range(graph.num_nodes))
    for name, column in graph.node_columns.items():
        if not hasattr(column, "num_features"):  # `SparseFeatures` are left out
            rows = dict(enumerate(_entries(np.asarray(column))))
            networkx.set_node_attributes(made, rows, name)
    made.add_edges_from(
        (u, v, dict(zip(names, entry, strict=True)))
        for (u, v), entry in zip(pairs, entries, strict=True)
    )
    return made


def _entries(column: np.ndarray) -> list:
    return column.tolist() if column.ndim == 1 else list(column)


def graphs_tuple(batch: Any, x: Any) -> Any:
    """See `MiniBatch.to_graphs_tuple`."""
    with refusing(ImportError, _INSTALLED.format("jraph"), "pip install 'jgs[jraph]'"):
        import jraph  # optional, and a slow import
    if batch.direct_inputs:
        raise InputError(
            "a batch to be a GraphsTuple must have its own input nodes",
            "one sampled with relabel_inputs=False",
            "Sample with relabel_inputs=True.",
        )
    if any("layer" in block.edge_columns for block in batch.blocks):
        rule = "an edge column of a GraphsTuple must have another name than the block's number"
        raise InputError(rule, "layer", "Rename the column of the graph.")
    capacity, first = batch.nodes.shape[0], batch.blocks[0]
    if x is None:
        nodes = jnp.append(batch.nodes, jnp.int32(batch.num_nodes))
    else:
        nodes = jax.tree.map(lambda a: jnp.pad(a, [(0, 1)] + [(0, 0)] * (a.ndim - 1)), x)
    ends, columns, real = [], [], []
    for layer, block in enumerate(batch.blocks):
        target, is_real = targets_of(block)
        ends.append(jnp.where(is_real, jnp.stack([block.indices, target]), first.num_sources))
        real.append(is_real)
        names = ("edge_id", "edge_weight", "edge_type", "edge_time")
        own = {name: a for name in names if (a := getattr(block, name)) is not None}
        number = {"layer": jnp.full(block.edge_capacity, layer, jnp.int32)}
        columns.append(own | block.edge_columns | number)
    is_real = jnp.concatenate(real)
    order = jnp.argsort(~is_real, stable=True)  # real edges of all blocks before padding
    with exact_integers():  # `edge_id` is 64-bit
        edges = jax.tree.map(lambda *parts: jnp.concatenate(parts)[order], *columns)
    senders, receivers = jnp.concatenate(ends, axis=1)[:, order]

    def counts(num_real: jax.Array, num_slots: int) -> jax.Array:
        return jnp.stack([num_real, num_slots - num_real]).astype(jnp.int32)

    return jraph.GraphsTuple(
        nodes=nodes,
        edges=edges,
        senders=senders,
        receivers=receivers,
        n_node=counts(first.num_sources, capacity + 1),
        n_edge=counts(is_real.sum(), is_real.shape[0]),
        globals=None,
    )


class DrawnEdges(NamedTuple):
    """The real edges of a batch, the seeds' own hop first.

    Fields, NumPy `[m]`:
      src, dst: int32 node ids; messages go from `src` to `dst`.
      hop: int32; 0 for the edges into the seeds, 1 for the edges into their neighbours, and so
        on. 0 for all edges of a square block, which every layer uses.
      layer: int32; the index of the block in `MiniBatch.blocks`.
      place: int64; the position in the block's `indices`.
    """

    src: np.ndarray
    dst: np.ndarray
    hop: np.ndarray
    layer: np.ndarray
    place: np.ndarray


def drawn_edges(batch: Any) -> DrawnEdges:
    """The edges of one `MiniBatch`. Raises `InputError` for a super-batch and for a batch that
    has overflowed."""
    if np.ndim(batch.nodes) != 1:
        raise InputError(
            "one batch can be shown at a time",
            f"a super-batch of {np.shape(batch.nodes)[0]}",
            "Take one: jax.tree.map(lambda a: a[0], batch).",
        )
    if bool(batch.overflow):
        raise InputError(
            "a batch must not have overflowed",
            "one that has: it is empty",
            "Draw it again, same key, with a larger capacity.",
        )
    found = []
    for layer in reversed(range(len(batch.blocks))):
        block = batch.blocks[layer]
        indptr, nodes = np.asarray(block.indptr), np.asarray(batch.nodes)
        src = np.asarray(block.indices)[: int(block.num_edges)]
        if layer > 0 or not batch.direct_inputs:
            src = nodes[src]
        dst = np.repeat(nodes[: indptr.size - 1], np.diff(indptr))
        numbers = (len(batch.blocks) - 1 - layer, layer)
        found.append((src, dst, *(np.full(src.size, n) for n in numbers), np.arange(src.size)))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    src, dst, hops, layers = (column.astype(np.int32) for column in columns[:4])
    return DrawnEdges(src, dst, hops, layers, columns[4])
