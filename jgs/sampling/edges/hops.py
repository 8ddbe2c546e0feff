"""Blocks made of drawn edges, hop by hop, in plain JAX; all samplers of neighbours share
this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Block, Graph, MiniBatch
from jgs.kernels.call import FILL, vary_alike, where_it_is
from jgs.sampling.edges.eligible import bad_excluded, eligible
from jgs.sampling.edges.relabel import relabel
from jgs.sampling.edges.slots import offsets_of
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

# (blocks, nodes, overflow, needed, cutoff): as in a `MiniBatch`, but the seeds' block first.
Sample = tuple[list[Block], jax.Array, jax.Array, jax.Array, jax.Array | None]


# draw(graph, key_data, rows, h, room) draws edges with the batch's key `key_data` at the `h`-th
# of the capacity's hops, from the `Eligible` rows, one for each target. Where the hop has
# `relations`, each target has a row for each of them, one after the other. Rows of padding have
# no edges. It returns four arrays: the drawn edges int64 `[room]`, and -1 in the slots after
# them; the row of each, int32 `[room]`, ascending; the number of slots needed, int64; and the
# weight of each edge, float32 `[room]`, 0 after them, or None for those of the graph. In place
# of edges it may return anything that the sampler's `Neighbor` understands.
Draw = Callable[..., tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]]

# neighbor(graph, drawn) returns the node that each slot drew, int32; any number in an empty
# slot.
Neighbor = Callable[[Graph, jax.Array], jax.Array]

# implementation(key_data, graph, seeds, spec) returns samples as `sample_hops` does.
Implementation = Callable[..., list[Sample]]


def draw_batches(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Any,
    seeds: Seeds,
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
    rows = [*seeds.nodes] if spec.separate else [seeds.nodes]
    return [
        MiniBatch.drawn(
            row,
            nodes,
            tuple(hops[::-1]),
            overflow,
            graph.num_nodes,
            needed=needed,
            cutoff=cutoff,
            direct_inputs=not spec.relabel_inputs,
        )
        for row, (hops, nodes, overflow, needed, cutoff) in zip(rows, samples, strict=True)
    ]


@partial(jax.jit, static_argnums=(0, 1, 5))
def _samples(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Any,
    seeds: Seeds,
    spec: Any,
) -> list[Sample]:
    implementations = partial(kernel, spec=spec), partial(plain, spec=spec)
    return where_it_is(*implementations, key_data, graph, seeds)


def source_at(graph: Graph, edge: jax.Array) -> jax.Array:
    """The source of each drawn edge: the `Neighbor` of samplers that draw edges."""
    return graph.indices.at[edge].get(mode="clip")


def sample_hops(
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    spec: Any,
    draw: Draw,
    neighbor: Neighbor = source_at,
    relations: Sequence[tuple[int, ...] | None] = (),
) -> list[Sample]:
    """The sample of `seeds` `[B]` with the key `key_data` `[2]`, in a list. For `[S, B]` and
    `[S, 2]` it is a sample of S batches in common arrays or, with `spec.separate`, S samples.

    `spec` is the static part of a sampler's arguments, a hashable tuple. Its `capacity`,
    `edge_ids`, `edge_weights`, `relabel_inputs` and `window` are as in `Neighbors`. Hops are
    counted from `first_hop` on: hop `h` draws with the key `fold(key, h)`.

    `relations` has for each hop the numbers of the relations that are drawn by themselves,
    ascending; None for a hop that draws from all edges. With `spec.edge_types` the blocks of
    the former have `edge_type`.
    """
    one = partial(
        _sample_batch,
        graph=graph,
        spec=spec,
        draw=draw,
        neighbor=neighbor,
        relations=relations or (None,) * len(spec.capacity.edges),
    )
    if seeds.nodes.ndim == 1:
        return [one(key_data, seeds)]
    samples = jax.vmap(one)(key_data, seeds)
    if not spec.separate:
        return [samples]
    return [jax.tree.map(lambda a, i=i: a[i], samples) for i in range(seeds.nodes.shape[0])]


def relabels(spec: Any, h: int) -> bool:
    """Whether the neighbours drawn at hop `h` get local ids."""
    return spec.relabel_inputs or h + 1 < len(spec.capacity.edges)


def _sample_batch(
    key_data: jax.Array,
    seeds: Seeds,
    graph: Graph,
    spec: Any,
    draw: Draw,
    neighbor: Neighbor,
    relations: Sequence[tuple[int, ...] | None],
) -> Sample:
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    bad = bad_seeds(seeds, num_nodes, num_edges)
    nodes, cutoff = seeds.nodes, seeds.time
    if num_edges == 0:  # one edge that is in no row, since an empty array cannot be indexed
        arrays = graph.edge_arrays().items()
        one_edge = {name: jnp.zeros((1, *a.shape[1:]), a.dtype) for name, a in arrays}
        graph = Graph.from_edge_arrays(graph.indptr, one_edge, schema=graph.schema)
        seeds = seeds.replace(excluded=None)
    slot = jnp.arange(nodes.shape[0], dtype=jnp.int32)
    if cutoff is not None:
        cutoff = jnp.where(nodes < num_nodes, cutoff, 0)
    num_targets = jnp.max(slot + 1, initial=0, where=nodes < num_nodes)
    overflow, blocks, needed = bad, [], []
    for h in range(len(spec.capacity.edges)):
        frontier = (nodes, cutoff, num_targets)
        block, nodes, cutoff, need, fits = _hop(
            key_data, graph, frontier, seeds, spec, h, draw, neighbor, relations[h], num_edges
        )
        needed.append(jnp.where(overflow, 0, need))
        overflow |= ~fits
        num_targets = block.num_sources
        blocks.append(block)
    blocks = [empty_if(overflow, b, num_edges) for b in blocks]
    need = jnp.where(bad, -1, jnp.stack(needed, axis=1)).astype(jnp.int32)
    cutoff = None if cutoff is None else jnp.where(overflow, 0, cutoff)
    return blocks, jnp.where(overflow, num_nodes, nodes), overflow, need, cutoff


def bad_seeds(seeds: Seeds, num_nodes: int, num_edges: int) -> jax.Array:
    """bool `[]`: whether a seed is not a node, or the excluded edges do not ascend."""
    bad = jnp.any((seeds.nodes < 0) | (seeds.nodes > num_nodes))
    return bad if seeds.excluded is None else bad | bad_excluded(seeds.excluded, num_edges)


def _hop(
    key_data: jax.Array,
    graph: Graph,
    frontier: tuple[jax.Array, jax.Array | None, jax.Array],
    seeds: Seeds,
    spec: Any,
    h: int,
    draw: Draw,
    neighbor: Neighbor,
    relations: tuple[int, ...] | None,
    num_edges: int,
) -> tuple[Block, jax.Array, jax.Array | None, jax.Array, jax.Array]:
    """One hop from the frontier: nodes, their cutoffs, and how many of them are real. Returns
    the block, the sources and their cutoffs, the edges and sources needed, and whether both
    fit."""
    nodes, cutoff, num_targets = frontier
    num_nodes = graph.num_nodes
    edge_capacity, source_capacity = spec.capacity.edges[h], spec.capacity.sources[h]
    real = (jnp.arange(nodes.shape[0]) < num_targets) & (nodes < num_nodes)
    each = 1 if relations is None else len(relations)  # rows of a target
    relation = None
    if relations is not None:
        relation = jnp.tile(jnp.array(relations, jnp.int32), nodes.shape[0])
    rows = eligible(
        graph,
        jnp.repeat(nodes, each),
        jnp.repeat(real, each),
        None if cutoff is None else jnp.repeat(cutoff, each),
        seeds.excluded,
        spec.window,
        relation,
    )
    edge, row, total, weight = draw(graph, key_data, rows, h, edge_capacity)
    kind = None
    if relation is not None:
        row = jnp.minimum(row, relation.shape[0])
        if spec.edge_types:
            kind = relation.astype(jnp.int16).at[row].get(mode="fill", fill_value=0)
        row = row // each
    valid = edge >= 0
    indptr = offsets_of(row, valid, nodes.shape[0])
    kind = None if kind is None else jnp.where(valid, kind, 0)
    neighbors = neighbor(graph, edge)
    fits = total <= edge_capacity
    sources, num_sources, sources_needed = nodes, jnp.int32(num_nodes), jnp.int32(0)
    if relabels(spec, h):
        of_edge = None if cutoff is None else cutoff.at[row].get(mode="clip")
        sources, num_sources, indices, cutoff = relabel(
            nodes, num_targets, neighbors, valid, source_capacity, num_nodes, cutoff, of_edge
        )
        sources_needed = jnp.where(fits, jnp.minimum(num_sources, source_capacity + 1), 0)
        fits &= num_sources <= source_capacity
    else:
        indices = jnp.where(valid, neighbors, num_nodes)
    if weight is None and spec.edge_weights and graph.edge_weight is not None:
        weight = graph.edge_weight.at[edge].get(**FILL)
    block = Block(
        indptr=indptr,
        indices=indices,
        num_targets=num_targets,
        num_sources=num_sources,
        num_edges=indptr[-1],
        edge_id=jnp.where(valid, edge, num_edges) if spec.edge_ids else None,
        edge_weight=weight,
        source_capacity=source_capacity if relabels(spec, h) else num_nodes,
        edge_type=kind,
    )
    most = jnp.iinfo(jnp.int32).max
    need = jnp.stack([jnp.minimum(total, most).astype(jnp.int32), sources_needed])
    return block, sources, cutoff, need, fits


def empty_if(overflow: jax.Array, block: Block, num_edges: int) -> Block:
    """`block`, or where the sample has overflowed an empty block of the same capacities, from a
    graph of `num_edges` edges."""
    assert block.source_capacity is not None
    empty = replace(
        jax.tree.map(jnp.zeros_like, block),
        indices=jnp.full_like(block.indices, block.source_capacity),
        edge_id=None if block.edge_id is None else jnp.full_like(block.edge_id, num_edges),
    )
    return jax.tree.map(partial(jnp.where, overflow), empty, block)
