"""`Subgraph`: the seeds and uniformly drawn nodes, with all edges among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.kernels.call import vary_alike
from jgs.options import INT32, Option
from jgs.sampling.base import Sampler
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_call, check_graph, require_int
from jgs.sampling.edges.columns import check_edges, with_columns
from jgs.sampling.edges.hops import bad_seeds
from jgs.sampling.edges.induced import square_block
from jgs.sampling.edges.random import as_key_data, below, node_bits
from jgs.sampling.edges.relabel import relabel
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers


@dataclass(frozen=True)
class Subgraph(Sampler):
    """One square block for all layers: the graph that a batch's nodes induce.

    The nodes are the seeds and `extra` draws, with replacement, from all nodes. This is
    GraphSAINT's node sampler (Zeng et al. 2020, section 3.4) with equal probabilities and
    without its normalisation. A node has one row, but each repetition of a seed has its own.
    The draws depend on the key alone, so batches of ranks have the same draws unless their keys
    differ.

    Fields:
      extra: the number of nodes that are drawn in addition to the seeds.
      edges: as in `Neighbors`.
      edge_ids, edge_weights: whether the block carries `edge_id` and `edge_weight`.

    A capacity has one hop: the block's edges and the batch's nodes.
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
    edge_ids: bool = field(default=False, repr=False)
    edge_weights: bool = field(default=False, repr=False)
    edges: tuple[str, ...] = field(default=(), repr=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", require_int("extra", self.extra, 0))
        check_edges(self)
        if self.extra >= 2**31:
            raise InputError("extra must be below 2**31", self.extra, "Draw fewer nodes.")

    takes_excluded = True

    def init(self, graph: Graph) -> tuple[()]:
        check_graph(graph, False, self.edge_weights)
        return ()

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        repeated = 0 if distinct else (batch_size - 1) * (shape.max_degree or 0)
        rows = min(batch_size + self.extra, shape.num_nodes + batch_size)
        return Capacity((shape.num_edges + repeated,), (rows,))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        self.init(graph)
        seeds, capacity = check_call(self, graph, seeds, capacity, 1)
        check_one_batch(seeds)
        key_data, graph, seeds = vary_alike(as_key_data(key), graph, seeds)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            batch = _sample(key_data, graph, seeds, self, capacity)
        return with_columns(batch, graph, self)


def check_one_batch(seeds: Seeds) -> None:
    """Raises `InputError` unless `seeds` are those of one batch, `[B]`."""
    remedy = "Draw several under jax.vmap, with a key each."
    require_array("the seeds of one subgraph", seeds.nodes, "[B]", remedy)


@partial(jax.jit, static_argnums=(3, 4))
def _sample(
    key_data: jax.Array, graph: Graph, seeds: Seeds, sampler: Subgraph, capacity: Capacity
) -> MiniBatch:
    num_nodes, (most_edges,), (most_rows,) = graph.num_nodes, *capacity
    bad = bad_seeds(seeds, num_nodes, graph.num_edges)
    nodes, num_rows = _nodes(key_data, seeds.nodes, num_nodes, sampler.extra, most_rows)
    fits = ~bad & (num_rows <= most_rows)
    groups = jnp.stack([0, jnp.where(fits, num_rows, 0)])
    of = (nodes, groups, most_edges, None, seeds.excluded)
    block, edges_needed = square_block(sampler, graph, *of)
    counts = [jnp.minimum(edges_needed, 2**31 - 1), jnp.minimum(num_rows, most_rows + 1)]
    needed = jnp.where(bad, -1, jnp.stack(counts)[:, None]).astype(jnp.int32)
    overflow = ~fits | (edges_needed > most_edges)
    nodes = jnp.where(overflow, num_nodes, nodes)
    made = (seeds.nodes, nodes, (block,), overflow, num_nodes)
    return MiniBatch.drawn(*made, needed=needed, square=True)


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
