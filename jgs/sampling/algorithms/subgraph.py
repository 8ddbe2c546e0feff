"""`Subgraph`: the seeds and uniformly drawn nodes, with all edges among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.options import INT32, Option
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import require_int
from jgs.sampling.edges.hops import bad_seeds
from jgs.sampling.edges.random import below, node_bits
from jgs.sampling.edges.slots import relabel
from jgs.sampling.seeds import Seeds
from jgs.sampling.subgraphs import SquareSampler


@dataclass(frozen=True)
class Subgraph(SquareSampler):
    """One square block for all layers: the graph that a batch's nodes induce.

    The nodes are the seeds and `extra` draws, with replacement, from all nodes. This is
    GraphSAINT's node sampler (Zeng et al. 2020, section 3.4) with equal probabilities and
    without its normalisation. A node has one row, but each repetition of a seed has its own.
    The draws depend on the key alone, so batches of ranks have the same draws unless their keys
    differ.

    Fields:
      extra: the number of nodes that are drawn in addition to the seeds.
      edges, edge_ids, edge_weights: as in `Neighbors`.
    """

    extra: Annotated[
        int,
        Option(
            "nodes to draw beside the seeds, on each rank",
            name="extra_nodes",
            least=0,
            most=INT32,
        ),
    ] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", require_int("extra", self.extra, 0))
        super().__post_init__()
        if self.extra >= 2**31:
            raise InputError("extra must be below 2**31", self.extra, "Draw fewer nodes.")

    takes_excluded = True

    def init(self, graph: Graph) -> tuple[()]:
        self._check_graph(graph)
        return ()

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        repeated = 0 if distinct else (batch_size - 1) * (shape.max_degree or 0)
        rows = min(batch_size + self.extra, shape.num_nodes + batch_size)
        return Capacity((shape.num_edges + repeated,), (rows,))

    def _batch(
        self, drawn: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        num_nodes, (most_edges,), (most_rows,) = graph.num_nodes, *capacity
        bad = bad_seeds(seeds, num_nodes, graph.num_edges)
        nodes, num_rows = _nodes(drawn, seeds.nodes, num_nodes, self.extra, most_rows)
        fits = ~bad & (num_rows <= most_rows)
        groups = jnp.stack([0, jnp.where(fits, num_rows, 0)])
        need = jnp.zeros((2, 0), jnp.int32), jnp.minimum(num_rows, most_rows + 1)
        of = (nodes, groups, most_edges, need, ~fits, seeds.excluded)
        nodes, block, overflow, needed = self._square(graph, *of)
        made = (seeds.nodes, nodes, (block,), overflow, num_nodes)
        return MiniBatch.drawn(*made, needed=jnp.where(bad, -1, needed), square=True)


def _nodes(
    key_data: jax.Array, seeds: jax.Array, num_nodes: int, extra: int, room: int
) -> tuple[jax.Array, jax.Array]:
    """The seeds, then the drawn nodes that are not among them, each once, int32 `[room]`; and
    the number of rows needed, also if they do not fit."""
    slot = jnp.arange(seeds.shape[0], dtype=jnp.int32)
    num_seeds = jnp.max(slot + 1, initial=0, where=seeds < num_nodes)
    number = jnp.arange(extra, dtype=jnp.int32)
    bits = node_bits(key_data, number, 0)
    drawn = below(bits, jnp.full(extra, num_nodes, jnp.int64)).astype(jnp.int32)
    wanted = jnp.full(extra, num_nodes > 0)
    nodes, num_rows, *_ = relabel(seeds, num_seeds, drawn, wanted, room, num_nodes)
    return nodes, num_rows
