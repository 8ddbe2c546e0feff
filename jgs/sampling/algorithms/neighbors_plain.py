"""What `sample_neighbors` means, in plain JAX: one hop after the other."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jgs.graph import Block, Graph
from jgs.sampling import draw
from jgs.sampling.capacity import Capacity
from jgs.sampling.checks import refuse_outside
from jgs.sampling.random import fold
from jgs.sampling.relabel import relabel


class Spec(NamedTuple):
    """What is static about a sample; one compiled program for each."""

    fanouts: tuple[int, ...]
    capacity: Capacity
    replace: bool
    weighted: bool
    edge_ids: bool
    edge_weights: bool
    relabel_inputs: bool
    apart: bool = False  # S batches in arrays of their own, not in common ones
    first_hop: int = 0  # the number of the first of `fanouts`: hop h draws by fold(key, h)

    def relabels(self, h: int) -> bool:
        """Whether the neighbours of hop `h` get local ids."""
        return self.relabel_inputs or h + 1 < len(self.fanouts)


Sample = tuple[list[Block], jax.Array, jax.Array]  # blocks seed-first, nodes, overflow


def sample_plain(words: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec) -> list[Sample]:
    """The sample of `seeds` `[B]` by the key `words` `[2]`; of `[S, B]` by `[S, 2]` that of S
    batches in common arrays or, with `spec.apart`, S samples."""
    seeds = refuse_outside(seeds, graph.num_nodes)
    one = partial(_sample_batch, graph=graph, spec=spec)
    if seeds.ndim == 1:
        return [one(words, seeds)]
    samples = jax.vmap(one)(words, seeds)
    if not spec.apart:
        return [samples]
    return [jax.tree.map(lambda a, i=i: a[i], samples) for i in range(seeds.shape[0])]


def _sample_batch(words: jax.Array, nodes: jax.Array, graph: Graph, spec: Spec) -> Sample:
    num_nodes = graph.num_nodes
    if graph.num_edges == 0:  # one edge that no row has, since nothing can index no edges
        edges = graph.edge_arrays().items()
        one = {name: jnp.zeros((1, *a.shape[1:]), a.dtype) for name, a in edges}
        graph = Graph.from_edge_arrays(graph.indptr, one)
    slot = jnp.arange(nodes.shape[0], dtype=jnp.int32)
    num_targets = jnp.max(slot + 1, initial=0, where=nodes < num_nodes)
    overflow = jnp.zeros((), bool)
    blocks = []
    for h in range(len(spec.fanouts)):
        key = fold(words, spec.first_hop + h)
        block, nodes, exceeded = _hop_plain(key, graph, nodes, num_targets, spec, h)
        overflow |= exceeded
        num_targets = block.num_sources
        blocks.append(block)
    blocks = [empty_if(overflow, block, spec, h, num_nodes) for h, block in enumerate(blocks)]
    return blocks, jnp.where(overflow, num_nodes, nodes), overflow


def _hop_plain(
    words: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    num_targets: jax.Array,
    spec: Spec,
    h: int,
) -> tuple[Block, jax.Array, jax.Array]:
    """One hop from the first `num_targets` of `nodes`: its block, the sources, overflow."""
    num_nodes, k = graph.num_nodes, spec.fanouts[h]
    edge_capacity, source_capacity = spec.capacity.edges[h], spec.capacity.sources[h]
    real = (jnp.arange(nodes.shape[0]) < num_targets) & (nodes < num_nodes)
    start = jnp.where(real, graph.indptr.at[nodes].get(mode="clip"), 0)
    degree = jnp.where(real, graph.indptr.at[nodes + 1].get(mode="clip"), 0) - start

    # A row draws `bound` neighbours, by weight perhaps fewer.
    if k == -1:
        bound = degree
    else:
        bound = jnp.where(degree > 0, k, 0) if spec.replace else jnp.minimum(degree, k)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(edge_capacity, dtype=jnp.int64)
    row = jnp.clip(jnp.searchsorted(ends, slot, side="right"), 0, max(nodes.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    position, drawn = _positions(words, graph, nodes, start, degree, row, nth, spec, k)
    edge = jnp.where(drawn & (slot < total), start[row] + position, -1)

    edge, indptr = _close_gaps(edge, row, nodes.shape[0])
    valid = edge >= 0
    neighbors = (
        graph.indices.at[edge].get(mode="clip") if graph.num_edges else edge.astype(jnp.int32)
    )
    exceeded = total > edge_capacity
    if spec.relabels(h):
        sources, num_sources, indices = relabel(
            nodes, num_targets, neighbors, valid, source_capacity, num_nodes
        )
        exceeded |= num_sources > source_capacity
    else:
        sources, num_sources = nodes, jnp.int32(num_nodes)
        indices = jnp.where(valid, neighbors, num_nodes)
    weight = None
    if spec.edge_weights and graph.edge_weight is not None:
        weight = graph.edge_weight.at[edge].get(
            mode="fill", fill_value=0, wrap_negative_indices=False
        )
    block = Block(
        indptr=indptr,
        indices=indices,
        num_targets=num_targets,
        num_sources=num_sources,
        num_edges=indptr[-1],
        edge_id=edge if spec.edge_ids else None,
        edge_weight=weight,
    )
    return block, sources, exceeded


def _positions(
    words: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    row: jax.Array,
    nth: jax.Array,
    spec: Spec,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """Of edge slots that are the `nth` of target `row`: position in the row, drawn or not."""
    everything, prefix = jnp.ones(row.shape, bool), graph.edge_weight_prefix
    if spec.weighted and prefix is not None:
        before, through = (draw.row_weight(prefix, start[row], nth + i) for i in (0, 1))
        everything = through > before
    if k == -1 or (k >= graph.num_edges and not spec.replace):  # no row has more than k
        return nth, everything
    if spec.weighted and prefix is not None:
        by_weight = draw.weighted_repeated if spec.replace else draw.weighted_distinct
        position, drawn = by_weight(words, nodes, start, degree, prefix, k)
    else:
        uniform = draw.repeated if spec.replace else draw.distinct
        position = uniform(words, nodes, degree, k)
        drawn = jnp.ones_like(position, bool)
    at = (row, jnp.clip(nth, 0, k - 1))
    if spec.replace:
        return position[at], drawn[at]
    take_all = degree[row] <= k
    return jnp.where(take_all, nth, position[at]), jnp.where(take_all, everything, drawn[at])


def _close_gaps(edge: jax.Array, row: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Move the real edges (`edge` >= 0) together; also returns the rows' int32 `indptr`."""
    valid = edge >= 0
    count = (
        jnp.zeros(num_rows + 1, jnp.int32).at[row + 1].add(valid.astype(jnp.int32), mode="drop")
    )
    place = jnp.where(valid, jnp.cumsum(valid) - 1, edge.shape[0])
    closed = jnp.full_like(edge, -1).at[place].set(edge, mode="drop")
    return closed, jnp.cumsum(count, dtype=jnp.int32)


def empty_if(overflow: jax.Array, block: Block, spec: Spec, h: int, num_nodes: int) -> Block:
    """`block`, of hop `h`, or the empty one that an overflowed sample has in its place."""
    padding = spec.capacity.sources[h] if spec.relabels(h) else num_nodes
    empty = Block(
        indptr=jnp.zeros_like(block.indptr),
        indices=jnp.full_like(block.indices, padding),
        num_targets=jnp.zeros_like(block.num_targets),
        num_sources=jnp.zeros_like(block.num_sources),
        num_edges=jnp.zeros_like(block.num_edges),
        edge_id=None if block.edge_id is None else jnp.full_like(block.edge_id, -1),
        edge_weight=None if block.edge_weight is None else jnp.zeros_like(block.edge_weight),
    )
    return jax.tree.map(lambda e, b: jnp.where(overflow, e, b), empty, block)
