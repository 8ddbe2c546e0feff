"""Exact evaluation: layer by layer, over all neighbours, in chunks of bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.ops
from jgs.graph import Block, Graph, as_device
from jgs.graph.features import SparseFeatures

# Rows of all nodes: on the device, or (NumPy) fetched from the host chunk by chunk.
Rows = jax.Array | SparseFeatures | np.ndarray


def make_inference(
    model: Any,
    graph: Graph,
    features: jax.Array | SparseFeatures,
    memory: int = 256 << 20,
    scratch: Path | None = None,
    weighted: bool = False,
) -> Callable[[Any, np.ndarray], np.ndarray]:
    """`infer(params, nodes) -> float32 [len(nodes), C]`: the model's exact outputs.

    Each layer is computed from all neighbours, for every node that the next layer reads,
    before the next begins; so the cost is linear in edges and layers.

    Working memory is about `memory` bytes. Rows are processed in chunks of one size and a
    chunk's edges in pieces of one size; a hub spans several pieces, whose sums or maxima are
    combined. A layer's output (nodes x width) larger than `memory` lies in an unnamed file in
    `scratch`, memory-mapped. Each layer compiles once.

    Args:
      model: a `jgs.models.GraphSAGE`; `infer` takes other parameters for it.
      graph, features: what it was trained on.
      weighted: leave out the edges of weight 0, which weighted sampling never draws; the
        weights change nothing else, as they change nothing but the draws in training.
    """
    own = nnx.state(model)
    layers = [(conv.projects_first, conv.reduce) for conv in model.convs]
    message, update = layer_functions(model)
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    weight = np.asarray(graph.edge_weight) if weighted else None
    num_nodes = graph.num_nodes
    widest = max(features.shape[1], *(max(p.shape, default=1) for p in jax.tree.leaves(own)))
    num_rows = max(1, min(num_nodes, memory // (16 * widest)))
    typical = 2 * num_rows * indices.size // max(num_nodes, 1)
    on_host = jax.default_backend() == "cpu"

    def settle(output: np.ndarray) -> Rows:
        return as_device(output) if on_host or output.nbytes <= memory else output

    def chunks(nodes: np.ndarray) -> Iterator[np.ndarray]:
        return (nodes[at : at + num_rows] for at in range(0, len(nodes), num_rows))

    def pieces_of(targets: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        # 32 bytes an edge of indices; `width` floats too where its source row is fetched
        size = max(1, min(memory // (32 + 8 * width), typical, indices.size, 1 << 30))
        return pieces(indptr, indices, weight, targets, num_rows, size, num_nodes)

    def with_neighbours(nodes: np.ndarray) -> np.ndarray:
        if len(nodes) == num_nodes:
            return nodes
        found = np.zeros(num_nodes + 1, bool)  # and one for padding
        found[nodes] = True
        for targets in chunks(nodes):
            for _, sources in pieces_of(targets, 0):
                found[sources] = True
        return np.flatnonzero(found[:-1]).astype(np.int32)

    def project(params: Any, rows: Rows, nodes: np.ndarray, layer: int) -> Rows:
        output = None
        for chunk in chunks(nodes):
            x = message(params, take(rows, padded(chunk, num_rows, num_nodes)), layer)
            if output is None:
                output = empty((num_nodes, x.shape[1]), memory, scratch)
            output[chunk] = np.asarray(x)[: len(chunk)]
        return rows if output is None else settle(output)

    def aggregate(
        messages: Rows, targets: np.ndarray, reduce: str
    ) -> tuple[jax.Array, np.ndarray]:
        width = messages.shape[1]
        whole = isinstance(messages, jax.Array) and messages.dtype == jnp.float32
        total = jnp.full((num_rows, width), -jnp.inf if reduce == "max" else 0, jnp.float32)
        degree = np.zeros(num_rows, np.float32)
        for row_starts, sources in pieces_of(targets, 0 if whole else width):
            degree += np.diff(row_starts)
            if whole:  # the kernel reads the rows where they lie
                total = combine(total, block(row_starts, sources, num_nodes), messages, reduce)
                continue
            ids, local = np.unique(sources, return_inverse=True)
            num_sources = max(len(sources), num_rows)  # a block has a source for every target
            x = take(messages, padded(ids, num_sources, num_nodes))
            part = block(row_starts, local.astype(np.int32), num_sources)
            total = combine(total, part, x, reduce)
        return total, degree

    def infer(params: Any, nodes: np.ndarray) -> np.ndarray:
        asked, place = np.unique(np.asarray(nodes, np.int32), return_inverse=True)
        wanted = [asked]  # the nodes whose output each layer computes
        for _ in layers[1:]:
            wanted.insert(0, with_neighbours(wanted[0]))
        rows: Rows = features
        for layer, (projects_first, reduce) in enumerate(layers):
            messages = rows
            if projects_first:
                messages = project(params, rows, with_neighbours(wanted[layer]), layer)
            last = layer == len(layers) - 1
            output, done = None, 0
            for targets in chunks(wanted[layer]):
                total, degree = aggregate(messages, targets, reduce)
                ids = padded(targets, num_rows, num_nodes)
                h = update(params, take(rows, ids), total, degree, ids, layer)
                if output is None:
                    shape = (len(asked) if last else num_nodes, h.shape[1])
                    output = empty(shape, memory, scratch)
                at = np.arange(done, done + len(targets)) if last else targets
                output[at] = np.asarray(h)[: len(targets)]
                done += len(targets)
            assert output is not None, "infer needs at least one node"
            rows = output if last else settle(output)
        return np.asarray(rows)[place]

    return infer


def layer_functions(model: Any) -> tuple[Callable, Callable]:
    """What a layer does before and after the aggregation, jitted: `message(params, x, layer)`
    and `update(params, x_self, total, degree, ids, layer)`, with `total` and `degree` the
    combined pieces of the targets `ids`."""
    graphdef, _ = nnx.split(model)

    @partial(jax.jit, static_argnames="layer")
    def message(params, x, layer):
        return nnx.merge(graphdef, params).convs[layer].message(x)

    @partial(jax.jit, static_argnames="layer")
    def update(params, x_self, total, degree, ids, layer):
        merged = nnx.merge(graphdef, params)
        conv = merged.convs[layer]
        combined = _finish(total, degree, conv.reduce)
        return merged.activate(layer, conv.update(x_self, combined), ids, None)

    return message, update


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """The fraction of rows classified rightly; of multi-label data the micro-averaged F1.

    Args:
      logits: float `[n, C]`.
      labels: int `[n]`, or 0 and 1 `[n, C]`: a label is predicted where its logit is above 0.
    """
    right, asked = right_and_asked(logits, labels)
    return right / max(asked, 1)


def right_and_asked(logits: np.ndarray, labels: np.ndarray) -> tuple[int, int]:
    """Two counts whose sums over any pieces give the `accuracy` of all rows, as a fraction."""
    if labels.ndim == 1:
        return int(np.count_nonzero(np.argmax(logits, axis=1) == labels)), len(labels)
    predicted, true = logits > 0, labels > 0.5
    right = 2 * int(np.count_nonzero(predicted & true))
    return right, right + int(np.count_nonzero(predicted != true))


def pieces(
    indptr: np.ndarray,
    indices: np.ndarray,
    weight: np.ndarray | None,
    targets: np.ndarray,
    num_rows: int,
    size: int,
    padding: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The edges into `targets`, `size` at a time: row starts `[num_rows+1]`, sources `[size]`.

    Every piece has the same rows; a row's edges beyond the piece are in the next ones. With
    weights, the edges of weight 0 are left out.
    """
    starts = indptr[targets]
    offsets = np.zeros(len(targets) + 1, np.int64)
    np.cumsum(indptr[targets + 1] - starts, out=offsets[1:])
    for begin in range(0, int(offsets[-1]), size):
        local = np.clip(offsets - begin, 0, size)
        first = starts + np.maximum(begin - offsets[:-1], 0) - local[:-1]
        edges = np.repeat(first, np.diff(local)) + np.arange(local[-1])
        if weight is not None:
            drawn = weight[edges] > 0
            local, edges = np.r_[0, np.cumsum(drawn)][local], edges[drawn]
        row_starts = padded(local.astype(np.int32), num_rows + 1, local[-1])
        yield row_starts, padded(indices[edges], size, padding)


