"""Fusion of programs that are just neighbour sampling: one kernel draws all their layers.

Extract-select fusion (gSampler, SOSP 2023, section 4.2) makes one call of a slice and a
selection from it. If every layer of a program is just that, all layers become one call too,
which keeps its table of known nodes from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Graph
from jgs.sampling.algorithms.nodewise.neighbors import Neighbors
from jgs.sampling.capacity import Capacity
from jgs.sampling.edges.hops import Sample
from jgs.sampling.seeds import Seeds

Program = Callable[..., Any]  # program(graph, key_data, frontier) returns a `Matrix`


def as_neighbors(
    programs: Sequence[Program], graph: Graph, key_data: jax.Array, edge_ids: bool
) -> Neighbors | None:
    """The sampler of neighbours that draws what these programs draw, one program for each
    layer. None unless every program selects from the frontier's columns and returns the
    selection."""
    fanouts, ways = [], set()

    def traced(program: Program, *arguments: Any) -> None:
        drawn, frontier = program(*arguments), arguments[-1]
        if drawn.origin and drawn.columns is frontier and not drawn.has_own_values:
            fanouts.append(drawn.origin[0])
            ways.add(drawn.origin[1:])

    frontier = jax.ShapeDtypeStruct((1,), jnp.int32)
    for program in programs:
        jax.eval_shape(partial(traced, program), graph, key_data, frontier)
    if len(fanouts) < len(programs) or len(ways) > 1:
        return None
    ((replace, weighted),) = ways
    return Neighbors(tuple(fanouts), replace, weighted, edge_ids=edge_ids)


def sample(
    neighbors: Neighbors,
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    capacity: Capacity,
) -> Sample:
    """The fields of a `MatrixSampler`'s sample, drawn by `neighbors`. Of the `capacity` only
    the entries of selections are used, because no slices are built."""
    selections = Capacity(capacity.edges[1::2], capacity.sources[1::2])
    batch = neighbors.sample(key_data, graph, (), seeds, selections)
    assert batch.needed is not None
    slot = jnp.arange(seeds.nodes.shape[0], dtype=jnp.int32)
    first = jnp.max(slot + 1, initial=0, where=seeds.nodes < graph.num_nodes)
    edges, sources = batch.needed
    frontiers = jnp.concatenate([jnp.where(edges[0] < 0, -1, first)[None], sources[:-1]])
    looked = jnp.where(edges < 0, -1, 0)
    needed = jnp.stack([jnp.stack([looked, edges]), jnp.stack([frontiers, sources])])
    needed = jnp.moveaxis(needed, 1, 2).reshape(2, -1)
    return list(batch.blocks[::-1]), batch.nodes, batch.overflow, needed, None
