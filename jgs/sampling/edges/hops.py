"""Blocks made of drawn edges, hop by hop: in plain JAX (`sample_hops`), and by a kernel that
samples all hops in one call (`call_hops`). All samplers of neighbours share this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jgs import kernels
from jgs.graph import Block, Graph, MiniBatch
from jgs.kernels.call import FILL, call, vary_alike, where_it_is
from jgs.sampling.capacity import Capacity
from jgs.sampling.edges.eligible import Eligible, bad_excluded, eligible
from jgs.sampling.edges.slots import offsets_of, relabel, relabel_edges
from jgs.sampling.fanouts import relation_draws, relations_of
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

T = TypeVar("T")
# (blocks, nodes, overflow, needed, cutoff): as in a `MiniBatch`, but the seeds' block first.
Sample = tuple[list[Block], jax.Array, jax.Array, jax.Array, jax.Array | None]


class HopDraw(NamedTuple):
    """The static arguments of a draw. Each value has its own compiled program.

    Fields:
      sampler: the `jgs.sampling.hopwise.Hops`.
      capacity: the room of the hops that are drawn.
      fanouts: of each hop, the number of edges of a row, -1 for all; or the number and the
        fanout of each relation that is drawn by itself, ascending.
      edge_ids, edge_weights, relabel_inputs: as in `Neighbors`.
      separate: whether S batches have arrays of their own.
      first_hop: the number of the first hop, which draws with the key `fold(key, first_hop)`.
      facts: what else of the graph decides how the sampler draws; hashable.
    """

    sampler: Any
    capacity: Capacity
    fanouts: tuple[Any, ...]
    edge_ids: bool
    edge_weights: bool
    relabel_inputs: bool
    separate: bool = False
    first_hop: int = 0
    facts: Any = ()

    @property
    def window(self) -> int | None:
        return self.sampler.window

    def relabels(self, h: int) -> bool:
        """Whether the neighbours drawn at hop `h` get local ids."""
        return self.relabel_inputs or h + 1 < len(self.capacity.edges)

    def has_types(self, h: int) -> bool:
        """Whether the block of hop `h` has `edge_type` because it is drawn by relation."""
        return "type" in self.sampler.edges and relations_of(self.fanouts[h]) is not None


class Hop(NamedTuple):
    """What a sampler draws the rows of one hop with: its `spec`, the batch's key data, what the
    sampler `reads` beside the graph, and which of the capacity's hops it is."""

    spec: HopDraw
    key_data: jax.Array
    graph: Graph
    reads: Any
    h: int

    @property
    def number(self) -> int:
        return self.spec.first_hop + self.h

    @property
    def fanout(self) -> Any:
        return self.spec.fanouts[self.h]

    @property
    def room(self) -> int:
        return self.spec.capacity.edges[self.h]


# draw(hop, rows) draws edges from the `Eligible` rows, one for each target. Where the hop is by
# relation, each target has a row for each of them, one after the other. Rows of padding have no
# edges. It returns the drawn edges int64 `[room]`, and -1 in the slots after them; the row of
# each, int32 `[room]`, ascending; the number of slots needed, int64; and the weight of each
# edge, float32 `[room]`, 0 after them, or None for those of the graph. In place of edges it may
# return anything that the sampler's `Neighbor` understands.
DrawnEdges = tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array | None]
Draw = Callable[[Hop, Eligible], DrawnEdges]

# neighbor(graph, drawn) returns the node that each slot drew, int32; any number in an empty
# slot.
Neighbor = Callable[[Graph, jax.Array], jax.Array]


def draw_batches(
    key_data: jax.Array, graph: Graph, reads: Any, seeds: Seeds, spec: HopDraw
) -> list[MiniBatch]:
    """The batch of `seeds`, in a list. With `spec.separate` the list has the S batches of seeds
    `[S, B]`. They share no array, so taking them apart copies nothing. `reads` is what the
    sampler's forms read beside the graph."""
    key_data, graph, reads, seeds = vary_alike(key_data, graph, reads, seeds)
    with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
        samples = _samples(key_data, graph, reads, seeds, spec)
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


