"""What `Neighbors` draws, in plain JAX: the positions within each target's row."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jgs.graph import Graph
from jgs.sampling import draw
from jgs.sampling.capacity import Capacity
from jgs.sampling.hops import Sample, sample_hops
from jgs.sampling.random import fold


class Spec(NamedTuple):
    """The static part of a sample's arguments, see `jgs.sampling.hops.Spec`; each value has its
    own compiled program."""

    fanouts: tuple[int, ...]
    capacity: Capacity
    replace: bool
    weighted: bool
    edge_ids: bool
    edge_weights: bool
    relabel_inputs: bool
    separate: bool = False
    first_hop: int = 0


def sample_plain(
    key_data: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec
) -> list[Sample]:
    """See `jgs.sampling.hops.sample_hops`."""
    return sample_hops(key_data, graph, seeds, spec, partial(_draw, spec))


def _draw(
    spec: Spec,
    graph: Graph,
    key_data: jax.Array,
    nodes: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    h: int,
    room: int,
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """See `jgs.sampling.hops.Draw`."""
    key_data, k = fold(key_data, spec.first_hop + h), spec.fanouts[h]
    # A row draws `bound` neighbours, or fewer if draws are weighted.
    if k == -1:
        bound = degree
    else:
        bound = jnp.where(degree > 0, k, 0) if spec.replace else jnp.minimum(degree, k)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(room, dtype=jnp.int64)
    row = jnp.clip(jnp.searchsorted(ends, slot, side="right"), 0, max(nodes.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    position, drawn = _positions(key_data, graph, nodes, start, degree, row, nth, spec, k)
    return jnp.where(drawn & (slot < total), start[row] + position, -1), row, total, None


def _positions(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    row: jax.Array,
    nth: jax.Array,
    spec: Spec,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """The position within its row that each edge slot draws, and whether it draws one. Slot `i`
    is draw number `nth[i]` of target `row[i]`."""
    everything, prefix = jnp.ones(row.shape, bool), graph.edge_weight_prefix
    if spec.weighted and prefix is not None:
        before, through = (draw.row_weight(prefix, start[row], nth + i) for i in (0, 1))
        everything = through > before
    if k == -1 or (k >= graph.num_edges and not spec.replace):  # no row has more than k
        return nth, everything
    if spec.weighted and prefix is not None:
        by_weight = draw.weighted_repeated if spec.replace else draw.weighted_distinct
        position, drawn = by_weight(key_data, nodes, start, degree, prefix, k)
    else:
        uniform = draw.repeated if spec.replace else draw.distinct
        position = uniform(key_data, nodes, degree, k)
        drawn = jnp.ones_like(position, bool)
    at = (row, jnp.clip(nth, 0, k - 1))
    if spec.replace:
        return position[at], drawn[at]
    take_all = degree[row] <= k
    return jnp.where(take_all, nth, position[at]), jnp.where(take_all, everything, drawn[at])
