"""Blocks and batches made in NumPy, and what `jgs.ops.aggregate` makes of a block."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jgs import Block, MiniBatch


def make_block(rows, weights=None, num_sources=None, capacities=(0, 0)):
    """A block from lists of sources; `capacities` (T, E) are added. Padded weights are NaN."""
    num_edges = sum(map(len, rows))
    indices = np.array([s for r in rows for s in r], np.int32)
    num_sources = num_sources or int(max([*indices, len(rows) - 1])) + 1
    indptr = np.r_[0, np.cumsum([len(r) for r in rows]), [num_edges] * capacities[0]]
    if weights is not None:
        flat = [w for r in weights for w in r] + [np.nan] * capacities[1]
        weights = jnp.asarray(np.array(flat, np.float32))
    return Block(
        indptr=jnp.asarray(indptr.astype(np.int32)),
        # Padding that points at a real row must not do harm either.
        indices=jnp.asarray(np.r_[indices, [0] * capacities[1]].astype(np.int32)),
        num_targets=jnp.int32(len(rows)),
        num_sources=jnp.int32(num_sources),
        num_edges=jnp.int32(num_edges),
        edge_weight=weights,
    )


def random_block(
    rng, weighted, num_targets=30, num_sources=50, max_degree=9, capacities=(4, 11), room=None
):
    """Every seventh target has no edges. `room` (T, E) are the capacities themselves."""
    degrees = rng.integers(0, max_degree + 1, num_targets)
    degrees[::7] = 0
    rows = [rng.integers(0, num_sources, d) for d in degrees]
    weights = [rng.standard_normal(d) for d in degrees] if weighted else None
    if room is not None:
        capacities = room[0] - num_targets, room[1] - int(degrees.sum())
    return make_block(rows, weights, num_sources, capacities)


def with_weight(block, weight):
    return replace(block, edge_weight=weight)


def aggregated(block, x, grad_out, reduce):
    """`(out, grad_x, grad_weight)` of `jgs.ops.aggregate` in float64, one target at a time."""
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    x, grad_out = np.asarray(x, np.float64), np.asarray(grad_out, np.float64)
    weight = np.ones(len(indices))
    if block.edge_weight is not None:
        weight = np.asarray(block.edge_weight, np.float64)
    out = np.zeros((len(indptr) - 1, x.shape[1]))
    grad_x, grad_weight = np.zeros_like(x), np.zeros(len(indices))
    for t in range(int(block.num_targets)):
        edges = np.arange(indptr[t], indptr[t + 1])
        if len(edges) == 0:
            continue
        products = weight[edges, None] * x[indices[edges]]
        if reduce == "max":
            # Of equal products argmax takes the first.
            share = np.arange(len(edges))[:, None] == products.argmax(0)
        else:
            share = np.full(products.shape, 1 / len(edges) if reduce == "mean" else 1.0)
        out[t] = (share * products).sum(0)
        for e, s in zip(edges, share, strict=True):
            grad_x[indices[e]] += weight[e] * s * grad_out[t]
            grad_weight[e] = (s * x[indices[e]] * grad_out[t]).sum()
    return out, grad_x, grad_weight


def whole_batch(graph, num_layers=1, padding=0, order=None, fill=np.nan):
    """A batch of all nodes in that order with all edges, `padding` more, filled with `fill`."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    order = np.arange(num_nodes) if order is None else np.asarray(order)
    first, degree = np.asarray(graph.indptr)[:-1], np.diff(graph.indptr)
    ids = np.concatenate([first[v] + np.arange(degree[v]) for v in order]).astype(np.int64)
    place = np.empty(num_nodes, np.int32)
    place[order] = np.arange(num_nodes)

    def padded(array, value, dtype=None):
        rows = np.full((padding, *array.shape[1:]), value, dtype or array.dtype)
        return jnp.asarray(np.concatenate([array, rows]).astype(rows.dtype))

    def column(array):
        if array.dtype.kind == "f":
            return padded(np.asarray(array)[ids], fill)
        return padded(np.asarray(array)[ids].astype(np.int32), -9)

    block = Block(
        padded(np.r_[0, np.cumsum(degree[order])], num_edges, np.int32),
        padded(place[np.asarray(graph.indices)[ids]], num_nodes + padding),
        jnp.int32(num_nodes),
        jnp.int32(num_nodes),
        jnp.int32(num_edges),
        source_capacity=num_nodes + padding,
        edge_columns={name: column(array) for name, array in graph.edge_columns.items()},
    )
    nodes = padded(order, num_nodes, np.int32)
    degrees = padded(degree[order], 0, np.int32)
    blocks = (block,) * num_layers
    return MiniBatch(nodes, nodes, blocks, jnp.array(False), num_nodes, degrees=degrees)