@partial(jax.jit, static_argnums=4)
def _samples(
    key_data: jax.Array, graph: Graph, reads: Any, seeds: Seeds, spec: HopDraw
) -> list[Sample]:
    forms = (partial(form, spec=spec) for form in spec.sampler.forms)
    return where_it_is(*forms, key_data, graph, reads, seeds)


def source_at(graph: Graph, edge: jax.Array) -> jax.Array:
    """The source of each drawn edge: the `Neighbor` of samplers that draw edges."""
    return graph.indices.at[edge].get(mode="clip", wrap_negative_indices=False)


def sample_hops(
    key_data: jax.Array,
    graph: Graph,
    reads: Any,
    seeds: Seeds,
    spec: HopDraw,
    draw: Draw,
    neighbor: Neighbor = source_at,
) -> list[Sample]:
    """The sample of `seeds` `[B]` with the key `key_data` `[2]`, in a list. For `[S, B]` and
    `[S, 2]` it is a sample of S batches in common arrays or, with `spec.separate`, S samples.
    The block of a hop by relation has `edge_type` if the sampler was asked for it."""

    def one(key_data: jax.Array, seeds: Seeds) -> Sample:
        first = Hop(spec, key_data, graph, reads, 0)
        return _sample_batch(first, seeds, draw, neighbor)

    if seeds.nodes.ndim == 1:
        return [one(key_data, seeds)]
    samples = jax.vmap(one)(key_data, seeds)
    if not spec.separate:
        return [samples]
    return [jax.tree.map(lambda a, i=i: a[i], samples) for i in range(seeds.nodes.shape[0])]


def _sample_batch(first: Hop, seeds: Seeds, draw: Draw, neighbor: Neighbor) -> Sample:
    spec, graph = first.spec, first.graph
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
        hop, frontier = first._replace(graph=graph, h=h), (nodes, cutoff, num_targets)
        block, nodes, cutoff, need, fits = _hop(hop, frontier, seeds, draw, neighbor, num_edges)
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
    hop: Hop,
    frontier: tuple[jax.Array, jax.Array | None, jax.Array],
    seeds: Seeds,
    draw: Draw,
    neighbor: Neighbor,
    num_edges: int,
) -> tuple[Block, jax.Array, jax.Array | None, jax.Array, jax.Array]:
    """One hop from the frontier: nodes, their cutoffs, and how many of them are real. Returns
    the block, the sources and their cutoffs, the edges and sources needed, and whether both
    fit."""
    (nodes, cutoff, num_targets), (spec, graph, h) = frontier, (hop.spec, hop.graph, hop.h)
    num_nodes, source_capacity = graph.num_nodes, spec.capacity.sources[h]
    real = (jnp.arange(nodes.shape[0]) < num_targets) & (nodes < num_nodes)
    relations = relations_of(hop.fanout)
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
    edge, row, total, weight, ends = draw(hop, rows)
    kind = None
    if relation is not None:
        row = jnp.minimum(row, relation.shape[0])
        if spec.has_types(h):
            kind = relation.astype(jnp.int16).at[row].get(mode="fill", fill_value=0)
        row = row // each
    valid = edge >= 0
    if ends is None:
        indptr = offsets_of(row, valid, nodes.shape[0])
    else:
        ends = jnp.minimum(ends[each - 1 :: each], hop.room).astype(jnp.int32)
        indptr = jnp.concatenate([jnp.zeros(1, jnp.int32), ends])
    kind = None if kind is None else jnp.where(valid, kind, 0)
    neighbors = jnp.where(valid, neighbor(graph, edge), num_nodes)
    fits = total <= hop.room
    room = source_capacity if spec.relabels(h) else None
    of_edge = None if cutoff is None else cutoff.at[row].get(mode="clip")
    block, sources, needed, cutoff = block_of(
        nodes, num_targets, indptr, neighbors, room, num_nodes, cutoff, of_edge
    )
    sources_needed = jnp.where(fits, needed, 0)
    fits &= needed <= source_capacity
    if weight is None and spec.edge_weights and graph.edge_weight is not None:
        weight = graph.edge_weight.at[edge].get(**FILL)
    edge_id = jnp.where(valid, edge, num_edges) if spec.edge_ids else None
    block = replace(block, edge_id=edge_id, edge_weight=weight, edge_type=kind)
    most = jnp.iinfo(jnp.int32).max
    need = jnp.stack([jnp.minimum(total, most).astype(jnp.int32), sources_needed])
    return block, sources, cutoff, need, fits