def block(row_starts: np.ndarray, sources: np.ndarray, num_sources: int) -> Block:
    counts = (len(row_starts) - 1, num_sources, row_starts[-1])
    return Block(row_starts, sources, *(np.int32(c) for c in counts))  # type: ignore[arg-type]


@partial(jax.jit, static_argnames="reduce", donate_argnames="total")
def combine(total: jax.Array, block: Block, x: jax.Array, reduce: str) -> jax.Array:
    if reduce != "max":
        return total + jgs.ops.aggregate(block, x, "sum")
    here = jnp.diff(block.indptr)[:, None] > 0
    return jnp.where(here, jnp.maximum(total, jgs.ops.aggregate(block, x, "max")), total)


def _finish(total: jax.Array, degree: jax.Array, reduce: str) -> jax.Array:
    """What `jgs.ops.aggregate` gives for whole rows, from their combined pieces."""
    if reduce == "mean":
        return total / jnp.maximum(degree, 1)[:, None]
    return jnp.where(degree[:, None] > 0, total, 0)


_gather = jax.jit(jgs.ops.gather)


def take(rows: Any, ids: np.ndarray) -> jax.Array:
    """float32 `[len(ids), F]`; zeros for ids from the number of rows on."""
    if not isinstance(rows, np.ndarray):
        return _gather(rows, ids)
    real = ids < len(rows)
    return jnp.asarray(np.where(real[:, None], rows[np.where(real, ids, 0)], 0), jnp.float32)


def padded(ids: np.ndarray, size: int, value: int) -> np.ndarray:
    return np.pad(ids, (0, size - len(ids)), constant_values=value)


def empty(shape: tuple[int, int], memory: int, scratch: Path | None) -> np.ndarray:
    """Float32, in memory if it fits, else in a temporary file."""
    if 4 * shape[0] * shape[1] <= memory:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(dir=scratch) as file:  # the map outlives the name and the file
        return np.memmap(file, np.float32, "w+", shape=shape)
