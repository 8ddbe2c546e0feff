"""Exact evaluation by many ranks: each computes its own nodes, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.dist.comm import Communicator, all_gather_rows
from jgs.dist.exchange import FeatureExchange
from jgs.graph import Graph, as_device
from jgs.graph.features import SparseFeatures
from jgs.train.evaluate import block, combine, empty, layer_functions, padded, pieces, take

# Yields the ids of nodes, is sent their rows, and returns a layer's output.
Asking = Generator[np.ndarray, jax.Array, np.ndarray]


class _Rank(NamedTuple):
    """One local rank: the nodes from `first` to `last` and the arrays of their in-edges."""

    first: int
    last: int
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None


def make_rank_inference(
    comm: Communicator,
    model: Any,
    graphs: Sequence[Graph],
    offsets: np.ndarray,
    features: Sequence[Any],
    memory: int = 256 << 20,
    scratch: Path | None = None,
    weighted: bool = False,
) -> Callable[[Any, Sequence[np.ndarray]], list[np.ndarray]]:
    """`infer(params, nodes) -> logits`, both lists with an item for each local rank: int32
    `[n]`, ascending nodes that the rank owns, and float32 `[n, C]`. All ranks call it.

    As `jgs.train.evaluate.make_inference`, but a rank computes its own nodes only, and fetches
    the rows of others' that its pieces of edges read, in as many exchanges on every rank.

    Args:
      comm: the communicator; no other thread may use it meanwhile.
      model: a `jgs.models.GraphSAGE`; `infer` takes other parameters for it.
      graphs: for each local rank a graph of `N` nodes that has its own nodes' in-edges.
      offsets, features: as for `FeatureExchange`.
      memory, scratch, weighted: as in `make_inference`.
    """
    layers = [(conv.projects_first, conv.reduce) for conv in model.convs]
    message, update = layer_functions(model)
    num_nodes, most = int(offsets[-1]), int(np.diff(offsets).max())
    bounds = offsets[comm.rank : comm.rank + comm.num_local + 1].tolist()
    ranks = [
        _Rank(
            bounds[i],
            bounds[i + 1],
            np.asarray(graph.indptr),
            np.asarray(graph.indices),
            np.asarray(graph.edge_weight) if weighted else None,
        )
        for i, graph in enumerate(graphs)
    ]
    shapes = (np.shape(p) for p in jax.tree.leaves(nnx.state(model)))
    widest = max(_width(features[0]), *(max(s, default=1) for s in shapes))
    num_rows = max(1, min(most, memory // (16 * widest)))
    edges = [int(r.indptr[r.last] - r.indptr[r.first]) for r in ranks]
    of_chunk = [min(2 * num_rows * e // max(most, 1) + 1, 1 << 30) for e in edges]
    typical = all_gather_rows(comm, [np.array([e], np.int32) for e in of_chunk]).max()
    size = max(1, min(memory // (32 + 8 * widest), int(typical)))
    num_sources = max(size, num_rows)  # a block has a source for every target
    exchanges: list[FeatureExchange | None] = [None] * len(layers)

    def chunks(nodes: np.ndarray) -> Iterator[np.ndarray]:
        return (nodes[at : at + num_rows] for at in range(0, len(nodes), num_rows))

    def pieces_of(rank: _Rank, nodes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        graph = (rank.indptr, rank.indices, rank.weight)
        return pieces(*graph, nodes, num_rows, size, num_nodes)

    def num_pieces(rank: _Rank, nodes: np.ndarray) -> int:
        degree = rank.indptr[nodes + 1] - rank.indptr[nodes]
        return sum(-(-int(d.sum()) // size) for d in chunks(degree))

    def with_neighbours(nodes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Each rank's own among the nodes of all ranks and their in-neighbours."""
        found = np.zeros((comm.num_local, -(-num_nodes // 32) * 32 + 1), bool)
        for mine, rank, asked in zip(found, ranks, nodes, strict=True):
            mine[asked] = True
            for targets in chunks(asked):
                for _, sources in pieces_of(rank, targets):
                    mine[sources] = True
            mine[num_nodes:] = False  # padding
        bits = np.packbits(found[:, :-1], axis=1).view(np.int32)
        every = np.bitwise_or.reduce(all_gather_rows(comm, list(bits)), axis=0)
        wanted = np.flatnonzero(np.unpackbits(every.view(np.uint8))).astype(np.int32)
        ends = np.searchsorted(wanted, bounds)
        return [wanted[a:b] for a, b in pairwise(ends)]

    def project(params: Any, rank: _Rank, rows: Any, nodes: np.ndarray, layer: int) -> Any:
        output = np.zeros((0, 0), np.float32)
        for chunk in [*chunks(nodes)] or [nodes]:
            x = message(params, local_rows(rank, rows, chunk), layer)
            if not output.size:
                output = empty((rank.last - rank.first, x.shape[1]), memory, scratch)
            output[chunk - rank.first] = np.asarray(x)[: len(chunk)]
        return _on_device([output])

    def local_rows(rank: _Rank, rows: Any, chunk: np.ndarray) -> jax.Array:
        own = rank.last - rank.first
        return take(rows, padded(chunk - rank.first, num_rows, own))

    def layer_output(
        params: Any, rank: _Rank, rows: Any, nodes: np.ndarray, width: int, layer: int
    ) -> Asking:
        reduce, output = layers[layer][1], np.zeros((0, 0), np.float32)
        for targets in [*chunks(nodes)] or [nodes]:
            total = jnp.full((num_rows, width), -jnp.inf if reduce == "max" else 0, jnp.float32)
            degree = np.zeros(num_rows, np.float32)
            for row_starts, sources in pieces_of(rank, targets):
                ids, local = np.unique(sources, return_inverse=True)
                x = yield padded(ids.astype(np.int32), num_sources, num_nodes)
                part = block(row_starts, local.astype(np.int32), num_sources)
                total = combine(total, part, x, reduce)
                degree += np.diff(row_starts)
            ids = padded(targets, num_rows, num_nodes)
            x_self = local_rows(rank, rows, targets)
            h = np.asarray(update(params, x_self, total, degree, ids, layer))
            if not output.size:
                output = empty((rank.last - rank.first, h.shape[1]), memory, scratch)
            output[targets - rank.first] = h[: len(targets)]
        return output

    def infer(params: Any, nodes: Sequence[np.ndarray]) -> list[np.ndarray]:
        wanted = [list(nodes)]  # the nodes whose output each layer computes
        for _ in layers[1:]:
            wanted.insert(0, with_neighbours(wanted[0]))
        rows = [_on_device(f) for f in features]
        for layer, (projects_first, _) in enumerate(layers):
            messages = rows
            if projects_first:
                read = with_neighbours(wanted[layer])
                messages = [
                    project(params, *of_rank, layer)
                    for of_rank in zip(ranks, rows, read, strict=True)
                ]
            exchange = exchanges[layer]
            if exchange is None:
                capacity = -(-num_sources // comm.size)
                exchange = FeatureExchange(comm, offsets, messages, capacity)
                exchanges[layer] = exchange
            elif layer > 0 or projects_first:
                exchange.replace(messages)
            askings = [
                layer_output(params, *of_rank, exchange.width, layer)
                for of_rank in zip(ranks, rows, wanted[layer], strict=True)
            ]
            turns = [num_pieces(*r) for r in zip(ranks, wanted[layer], strict=True)]
            outputs = _together(comm, exchange, askings, turns, num_sources)
            rows = [_on_device([output]) for output in outputs]
        return [
            np.asarray(output)[asked - rank.first]
            for rank, output, asked in zip(ranks, outputs, nodes, strict=True)
        ]

    return infer


def _together(
    comm: Communicator,
    exchange: FeatureExchange,
    askings: Sequence[Asking],
    turns: Sequence[int],
    size: int,
) -> list[np.ndarray]:
    """What each of the local ranks' generators returns. All ranks exchange as often as the
    rank with the most `turns` asks, those that have finished for nothing."""
    nothing = np.full(size, np.iinfo(np.int32).max, np.int32)
    outputs: list[Any] = [None] * len(askings)

    def advance(i: int, rows: Any) -> np.ndarray:
        try:
            return askings[i].send(rows)
        except StopIteration as end:
            if end.value is not None:
                outputs[i] = end.value
            return nothing

    wanted = [advance(i, None) for i in range(len(askings))]
    most = all_gather_rows(comm, [np.array([t], np.int32) for t in turns]).max()
    for _ in range(int(most)):
        x, _ = exchange(comm.own([jnp.asarray(ids) for ids in wanted]))
        wanted = [advance(i, rows) for i, rows in enumerate(comm.local(x))]
    return outputs


def _on_device(features: Any) -> Any:
    return features if isinstance(features, SparseFeatures) else tuple(map(as_device, features))


def _width(features: Any) -> int:
    return (features[0] if isinstance(features, Sequence) else features).shape[1]