def block_of(
    targets: jax.Array,
    num_targets: jax.Array,
    indptr: jax.Array,
    neighbors: jax.Array,
    room: int | None,
    num_nodes: int,
    cutoff: jax.Array | None,
    of_edge: jax.Array | None,
) -> tuple[Block, jax.Array, jax.Array, jax.Array | None]:
    """The block of `targets` int32 `[T]` that drew `neighbors` int32 `[E]`, those of each in
    the stretches of `indptr`; its sources, and how many these are, at most `room + 1`; and
    their cutoffs, where the targets have some (int64 `[T]`), those `of_edge` int64 `[E]`. Where
    `room` is None the neighbours get no local ids: the sources are the targets, and their
    number is 0."""
    num_edges = indptr[-1]
    sources, needed, indices = targets, jnp.int32(0), neighbors
    if room is not None and cutoff is None:
        found = (targets, num_targets, neighbors, num_edges, room, num_nodes)
        sources, needed, indices = relabel_edges(*found)
    elif room is not None:
        real = jnp.arange(neighbors.shape[0]) < num_edges
        known = (targets, num_targets, neighbors, real, room, num_nodes, cutoff, of_edge)
        sources, needed, indices, cutoff = relabel(*known)
        needed = jnp.minimum(needed, room + 1)
    block = Block(
        indptr=indptr,
        indices=indices,
        num_targets=num_targets,
        num_sources=jnp.int32(num_nodes) if room is None else needed,
        num_edges=num_edges,
        source_capacity=num_nodes if room is None else room,
    )
    return block, sources, needed, cutoff


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


