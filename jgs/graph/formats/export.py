"""Graphs and batches in the formats of SciPy, NetworkX, `jax.experimental.sparse` and jraph;
and the edges of a batch, named by node ids of the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.settings import exact_integers


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
    try:
        import networkx  # optional, and a slow import
    except ImportError:
        raise _missing("networkx", "networkx") from None
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
    try:
        import jraph  # optional, and a slow import
    except ImportError:
        raise _missing("jraph", "jgs[jraph]") from None
    if batch.direct_inputs:
        raise InputError(
            "a batch to be a GraphsTuple must have its own input nodes",
            "one sampled with relabel_inputs=False",
            "Sample with relabel_inputs=True.",
        )
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


def _missing(module: str, wanted: str) -> InputError:
    return InputError(
        f"{module} must be installed for this", "no such module", f"pip install '{wanted}'"
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
