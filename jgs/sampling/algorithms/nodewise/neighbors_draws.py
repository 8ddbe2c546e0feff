"""What `Neighbors` draws within each target's row: in plain JAX, which defines it, and by a C++
kernel, jgs/kernels/sample.cc, all hops in one call."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph
from jgs.sampling.capacity import Capacity
from jgs.sampling.edges import draw, recency
from jgs.sampling.edges.columns import compacted
from jgs.sampling.edges.eligible import Eligible, weights_of
from jgs.sampling.edges.hops import Sample, sample_hops
from jgs.sampling.edges.hops_kernel import call_kernel, call_once
from jgs.sampling.edges.random import cutoff_keys, fold
from jgs.sampling.edges.relations import (
    RelationIndex,
    Relations,
    relation_draws,
    relations_of,
)
from jgs.sampling.edges.slots import row_of_slot
from jgs.sampling.seeds import Seeds


class Spec(NamedTuple):
    """The static part of a sample's arguments, see `jgs.sampling.edges.hops.sample_hops`. Each
    value has its own compiled program. A hop by relation has in `fanouts` the number and the
    fanout of each relation that is drawn, ascending."""

    fanouts: tuple[int | Relations, ...]
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
    edge_types: bool = False
    half_life: int | None = None


class Indexed(NamedTuple):
    """What a batch is drawn from: the graph, for the kernel its `RelationIndex` or (), and the
    `sums` of `Recency` or ()."""

    graph: Graph
    index: Any = ()
    sums: Any = ()

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes


def sample_plain(key_data: jax.Array, of: Indexed, seeds: Seeds, spec: Spec) -> list[Sample]:
    """See `jgs.sampling.edges.hops.sample_hops`."""
    relations = [relations_of(fanout) for fanout in spec.fanouts]
    draw = partial(_draw, spec, of.sums)
    return sample_hops(key_data, of.graph, seeds, spec, draw, relations=relations)


class _Fanouts(NamedTuple):
    """How much the rows of a hop draw.

    Fields:
      of_row: int64 `[T]`, each row's fanout; -1 for all.
      most: int, the largest number of random draws in a row; -1: there are none.
    """

    of_row: jax.Array
    most: int


def _keys_and_fanouts(
    key_data: jax.Array, fanout: int | Relations, num_rows: int
) -> tuple[jax.Array, _Fanouts]:
    """The key of each row, uint32 `[T, 2]`, or one for all `[2]`; and their fanouts. A relation
    draws with the key `fold(key, relation)`."""
    if isinstance(fanout, int):
        return key_data, _Fanouts(jnp.full(num_rows, fanout, jnp.int64), fanout)
    keys = jnp.stack([fold(key_data, relation) for relation, _ in fanout])
    ks = jnp.array([k for _, k in fanout], jnp.int64)
    times = num_rows // len(fanout)
    most = max(k for _, k in fanout)
    return jnp.tile(keys, (times, 1)), _Fanouts(jnp.tile(ks, times), most)


def _draw(
    spec: Spec, sums: Any, graph: Graph, key_data: jax.Array, rows: Eligible, h: int, room: int
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """See `jgs.sampling.edges.hops.Draw`."""
    key_data = fold(key_data, spec.first_hop + h)
    num_rows = rows.nodes.shape[0]
    key_data, fanouts = _keys_and_fanouts(key_data, spec.fanouts[h], num_rows)
    key_data = cutoff_keys(key_data, rows.cutoff)
    # A row draws `bound` neighbours, or fewer if draws are weighted.
    k = fanouts.of_row
    bound = jnp.where(rows.num > 0, k, 0) if spec.replace else jnp.minimum(rows.num, k)
    bound = jnp.where(k == -1, rows.num, bound)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(room, dtype=jnp.int64)
    row = jnp.minimum(row_of_slot(ends, room), max(bound.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    edge, drawn = _edges(key_data, graph, rows, row, nth, spec, fanouts, sums)
    edge = jnp.where(drawn & (slot < total), edge, -1)
    if spec.weighted or spec.half_life is not None:  # then a draw may have no edge
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
    spec: Spec,
    fanouts: _Fanouts,
    sums: Any,
) -> tuple[jax.Array, jax.Array]:
    """The edge that each edge slot draws, and whether it draws one. Slot `i` is draw number
    `nth[i]` of target `row[i]`."""
    weighted = spec.weighted and graph.edge_weight_prefix is not None
    k, most = fanouts
    skipped = jnp.zeros_like(rows.num)
    if spec.latest:
        skipped = jnp.where(k == -1, 0, jnp.maximum(rows.num - k, 0))
    in_order = rows.edge(nth + skipped[row], row)
    everything = jnp.ones(row.shape, bool)
    if weighted:
        weights = weights_of(rows, graph.edge_weight_prefix, graph.indptr)
        everything = weights.part(in_order, row)[1] > 0
    if most == -1 or spec.latest:
        return in_order, everything
    if not spec.replace:  # no row has more edges than the graph
        most = min(most, graph.num_edges)
    if spec.half_life is not None:
        times = graph.edge_time
        assert times is not None
        sums = sums if sums.shape[0] else jnp.zeros(1, jnp.int64)  # there are no edges
        decayed = recency.Decayed(rows, sums, times, spec.half_life)
        by_recency = recency.repeated if spec.replace else recency.distinct
        edge, drawn = by_recency(key_data, rows.nodes, decayed, most)
    elif weighted:
        by_weight = draw.weighted_repeated if spec.replace else draw.weighted_distinct
        edge, drawn = by_weight(key_data, rows.nodes, weights, most)
    else:
        if spec.replace:
            position = draw.repeated(key_data, rows.nodes, rows.num, most)
        else:
            position = draw.distinct(key_data, rows.nodes, rows.num, most, k)
        edge = rows.along().edge(position)
        drawn = jnp.ones_like(edge, bool)
    at = (row, jnp.clip(nth, 0, most - 1))
    take_all = k[row] == -1
    if not spec.replace:
        take_all |= rows.num[row] <= k[row]
    return jnp.where(take_all, in_order, edge[at]), jnp.where(take_all, everything, drawn[at])


def sample_kernel(key_data: jax.Array, of: Indexed, seeds: Seeds, spec: Spec) -> list[Sample]:
    """The result of `sample_plain`. `jax.vmap` makes it one call for several batches."""
    typed = any(relations_of(fanout) for fanout in spec.fanouts)

    def call(key_data: jax.Array, of: Indexed, seeds: Seeds) -> list[Sample]:
        graph, nothing = of.graph, jnp.zeros(0, jnp.int64)
        index = of.index if isinstance(of.index, RelationIndex) and typed else (nothing,) * 2
        types = graph.edge_type if typed else jnp.zeros(0, jnp.int16)
        prefix = graph.edge_weight_prefix if spec.weighted else nothing
        sums = nothing if spec.half_life is None else of.sums
        times = jnp.zeros(0, jnp.int64) if seeds.time is None else graph.edge_time
        weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
        return call_kernel(
            "jgs_sample_neighbors",
            (key_data, graph.indptr, graph.indices, prefix, sums, weight, times, types, *index),
            graph,
            seeds,
            spec,
            [spec.edge_types and relations_of(k) is not None for k in spec.fanouts],
            draws=np.array([0 if relations_of(k) else k for k in spec.fanouts], np.int64),
            relation_draws=relation_draws(spec.fanouts, graph.schema if typed else None),
            replace=np.bool_(spec.replace),
            weighted=np.bool_(spec.weighted),
            latest=np.bool_(spec.latest),
            window=np.int64(-1 if spec.window is None else spec.window),
            half_life=np.int64(spec.half_life or 0),
        )

    return call_once(call, key_data, of, seeds)
