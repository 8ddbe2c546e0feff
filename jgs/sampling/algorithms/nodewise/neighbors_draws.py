"""What `Neighbors` draws within each target's row: in plain JAX, which defines it, and by a C++
kernel, jgs/kernels/sample.cc, all hops in one call."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph
from jgs.sampling.capacity import Capacity
from jgs.sampling.edges import draw
from jgs.sampling.edges.eligible import Eligible, weights_of
from jgs.sampling.edges.hops import Sample, sample_hops
from jgs.sampling.edges.hops_kernel import call_kernel, call_once
from jgs.sampling.edges.random import cutoff_keys, fold
from jgs.sampling.seeds import Seeds


class Spec(NamedTuple):
    """The static part of a sample's arguments, see `jgs.sampling.edges.hops.sample_hops`. Each
    value has its own compiled program."""

    fanouts: tuple[int, ...]
    capacity: Capacity
    replace: bool
    weighted: bool
    edge_ids: bool
    edge_weights: bool
    relabel_inputs: bool
    separate: bool = False
    first_hop: int = 0
    window: int | None = None
    latest: bool = False


def sample_plain(key_data: jax.Array, graph: Graph, seeds: Seeds, spec: Spec) -> list[Sample]:
    """See `jgs.sampling.edges.hops.sample_hops`."""
    return sample_hops(key_data, graph, seeds, spec, partial(_draw, spec))


def _draw(
    spec: Spec, graph: Graph, key_data: jax.Array, rows: Eligible, h: int, room: int
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """See `jgs.sampling.edges.hops.Draw`."""
    key_data, k = fold(key_data, spec.first_hop + h), spec.fanouts[h]
    key_data = cutoff_keys(key_data, rows.cutoff)
    # A row draws `bound` neighbours, or fewer if draws are weighted.
    if k == -1:
        bound = rows.num
    else:
        bound = jnp.where(rows.num > 0, k, 0) if spec.replace else jnp.minimum(rows.num, k)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(room, dtype=jnp.int64)
    row = jnp.clip(jnp.searchsorted(ends, slot, side="right"), 0, max(bound.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    edge, drawn = _edges(key_data, graph, rows, row, nth, spec, k)
    return jnp.where(drawn & (slot < total), edge, -1), row, total, None


def _edges(
    key_data: jax.Array,
    graph: Graph,
    rows: Eligible,
    row: jax.Array,
    nth: jax.Array,
    spec: Spec,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """The edge that each edge slot draws, and whether it draws one. Slot `i` is draw number
    `nth[i]` of target `row[i]`."""
    weighted = spec.weighted and graph.edge_weight_prefix is not None
    latest = spec.latest and k != -1
    skipped = jnp.maximum(rows.num - k, 0) if latest else jnp.zeros_like(rows.num)
    in_order = rows.edge(nth + skipped[row], row)
    everything = jnp.ones(row.shape, bool)
    if weighted:
        weights = weights_of(rows, graph.edge_weight_prefix, graph.indptr)
        everything = weights.part(in_order, row)[1] > 0
    if k == -1 or latest or (k >= graph.num_edges and not spec.replace):
        return in_order, everything  # no row has more than that
    if weighted:
        by_weight = draw.weighted_repeated if spec.replace else draw.weighted_distinct
        edge, drawn = by_weight(key_data, rows.nodes, weights, k)
    else:
        uniform = draw.repeated if spec.replace else draw.distinct
        edge = rows.along().edge(uniform(key_data, rows.nodes, rows.num, k))
        drawn = jnp.ones_like(edge, bool)
    at = (row, jnp.clip(nth, 0, k - 1))
    if spec.replace:
        return edge[at], drawn[at]
    take_all = rows.num[row] <= k
    return jnp.where(take_all, in_order, edge[at]), jnp.where(take_all, everything, drawn[at])


def sample_kernel(key_data: jax.Array, graph: Graph, seeds: Seeds, spec: Spec) -> list[Sample]:
    """The result of `sample_plain`. `jax.vmap` makes it one call for several batches."""

    def call(key_data: jax.Array, graph: Graph, seeds: Seeds) -> list[Sample]:
        prefix = graph.edge_weight_prefix if spec.weighted else jnp.zeros(0, jnp.int64)
        times = jnp.zeros(0, jnp.int64) if seeds.time is None else graph.edge_time
        weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
        return call_kernel(
            "jgs_sample_neighbors",
            (key_data, graph.indptr, graph.indices, prefix, weight, times),
            graph,
            seeds,
            spec,
            draws=np.array(spec.fanouts, np.int64),
            replace=np.bool_(spec.replace),
            weighted=np.bool_(spec.weighted),
            latest=np.bool_(spec.latest),
            window=np.int64(-1 if spec.window is None else spec.window),
        )

    return call_once(call, key_data, graph, seeds)
