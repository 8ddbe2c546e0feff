"""Neighbour sampling with control variates: `VRGCN`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Block, Control, Graph, MiniBatch, as_device
from jgs.ops import gather, gather_aggregate
from jgs.sampling.base import Adaptive, Fanouts, Feedback
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_graph, refuse_state, require_int
from jgs.sampling.matrix import Matrix, MatrixSampler, Room
from jgs.sampling.matrix.edge_arrays import distinct, places
from jgs.settings import exact_integers

History = tuple[jax.Array, ...]


@dataclass(frozen=True)
class VRGCN(MatrixSampler, Adaptive):
    """VR-GCN (Chen, Zhu and Song, "Stochastic Training of Graph Convolutional Networks with
    Variance Reduction", ICML 2018, section 4.2, the estimator "CV").

    Every node draws few of its neighbours, uniformly without replacement. For each node `u` the
    message `H[u]` that it last sent in training is stored. A layer's mean over all neighbours
    of `v` is estimated by

        mean over v's neighbours u of H[u]  +  mean over the drawn u of (x[u] - H[u])

    with the current messages `x`. The estimate is unbiased, and its variance goes to zero as
    `H` approaches `x`. The first mean is over all neighbours: a layer reads as many stored rows
    as its targets have edges, but computes nothing else for them. After a step the messages of
    all sources of a block are stored (the paper's Algorithm 2, line 7).

    Blocks carry `control`, by which `jgs.ops.aggregate` makes this estimate of every mean, so
    the model's layers must reduce by mean. Messages are stored as dropout leaves them; the
    paper's "CVD" stores their means separately.

    Excluded edges (`Seeds.excluded`) are in neither mean. What is stored are the messages of
    earlier steps, which may have passed along edges that only this batch excludes.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first; 2 in
        the paper.
      widths: the width of the messages of each layer of the model, the input side first:
        `model.message_widths`.

    The state is float32 `[N, M]` for each layer, the input side first; zeros at first.
    """

    sizes: Fanouts = (2, 2)
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = tuple(require_int("a width", width, 1) for width in self.widths)
        object.__setattr__(self, "widths", widths)
        if len(widths) != len(self.sizes):
            raise InputError(
                "VRGCN must know the width of the messages of each layer",
                f"{len(widths)} widths for {len(self.sizes)} sizes",
                "Give widths=model.message_widths.",
            )
        if self.weighted:
            raise InputError(
                "VRGCN must estimate the mean over neighbours", "weighted=True", "Leave it out."
            )

    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        # Built, because the histories of all neighbours are read too.
        return A[:, frontier].built().individual_sample(k)

    def init(self, graph: Graph) -> History:
        check_graph(graph, False)
        rows = (np.zeros((graph.num_nodes, width), np.float32) for width in self.widths)
        return tuple(map(as_device, rows))

    def sample(
        self,
        key: Any,
        graph: Graph,
        state: History,
        seeds: Any,
        capacity: Capacity | None = None,
    ) -> MiniBatch:
        widths = [getattr(history, "shape", ())[1:] for history in jax.tree.leaves(state)]
        if widths != [(width,) for width in self.widths]:
            refuse_state(state)
        batch = super().sample(key, graph, (), seeds, capacity)
        if capacity is None:
            capacity = self.bound(GraphShape.of(graph), batch.seeds.shape[0])
        blocks = []
        for i, (block, history) in enumerate(zip(batch.blocks, state, strict=True)):
            hop = 2 * (len(batch.blocks) - 1 - i)
            looked, columns = capacity.edges[hop], capacity.sources[hop]
            A = Matrix(graph.unweighted(), room=Room(max(looked, 1)), excluded=batch.excluded)
            means = _neighbor_means(A, history, batch.target_nodes(i), columns)
            control = Control(gather(history, batch.source_nodes(i)), means)
            blocks.append(replace(block, control=control))
        return replace(batch, blocks=tuple(blocks))

    def update(self, state: History, batch: MiniBatch, feedback: Feedback) -> History:
        return tuple(
            history.at[batch.source_nodes(i)].set(messages, mode="drop")
            for i, (history, messages) in enumerate(zip(state, feedback.messages, strict=True))
        )


def _neighbor_means(
    A: Matrix, history: jax.Array, targets: jax.Array, columns: int
) -> jax.Array:
    """float32 `[T, M]`: the mean of `history` `[N, M]` over all neighbours of each target in
    `A`, 0 in padding. `targets` int32 `[T]` may have at most `columns` distinct nodes, whose
    edges must fit the room of `A`."""
    num_nodes = A.graph.num_nodes
    with exact_integers():
        frontier = distinct(targets, columns, num_nodes)
        edges = A[:, frontier].built().edges
        assert edges is not None
        all_edges = Block(
            indptr=edges.indptr,
            indices=edges.row,  # rows of all nodes: node ids
            num_targets=jnp.sum(frontier < num_nodes, dtype=jnp.int32),
            num_sources=jnp.int32(num_nodes),
            num_edges=edges.indptr[-1],
            source_capacity=num_nodes,
        )
        means = gather_aggregate(history, all_edges, "mean")
        return gather(means, places(frontier, targets, num_nodes))
