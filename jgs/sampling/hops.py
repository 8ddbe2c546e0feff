"""Blocks made of drawn edges, hop by hop, in plain JAX; all samplers of neighbours share
this."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jgs.graph import Block, Graph, MiniBatch
from jgs.kernels.call import on_cpu, vary_alike
from jgs.sampling.capacity import Capacity
from jgs.sampling.relabel import relabel
from jgs.settings import exact_integers

# (blocks, nodes, overflow, needed): these fields of a `MiniBatch`, but the seeds' block first.
Sample = tuple[list[Block], jax.Array, jax.Array, jax.Array]


class Spec(Protocol):
    """The static part of a sampler's arguments, apart from how it draws: a hashable tuple.

    Fields:
      capacity, edge_ids, edge_weights, relabel_inputs: as in
        `jgs.sampling.algorithms.neighbors.Neighbors` and `jgs.sampling.Sampler.sample`.
      separate: bool; whether S batches have separate arrays instead of common ones.
      first_hop: int; the number of the first hop. Hop h draws with the key `fold(key, h)`.
    """

    capacity: Capacity
    edge_ids: bool
    edge_weights: bool
    relabel_inputs: bool
    separate: bool
    first_hop: int


# draw(graph, key_data, nodes, start, degree, h, room) draws edges with the batch's key
# `key_data` at the `h`-th of the capacity's hops. The rows are those of `nodes` int32 `[T]`.
# They begin at `start` int64 `[T]` among the edges and have `degree` neighbours, 0 in padding.
# It returns four arrays: the drawn edges int64 `[room]`, -1 in a slot that drew none; the
# target of each slot, int32 `[room]`, ascending; the number of slots needed, int64; and the
# weight of each slot's edge, float32 `[room]`, or None for the weights of the graph. In place
# of edges it may return anything that the sampler's `Neighbor` understands.
Draw = Callable[..., tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]]

# neighbor(graph, drawn) returns the node that each slot drew, int32; any number in an empty
# slot.
Neighbor = Callable[[Graph, jax.Array], jax.Array]


# An implementation of a sampler: `(key_data, graph, seeds, spec)` to samples; see
# `sample_hops`.
Implementation = Callable[..., list[Sample]]


def draw_batches(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Any,
    seeds: jax.Array,
    spec: Any,
) -> list[MiniBatch]:
    """The batch of `seeds`, in a list. With `spec.separate` the list has the S batches of seeds
    `[S, B]`. They share no array, so taking them apart copies nothing. `graph` is a `Graph`, or
    a pytree that has its `num_nodes`.

    `kernel` draws them on a CPU and `plain` elsewhere. Both must be functions at the top level
    of a module.
    """
    key_data, graph, seeds = vary_alike(key_data, graph, seeds)
    with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
        samples = _samples(kernel, plain, key_data, graph, seeds, spec)
    rows = [seeds[i] for i in range(seeds.shape[0])] if spec.separate else [seeds]
    return [
        MiniBatch(
            row,
            nodes,
            tuple(hops[::-1]),
            overflow,
            graph.num_nodes,
            needed=needed,
            direct_inputs=not spec.relabel_inputs,
        )
        for row, (hops, nodes, overflow, needed) in zip(rows, samples, strict=True)
    ]


@partial(jax.jit, static_argnums=(0, 1, 5))
def _samples(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Any,
    seeds: jax.Array,
    spec: Any,
) -> list[Sample]:
    implementations = partial(kernel, spec=spec), partial(plain, spec=spec)
    return on_cpu(*implementations, key_data, graph, seeds)


def source_of(graph: Graph, edge: jax.Array) -> jax.Array:
    """The source of each drawn edge: the `Neighbor` of samplers that draw edges."""
    if graph.num_edges == 0:
        return edge.astype(jnp.int32)
    return graph.indices.at[edge].get(mode="clip")


def sample_hops(
    key_data: jax.Array,
    graph: Graph,
    seeds: jax.Array,
    spec: Any,
    draw: Draw,
    neighbor: Neighbor = source_of,
) -> list[Sample]:
    """The sample of `seeds` `[B]` with the key `key_data` `[2]`, in a list. For `[S, B]` and
    `[S, 2]` it is a sample of S batches in common arrays or, with `spec.separate`, S
    samples."""
    one = partial(_sample_batch, graph=graph, spec=spec, draw=draw, neighbor=neighbor)
    if seeds.ndim == 1:
        return [one(key_data, seeds)]
    samples = jax.vmap(one)(key_data, seeds)
    if not spec.separate:
        return [samples]
    return [jax.tree.map(lambda a, i=i: a[i], samples) for i in range(seeds.shape[0])]


def relabels(spec: Any, h: int) -> bool:
    """Whether the neighbours drawn at hop `h` get local ids."""
    return spec.relabel_inputs or h + 1 < len(spec.capacity.edges)


def _sample_batch(
    key_data: jax.Array,
    nodes: jax.Array,
    graph: Graph,
    spec: Any,
    draw: Draw,
    neighbor: Neighbor,
) -> Sample:
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    if num_edges == 0:  # one edge that is in no row, since an empty array cannot be indexed
        graph = _with_an_edge(graph)
    slot = jnp.arange(nodes.shape[0], dtype=jnp.int32)
    bad = jnp.any((nodes < 0) | (nodes > num_nodes))
    num_targets = jnp.max(slot + 1, initial=0, where=nodes < num_nodes)
    overflow, blocks, needed = bad, [], []
    for h in range(len(spec.capacity.edges)):
        block, nodes, need, fits = _hop(
            key_data, graph, nodes, num_targets, spec, h, draw, neighbor, num_edges
        )
        needed.append(jnp.where(overflow, 0, need))
        overflow |= ~fits
        num_targets = block.num_sources
        blocks.append(block)
    blocks = [empty_if(overflow, b, num_edges) for b in blocks]
    need = jnp.where(bad, -1, jnp.stack(needed, axis=1)).astype(jnp.int32)
    return blocks, jnp.where(overflow, num_nodes, nodes), overflow, need


def _with_an_edge(graph: Graph) -> Graph:
    arrays = graph.edge_arrays().items()
    one = {name: jnp.zeros((1, *a.shape[1:]), a.dtype) for name, a in arrays}
    return Graph.from_edge_arrays(graph.indptr, one, schema=graph.schema)


def _hop(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    num_targets: jax.Array,
    spec: Any,
    h: int,
    draw: Draw,
    neighbor: Neighbor,
    num_edges: int,
) -> tuple[Block, jax.Array, jax.Array, jax.Array]:
    """One hop from the first `num_targets` of `nodes`: its block, the sources, the numbers of
    edges and sources that it needed, and whether both fit."""
    num_nodes = graph.num_nodes
    edge_capacity, source_capacity = spec.capacity.edges[h], spec.capacity.sources[h]
    real = (jnp.arange(nodes.shape[0]) < num_targets) & (nodes < num_nodes)
    start = jnp.where(real, graph.indptr.at[nodes].get(mode="clip"), 0)
    degree = jnp.where(real, graph.indptr.at[nodes + 1].get(mode="clip"), 0) - start
    edge, row, total, weight = draw(graph, key_data, nodes, start, degree, h, edge_capacity)
    edge, weight, indptr = close_gaps(edge, weight, row, nodes.shape[0])
    valid = edge >= 0
    neighbors = neighbor(graph, edge)
    fits = total <= edge_capacity
    sources, num_sources, sources_needed = nodes, jnp.int32(num_nodes), jnp.int32(0)
    if relabels(spec, h):
        sources, num_sources, indices = relabel(
            nodes, num_targets, neighbors, valid, source_capacity, num_nodes
        )
        sources_needed = jnp.where(fits, jnp.minimum(num_sources, source_capacity + 1), 0)
        fits &= num_sources <= source_capacity
    else:
        indices = jnp.where(valid, neighbors, num_nodes)
    if weight is None and spec.edge_weights and graph.edge_weight is not None:
        weight = graph.edge_weight.at[edge].get(
            mode="fill", fill_value=0, wrap_negative_indices=False
        )
    block = Block(
        indptr=indptr,
        indices=indices,
        num_targets=num_targets,
        num_sources=num_sources,
        num_edges=indptr[-1],
        edge_id=jnp.where(valid, edge, num_edges) if spec.edge_ids else None,
        edge_weight=weight,
        source_capacity=source_capacity if relabels(spec, h) else num_nodes,
    )
    most = jnp.iinfo(jnp.int32).max
    need = jnp.stack([jnp.minimum(total, most).astype(jnp.int32), sources_needed])
    return block, sources, need, fits


def close_gaps(
    edge: jax.Array, weight: jax.Array | None, row: jax.Array, num_rows: int
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Moves the real edges (`edge` >= 0) together. Also returns the rows' int32 `indptr`."""
    valid = edge >= 0
    count = (
        jnp.zeros(num_rows + 1, jnp.int32).at[row + 1].add(valid.astype(jnp.int32), mode="drop")
    )
    place = jnp.where(valid, jnp.cumsum(valid) - 1, edge.shape[0])
    closed = jnp.full_like(edge, -1).at[place].set(edge, mode="drop")
    if weight is not None:
        weight = jnp.zeros_like(weight).at[place].set(weight, mode="drop")
    return closed, weight, jnp.cumsum(count, dtype=jnp.int32)


def empty_if(overflow: jax.Array, block: Block, num_edges: int) -> Block:
    """`block`, or where the sample has overflowed an empty block of the same capacities, from a
    graph of `num_edges` edges."""
    assert block.source_capacity is not None
    empty = Block(
        indptr=jnp.zeros_like(block.indptr),
        indices=jnp.full_like(block.indices, block.source_capacity),
        num_targets=jnp.zeros_like(block.num_targets),
        num_sources=jnp.zeros_like(block.num_sources),
        num_edges=jnp.zeros_like(block.num_edges),
        edge_id=None if block.edge_id is None else jnp.full_like(block.edge_id, num_edges),
        edge_weight=None if block.edge_weight is None else jnp.zeros_like(block.edge_weight),
        control=jax.tree.map(jnp.zeros_like, block.control),
        source_capacity=block.source_capacity,
    )
    return jax.tree.map(lambda e, b: jnp.where(overflow, e, b), empty, block)