def call_hops(
    target: str,
    key_data: jax.Array,
    graph: Graph,
    reads: tuple[Any, ...],
    seeds: Seeds,
    spec: HopDraw,
    runs: tuple[Any, ...] = (),
    **attributes: Any,
) -> list[Sample]:
    """The samples of the `seeds`, by the FFI `target`. It takes the key and the graph's edges,
    the arrays `reads`, the edges' times and types, the arrays `runs`, and the seeds; and
    `attributes` besides those of every sampler. `jax.vmap` makes it one call."""
    capacity, num_nodes = spec.capacity, graph.num_nodes
    hops = range(len(capacity.edges))
    typed = any(relations_of(k) is not None for k in spec.fanouts)
    times = longs_or_empty(None if seeds.time is None else graph.edge_time)
    types = graph.edge_type if typed else jnp.zeros(0, jnp.int16)
    attributes |= {
        "draws": np.array([0 if relations_of(k) else k for k in spec.fanouts], np.int64),
        "relation_draws": relation_draws(spec.fanouts, graph.schema if typed else None),
        "window": np.int64(-1 if spec.window is None else spec.window),
        "edge_capacity": np.array(capacity.edges, np.int64),
        "source_capacity": np.array(capacity.sources, np.int64),
        "relabel_inputs": np.bool_(spec.relabel_inputs),
        "first_hop": np.int64(spec.first_hop),
    }

    def draw(key_data: jax.Array, arrays: Any, of: Seeds) -> list[Sample]:
        batches = of.nodes.shape[: -2 if spec.separate else -1]

        def result(dtype, *shape):
            return jax.ShapeDtypeStruct((*batches, *shape), dtype)

        known = (of.nodes.shape[-1], *capacity.sources)
        blocks = [
            Block(
                indptr=result(jnp.int32, known[h] + 1),
                indices=result(jnp.int32, edges),
                num_targets=result(jnp.int32),
                num_sources=result(jnp.int32),
                num_edges=result(jnp.int32),
                edge_id=result(jnp.int64, edges if spec.edge_ids else 0),
                edge_weight=result(jnp.float32, edges if spec.edge_weights else 0),
                source_capacity=known[h + 1] if spec.relabels(h) else num_nodes,
                edge_type=result(jnp.int16, edges if spec.has_types(h) else 0),
            )
            for h, edges in enumerate(capacity.edges)
        ]
        room = known[-1 if spec.relabel_inputs else -2]
        cutoff = result(jnp.int64, 0 if of.time is None else room)
        counts = result(jnp.bool), result(jnp.int32, 2, len(blocks))
        sample = (blocks, result(jnp.int32, room), *counts, cutoff)
        number = of.nodes.shape[-2] if spec.separate else 1
        results, form = jax.tree.flatten([sample] * number)
        limits = longs_or_empty(of.time), longs_or_empty(of.excluded)
        operands = (key_data, *arrays, of.nodes, *limits)
        found = call(target, results, operands, kernels.NUM_THREADS, **attributes)
        return [
            ([wanted(blocks[h], h) for h in hops], *rest, None if of.time is None else cutoff)
            for blocks, *rest, cutoff in jax.tree.unflatten(form, found)
        ]

    def wanted(block: Block, h: int) -> Block:
        return replace(
            block,
            edge_id=block.edge_id if spec.edge_ids else None,
            edge_weight=block.edge_weight if spec.edge_weights else None,
            edge_type=block.edge_type if spec.has_types(h) else None,
        )

    arrays = (graph.indptr, graph.indices, *reads, times, types, *runs)
    return call_once(draw, key_data, arrays, seeds)


def longs_or_empty(array: jax.Array | None) -> jax.Array:
    """`array`, or for None an empty int64 array, which means none to a kernel."""
    return jnp.zeros(0, jnp.int64) if array is None else array


def call_once(
    draw: Callable[[jax.Array, Any, Any], T], key_data: jax.Array, shared: Any, seeds: Any
) -> T:
    """`draw(key_data, shared, seeds)`, which draws for any number of batches: keys `[..., W]`
    and seeds `[..., B]`. `jax.vmap` turns it into one call for several batches, which have
    the pytree `shared` in common."""
    of_batch, form = jax.tree.flatten((key_data, seeds))
    arrays, of_shared = jax.tree.flatten(shared)
    own = len(of_batch)  # arrays that differ from batch to batch

    def one_call(*arrays):
        key_data, seeds = jax.tree.unflatten(form, arrays[:own])
        # Set here too: under a transformation this is traced outside the caller's x64 context.
        with exact_integers():
            return draw(key_data, jax.tree.unflatten(of_shared, arrays[own:]), seeds)

    once = custom_vmap(one_call)

    @once.def_vmap
    def vmapped(axis_size, batched, *arrays):
        if any(batched[own:]):  # each batch has a graph of its own: one call after the other
            axes = [0 if b else None for b in batched]
            samples = jax.vmap(one_call, axes)(*arrays)
        else:
            of_batches = [
                x if b else jnp.broadcast_to(x, (axis_size, *x.shape))
                for x, b in zip(arrays[:own], batched, strict=False)
            ]
            samples = once(*of_batches, *arrays[own:])
        return samples, jax.tree.map(lambda _: True, samples)

    return once(*of_batch, *arrays)
