"""What `Neighbors` draws within each target's row: in plain JAX, which defines it, and by a C++
kernel, jgs/kernels/sample.cc, all hops in one call."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph
from jgs.sampling.edges import draw, recency
from jgs.sampling.edges.columns import compacted
from jgs.sampling.edges.eligible import Eligible, weights_of
from jgs.sampling.edges.hops import DrawnEdges, Hop, Sample, Spec, call_hops, sample_hops
from jgs.sampling.edges.random import cutoff_keys, fold
from jgs.sampling.edges.relations import RelationIndex, relations_of
from jgs.sampling.edges.slots import row_of_slot
from jgs.sampling.seeds import Seeds


class Reads(NamedTuple):
    """What draws read beside the graph: for the kernel its `RelationIndex` or (), and the
    `sums` of `Recency` or ()."""

    index: Any = ()
    sums: Any = ()


def _draw(hop: Hop, rows: Eligible) -> DrawnEdges:
    """See `jgs.sampling.edges.hops.Draw`."""
    how, room, k, num_rows = hop.spec.sampler, hop.room, hop.fanout, rows.nodes.shape[0]
    key_data = fold(hop.key_data, hop.number)
    if isinstance(k, int):
        most, k = k, jnp.full(num_rows, k, jnp.int64)
    else:
        keys = jnp.stack([fold(key_data, relation) for relation, _ in k])
        times, most = num_rows // len(k), max(each for _, each in k)
        key_data = jnp.tile(keys, (times, 1))
        k = jnp.tile(jnp.array([each for _, each in k], jnp.int64), times)
    key_data = cutoff_keys(key_data, rows.cutoff)
    # A row draws `bound` neighbours, or fewer if draws are weighted.
    bound = jnp.where(rows.num > 0, k, 0) if how.replace else jnp.minimum(rows.num, k)
    bound = jnp.where(k == -1, rows.num, bound)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(room, dtype=jnp.int64)
    row = jnp.minimum(row_of_slot(ends, room), max(bound.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    edge, drawn = _edges(key_data, hop.graph, rows, row, nth, how, k, most, hop.reads.sums)
    edge = jnp.where(drawn & (slot < total), edge, -1)
    if how.weighted or how.half_life is not None:  # then a draw may have no edge
        _, (edge, row), _ = compacted(
            jnp.zeros(1, jnp.int32), edge >= 0, [(edge, -1), (row, 0)]
        )
    return edge, row, total, None


def _edges(
    key_data: jax.Array,
    graph: Graph,
    rows: Eligible,
    row: jax.Array,
    nth: jax.Array,
    how: Any,
    k: jax.Array,
    most: int,
    sums: Any,
) -> tuple[jax.Array, jax.Array]:
    """The edge that each edge slot draws, and whether it draws one. Slot `i` is draw number
    `nth[i]` of target `row[i]`. `how` is the `Neighbors`, `k` int64 `[T]` are the fanouts, and
    `most` the largest number of random draws in a row, -1 where there are none."""
    weighted = how.weighted and graph.edge_weight_prefix is not None
    skipped = jnp.zeros_like(rows.num)
    if how.latest:
        skipped = jnp.where(k == -1, 0, jnp.maximum(rows.num - k, 0))
    in_order = rows.edge(nth + skipped[row], row)
    everything = jnp.ones(row.shape, bool)
    if weighted:
        weights = weights_of(rows, graph.edge_weight_prefix, graph.indptr)
        everything = weights.part(in_order, row)[1] > 0
    if most == -1 or how.latest:
        return in_order, everything
    if not how.replace:  # no row has more edges than the graph
        most = min(most, graph.num_edges)
    if how.half_life is not None:
        times = graph.edge_time
        assert times is not None
        sums = sums if sums.shape[0] else jnp.zeros(1, jnp.int64)  # there are no edges
        decayed = recency.Decayed(rows, sums, times, how.half_life)
        by_recency = draw.repeated_by if how.replace else recency.distinct
        edge, drawn = by_recency(key_data, rows.nodes, decayed, most)
    elif weighted:
        by_weight = draw.repeated_by if how.replace else draw.weighted_distinct
        edge, drawn = by_weight(key_data, rows.nodes, weights, most)
    else:
        if how.replace:
            position = draw.repeated(key_data, rows.nodes, rows.num, most)
        else:
            position = draw.distinct(key_data, rows.nodes, rows.num, most, k)
        edge = rows.along().edge(position)
        drawn = jnp.ones_like(edge, bool)
    at = (row, jnp.clip(nth, 0, most - 1))
    take_all = k[row] == -1
    if not how.replace:
        take_all |= rows.num[row] <= k[row]
    return jnp.where(take_all, in_order, edge[at]), jnp.where(take_all, everything, drawn[at])


sample_plain = partial(sample_hops, draw=_draw)


def sample_kernel(
    key_data: jax.Array, graph: Graph, reads: Reads, seeds: Seeds, spec: Spec
) -> list[Sample]:
    """The result of `sample_plain`."""
    how, nothing = spec.sampler, jnp.zeros(0, jnp.int64)
    typed = any(relations_of(fanout) for fanout in spec.fanouts)
    prefix = graph.edge_weight_prefix if how.weighted else nothing
    sums = nothing if how.half_life is None else reads.sums
    weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
    return call_hops(
        "jgs_sample_neighbors",
        key_data,
        graph,
        (prefix, sums, weight),
        seeds,
        spec,
        reads.index if isinstance(reads.index, RelationIndex) and typed else (nothing,) * 2,
        replace=np.bool_(how.replace),
        weighted=np.bool_(how.weighted),
        latest=np.bool_(how.latest),
        half_life=np.int64(how.half_life or 0),
    )
