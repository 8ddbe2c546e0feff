"""Neighbours by visits: the nodes that short random walks from a target visit most often.

`PinSage` and `HetGNN` share this, in plain JAX. `jgs/kernels/visits.cc` does the same for each
target in one pass, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.kernels.call import vary_alike
from jgs.options import INT32, Option
from jgs.sampling.algorithms.walks.visits_kernel import visit_kernel
from jgs.sampling.algorithms.walks.walk import JUMPS
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_call, require_int
from jgs.sampling.edges.eligible import Eligible, eligible, holes_of, of_relation
from jgs.sampling.edges.hops import Sample, draw_batches, sample_hops
from jgs.sampling.edges.random import as_key_data, fold
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    check_probability,
    drawn_neighbor,
    happens,
    step_bits,
    step_halves,
    walker_keys,
)

# Options of the samplers by visits.
WalkCounts = Annotated[
    tuple[int, ...],
    Option("walks from each node, and steps of each walk", least=1, most=INT32),
]
Restart = Annotated[
    float, Option("probability that a walk ends before each later step", least=0, most=1)
]
_VISITS_AT_ONCE = 1 << 22  # bounds the temporaries to some hundred megabytes


class Spec(NamedTuple):
    """The static part of a sample's arguments, see `jgs.sampling.edges.hops.sample_hops`.

    Fields:
      groups: for each group of nodes its ranges of ids, (first, last, first, last, ...),
        ascending. Groups do not overlap. A node in no group is never a neighbour.
      sizes: for each hop and each group, the largest number of neighbours of a target.
      path: the relation of each step of a traversal, in turn. Empty: a traversal is one step
        along any edge.
      num_walks, length: the number of walks of each target, and of traversals of each walk.
      stop: the probability, before each traversal but the first, that the walk ends.
      counts: whether weights are the counts of visits; otherwise they are scaled so that each
        row has the mean 1.
    """

    capacity: Capacity
    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    path: tuple[int, ...]
    num_walks: int
    length: int
    stop: float
    counts: bool
    edge_ids: bool = False
    edge_weights: bool = True
    relabel_inputs: bool = True
    separate: bool = False
    first_hop: int = 0
    window: None = None

    @property
    def most(self) -> int:
        """The largest number of visits of one target."""
        return self.num_walks * self.length


def check_fields(sampler: Any) -> None:
    """Checks the fields that these samplers share, and converts them in place."""
    for name in ("num_walks", "length"):
        object.__setattr__(sampler, name, require_int(name, vars(sampler)[name], 1))
    if sampler.num_walks * sampler.length >= 2**31:
        raise InputError(
            "num_walks times length must be below 2**31",
            sampler.num_walks * sampler.length,
            "Make fewer or shorter walks.",
        )
    object.__setattr__(sampler, "restart", check_probability("restart", sampler.restart))
    object.__setattr__(sampler, "counts", bool(sampler.counts))


def check_walks(walks: tuple[int, ...]) -> tuple[int, int]:
    """The two numbers of the option `walks`. Raises `InputError`."""
    if len(walks) != 2:
        raise InputError(
            "--walks must be two ints, how many and of how many steps",
            " ".join(map(str, walks)) or "none",
            "Give e.g. --walks 200 10.",
        )
    return walks[0], walks[1]


def check_sizes(sizes: Any) -> tuple[Any, ...]:
    """`sizes` as a tuple of positive ints, or of tuples of them; raises `InputError`."""

    def checked(value: Any, what: str) -> Any:
        if isinstance(value, list | tuple) and value:
            return tuple(require_int(what, k, 1) for k in value)
        return require_int(what, value, 1)

    if not isinstance(sizes, list | tuple) or not sizes:
        raise InputError(
            "sizes must be a tuple, a size for each hop", repr(sizes), "Give e.g. (10, 10)."
        )
    return tuple(checked(value, "each size") for value in sizes)


def visit_bound(
    sizes: Sequence[int], most: int, shape: GraphShape, batch_size: int
) -> Capacity:
    """A capacity that no sample exceeds whose targets make `most` visits and have `sizes[h]`
    neighbours at hop `h`."""
    edges, sources, targets = [], [], batch_size
    for k in sizes:
        edges.append(targets * min(k, most, shape.num_nodes))
        targets = min(targets + edges[-1], shape.num_nodes + batch_size)
        sources.append(targets)
    return Capacity(tuple(edges), tuple(sources))


def sample_visits(
    sampler: Any, key: Any, graph: Graph, seeds: Any, capacity: Capacity | None, **spec: Any
) -> MiniBatch:
    """What `sampler.sample` returns. `spec` are `groups`, `sizes` and `path` of a `Spec`."""
    seeds, capacity = check_call(sampler, graph, seeds, capacity, len(sampler.sizes))
    key_data = as_key_data(key, seeds.nodes.shape[:-1])
    most = sampler.num_walks * sampler.length
    spec["sizes"] = tuple(tuple(min(k, most) for k in row) for row in spec["sizes"])
    complete = Spec(
        capacity,
        num_walks=sampler.num_walks,
        length=sampler.length,
        stop=sampler.restart,
        counts=sampler.counts,
        **spec,
    )
    (batch,) = draw_batches(_sample_kernel, _sample_plain, key_data, graph, seeds, complete)
    return batch


def _sample_plain(key_data: jax.Array, graph: Graph, seeds: Seeds, spec: Spec) -> list[Sample]:
    return sample_hops(
        key_data, graph, seeds, spec, partial(_draw, visit_plain, spec), _as_nodes
    )


def _sample_kernel(key_data: jax.Array, graph: Graph, seeds: Seeds, spec: Spec) -> list[Sample]:
    return sample_hops(
        key_data, graph, seeds, spec, partial(_draw, visit_kernel, spec), _as_nodes
    )


def _as_nodes(graph: Graph, drawn: jax.Array) -> jax.Array:
    return drawn.astype(jnp.int32)


def _draw(
    visit: Any,
    spec: Spec,
    graph: Graph,
    key_data: jax.Array,
    rows: Eligible,
    h: int,
    room: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """See `jgs.sampling.edges.hops.Draw`; this draws nodes in place of edges."""
    nodes, key_data = rows.nodes, fold(key_data, spec.first_hop + h)
    found, count = visit(key_data, graph, nodes, rows.excluded, spec, spec.sizes[h])
    weight = count.astype(jnp.float32)
    if not spec.counts:
        num_found = jnp.sum(count > 0, axis=1).astype(jnp.float32)
        total = jnp.sum(count, axis=1).astype(jnp.float32)
        weight = weight * num_found[:, None] / jnp.maximum(total, 1)[:, None]
    real = (count > 0).reshape(-1)
    total = jnp.sum(real, dtype=jnp.int64)
    place = jnp.where(real, jnp.cumsum(real) - 1, room)
    row = jnp.repeat(jnp.arange(nodes.shape[0], dtype=jnp.int32), count.shape[1])

    def placed(values: jax.Array, fill: int) -> jax.Array:
        empty, values = vary_alike(jnp.full(room, fill, values.dtype), values.reshape(-1))
        return empty.at[place].set(values, mode="drop")

    drawn = placed(found.astype(jnp.int64), -1)
    return drawn, placed(row, max(nodes.shape[0] - 1, 0)), total, placed(weight, 0)


def visit_plain(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    excluded: jax.Array | None,
    spec: Spec,
    sizes: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """The most visited nodes of each target, with the hop's key `key_data` uint32 `[2]`.

    Args:
      nodes: int32 `[T]`, the targets, `N` for padding.
      excluded: the edges that walks do not follow, as in `Seeds`, or None.
      sizes: the number of nodes for each group of `spec`; their sum is `K`.

    Returns:
      Two arrays int32 `[T, K]`. The first has `sizes[i]` nodes of each group `i` in turn, the
      most visited first, and `N` where there are no more. The second has the number of visits
      to each, 0 for `N`. Among nodes visited equally often, those come first that were visited
      after fewer steps, and then those visited by the walk with the smaller number. The target
      itself is not among them.
    """
    if nodes.shape[0] * spec.most <= _VISITS_AT_ONCE:
        return _most_visited(key_data, graph, nodes, excluded, spec, sizes)
    rows = max(1, _VISITS_AT_ONCE // spec.most)
    one = partial(_most_visited, key_data, graph, excluded=excluded, spec=spec, sizes=sizes)
    found, count = jax.lax.map(
        lambda node: jax.tree.map(lambda a: a[0], one(node[None])), nodes, batch_size=rows
    )
    return found, count


def _most_visited(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    excluded: jax.Array | None,
    spec: Spec,
    sizes: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    num_nodes, most = graph.num_nodes, spec.most
    visited = _walk(key_data, graph, nodes, excluded, spec)
    visited = jnp.where(visited == nodes[:, None], num_nodes, visited)
    order = jnp.argsort(
        visited, axis=1, stable=True
    )  # equal nodes stay in the order of their visits
    ordered = jnp.take_along_axis(visited, order, axis=1)
    ends = jnp.ones((*visited.shape[:1], 1), bool)
    starts = jnp.concatenate([ends, ordered[:, 1:] != ordered[:, :-1]], axis=1)
    slot = jnp.arange(most)
    after = jnp.where(starts, slot, most)  # becomes the next start after each slot
    after = jax.lax.cummin(after, axis=1, reverse=True)
    after = jnp.concatenate([after[:, 1:], jnp.full_like(after[:, :1], most)], axis=1)
    count = jnp.where(starts, after - slot, 0)
    score = count.astype(jnp.int64) * most + (most - 1 - order)
    results = []
    for bounds, size in zip(spec.groups, sizes, strict=True):
        below = jnp.searchsorted(jnp.array(bounds), ordered, side="right", method="compare_all")
        inside = starts & (below % 2 == 1)
        best, at = jax.lax.top_k(jnp.where(inside, score, -1), size)
        real = best >= 0
        found = jnp.take_along_axis(ordered, at, axis=1)
        times = jnp.take_along_axis(count, at, axis=1)
        results.append((jnp.where(real, found, num_nodes), jnp.where(real, times, 0)))
    found, times = (jnp.concatenate(parts, axis=1) for parts in zip(*results, strict=True))
    return found.astype(jnp.int32), times.astype(jnp.int32)


def _walk(
    key_data: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    excluded: jax.Array | None,
    spec: Spec,
) -> jax.Array:
    """int32 `[T, length * num_walks]`: the end of each traversal. The first traversals of all
    walks come before the second ones. `N` after a walk's end."""
    num_nodes, per = graph.num_nodes, max(1, len(spec.path))
    roots = jnp.repeat(nodes, spec.num_walks)
    number = jnp.tile(jnp.arange(spec.num_walks, dtype=jnp.int32), nodes.shape[0])
    keys = walker_keys(key_data, roots, number)

    def traverse(here, i):
        step = i * per + 1
        stops = happens(step_halves(keys, step, JUMPS)[1], spec.stop)
        here = jnp.where(stops & (i > 0), num_nodes, here)
        for j in range(per):
            rows = eligible(graph, here, here < num_nodes)
            if spec.path:
                rows = of_relation(graph, rows, spec.path[j])
            rows = holes_of(rows, excluded)
            here = drawn_neighbor(graph, rows, step_bits(keys, step + j, 0), False)
        return here, here

    begin = vary_alike(roots, keys, graph)[0]
    _, ends = jax.lax.scan(traverse, begin, jnp.arange(spec.length, dtype=jnp.uint32))
    ends = ends.reshape(spec.length, nodes.shape[0], spec.num_walks)
    return jnp.swapaxes(ends, 0, 1).reshape(nodes.shape[0], spec.most)
