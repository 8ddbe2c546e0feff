"""Neighbours by visits: `PinSage` and `HetGNN`, for which a target's neighbours are the nodes
that short random walks from it visit most often."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import call, vary_alike
from jgs.options import INT32, Option
from jgs.sampling.base import Fanouts
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_graph, require_int
from jgs.sampling.edges.eligible import Eligible, eligible, holes_of, of_relation
from jgs.sampling.edges.hops import DrawnEdges, Hop, HopDraw, longs_or_empty, sample_hops
from jgs.sampling.edges.random import fold, node_bits
from jgs.sampling.hopwise import Hops
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    JUMPS,
    check_probability,
    drawn_neighbor,
    happens,
    limit,
    relation_path,
    step_halves,
    walker_keys,
)

# Options of the samplers by visits.
WALKS = Option("walks from each node, and steps of each walk", least=1, most=INT32)
WalkCounts = Annotated[tuple[int, ...], WALKS]
Restart = Annotated[
    float, Option("probability that a walk ends before each later step", least=0, most=1)
]
_VISITS_AT_ONCE = 1 << 22  # bounds the temporaries to some hundred megabytes


class Facts(NamedTuple):
    """What of a graph decides whom a traversal visits.

    Fields:
      groups: for each group of nodes its ranges of ids, (first, last, first, last, ...),
        ascending. Groups do not overlap. A node in no group is never a neighbour.
      sizes: for each hop and each group, the largest number of neighbours of a target.
      path: the relation of each step of a traversal. Empty: it is one step along any edge.
    """

    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    path: tuple[int, ...]


@dataclass(frozen=True)
class VisitSampler(Hops):
    """What `PinSage` and `HetGNN` share; their docstrings have the fields. A subclass says
    which nodes are neighbours, by `_sizes_of` and `_facts_of`."""

    sizes: tuple[Any, ...]
    num_walks: int = 200
    length: int = 10
    restart: float = 0.5

    by_node = takes_excluded = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", check_sizes(self.sizes))
        for name in ("num_walks", "length"):
            object.__setattr__(self, name, require_int(name, getattr(self, name), 1))
        if self._most >= 2**31:
            rule = "num_walks times length must be below 2**31"
            raise InputError(rule, self._most, "Make fewer or shorter walks.")
        object.__setattr__(self, "restart", check_probability("restart", self.restart))

    @property
    def forms(self) -> tuple[Any, Any]:
        return _form(visit_kernel), _form(visit_plain)

    @property
    def num_hops(self) -> int:
        return len(self.sizes)

    @property
    def _most(self) -> int:
        """The largest number of visits of one target."""
        return self.num_walks * self.length

    def _most_edges(self, hop: int, shape: GraphShape, targets: int, repeated: int) -> int:
        return targets * min(self._sizes_of(shape)[hop], self._most, shape.num_nodes)

    @abstractmethod
    def _sizes_of(self, shape: GraphShape) -> Sequence[int]:
        """For each hop the largest number of neighbours of a target, of all groups together."""

    @abstractmethod
    def _facts_of(self, graph: Graph) -> Facts:
        """The `Facts`, where `sizes` may exceed the number of visits. Raises `InputError` where
        the graph lacks what they need."""

    def init(self, graph: Graph) -> tuple[()]:
        check_graph(graph, False)
        self._facts_of(graph)
        return ()

    def _spec(self, capacity: Capacity, graph: Graph) -> HopDraw:
        facts = self._facts_of(graph)
        sizes = tuple(tuple(min(k, self._most) for k in row) for row in facts.sizes)
        facts, fanouts = facts._replace(sizes=sizes), (-1,) * self.num_hops
        return HopDraw(self, capacity, fanouts, False, True, True, facts=facts)


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

    def checked(size: Any) -> Any:
        if isinstance(size, list | tuple) and size:
            return tuple(require_int("each size", k, 1) for k in size)
        return require_int("each size", size, 1)

    if not isinstance(sizes, list | tuple) or not sizes:
        raise InputError(
            "sizes must be a tuple, a size for each hop", repr(sizes), "Give e.g. (10, 10)."
        )
    return tuple(checked(value) for value in sizes)


def _draw(hop: Hop, rows: Eligible, visit: Any) -> DrawnEdges:
    """See `jgs.sampling.edges.hops.Draw`; this draws nodes in place of edges."""
    nodes, spec, room = rows.nodes, hop.spec, hop.room
    targets, key_data = Seeds(nodes, excluded=rows.excluded), fold(hop.key_data, hop.number)
    found, count = visit(key_data, hop.graph, targets, spec, spec.facts.sizes[hop.h])
    weight = count.astype(jnp.float32)
    if not spec.sampler.counts:
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
    return drawn, placed(row, max(nodes.shape[0] - 1, 0)), total, placed(weight, 0), None


def visit_kernel(
    key_data: jax.Array, graph: Graph, targets: Seeds, spec: HopDraw, sizes: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The result of `visit_plain`, by jgs/kernels/visits.cc."""
    sampler, nodes, excluded = spec.sampler, targets.nodes, targets.excluded
    shape = jax.ShapeDtypeStruct((nodes.shape[0], sum(sizes)), jnp.int32)
    types = graph.edge_type
    if types is None or not spec.facts.path:
        types = jnp.zeros(0, jnp.int16)
    gone = longs_or_empty(excluded)
    groups = zip(sizes, spec.facts.groups, strict=True)
    found, count = call(
        "jgs_visits",
        (shape, shape),
        (key_data, graph.indptr, graph.indices, types, nodes, gone),
        kernels.NUM_THREADS,
        num_walks=np.int64(sampler.num_walks),
        length=np.int64(sampler.length),
        stop=np.int64(limit(sampler.restart)),
        path=np.array(spec.facts.path, np.int64),
        groups=np.concatenate([(k, len(ends), *ends) for k, ends in groups], dtype=np.int64),
    )
    return found, count


def visit_plain(
    key_data: jax.Array, graph: Graph, targets: Seeds, spec: HopDraw, sizes: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The most visited nodes of the targets' nodes int32 `[T]`, `N` for padding, with the hop's
    key `key_data` uint32 `[2]`. Walks do not follow the edges that are excluded.

    Returns two arrays int32 `[T, K]`. The first has `sizes[i]` nodes of each group `i` in turn,
    in the order of `PinSage`, and `N` where there are no more. The second has the number of
    visits to each, 0 for `N`.
    """
    nodes, rows = targets.nodes, max(1, _VISITS_AT_ONCE // spec.sampler._most)
    if nodes.shape[0] <= rows:
        return _most_visited(key_data, graph, targets, spec, sizes)

    def one(node: jax.Array) -> tuple[jax.Array, jax.Array]:
        target = targets.replace(nodes=node[None])
        found, count = _most_visited(key_data, graph, target, spec, sizes)
        return found[0], count[0]

    found, count = jax.lax.map(one, nodes, batch_size=rows)
    return found, count


def _most_visited(
    key_data: jax.Array, graph: Graph, targets: Seeds, spec: HopDraw, sizes: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    num_nodes, most = graph.num_nodes, spec.sampler._most
    visited = _walk(key_data, graph, targets, spec)
    visited = jnp.where(visited == targets.nodes[:, None], num_nodes, visited)
    # Equal nodes stay in the order of their visits.
    order = jnp.argsort(visited, axis=1, stable=True)
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
    for bounds, size in zip(spec.facts.groups, sizes, strict=True):
        below = jnp.searchsorted(jnp.array(bounds), ordered, side="right", method="compare_all")
        inside = starts & (below % 2 == 1)
        best, at = jax.lax.top_k(jnp.where(inside, score, -1), size)
        real = best >= 0
        found = jnp.take_along_axis(ordered, at, axis=1)
        times = jnp.take_along_axis(count, at, axis=1)
        results.append((jnp.where(real, found, num_nodes), jnp.where(real, times, 0)))
    found, times = (jnp.concatenate(parts, axis=1) for parts in zip(*results, strict=True))
    return found.astype(jnp.int32), times.astype(jnp.int32)


def _walk(key_data: jax.Array, graph: Graph, targets: Seeds, spec: HopDraw) -> jax.Array:
    """int32 `[T, length * num_walks]`: the end of each traversal. The first traversals of all
    walks come before the second ones. `N` after a walk's end."""
    nodes, num_nodes, per = targets.nodes, graph.num_nodes, max(1, len(spec.facts.path))
    num_walks, length = spec.sampler.num_walks, spec.sampler.length
    roots = jnp.repeat(nodes, num_walks)
    number = jnp.tile(jnp.arange(num_walks, dtype=jnp.int32), nodes.shape[0])
    keys = walker_keys(key_data, roots, number)

    def traverse(here, i):
        step = i * per + 1
        stops = happens(step_halves(keys, step, JUMPS)[1], spec.sampler.restart)
        here = jnp.where(stops & (i > 0), num_nodes, here)
        for j in range(per):
            rows = eligible(graph, here, here < num_nodes)
            if spec.facts.path:
                rows = of_relation(graph, rows, spec.facts.path[j])
            rows = holes_of(rows, targets.excluded)
            here = drawn_neighbor(graph, rows, node_bits(keys, step + j, 0), False)
        return here, here

    begin = vary_alike(roots, keys, graph)[0]
    _, ends = jax.lax.scan(traverse, begin, jnp.arange(length, dtype=jnp.uint32))
    ends = ends.reshape(length, nodes.shape[0], num_walks)
    return jnp.swapaxes(ends, 0, 1).reshape(nodes.shape[0], length * num_walks)


def _form(visit: Any) -> Any:
    nodes = lambda graph, drawn: drawn.astype(jnp.int32)  # noqa: E731
    return partial(sample_hops, draw=partial(_draw, visit=visit), neighbor=nodes)


@dataclass(frozen=True)
class PinSage(VisitSampler):
    """Importance-based neighbourhoods (Ying et al., "Graph Convolutional Neural Networks for
    Web-Scale Recommender Systems", KDD 2018, section 3.1).

    At hop `h` every target makes `num_walks` walks. Its neighbours are the `sizes[h]` nodes
    that the walks visit most, the target itself left out. Among nodes visited equally often,
    those come first that were visited after fewer steps, and then those visited by the walk
    with the smaller number. A step goes to a uniformly drawn in-neighbour, as messages are
    read. A target whose walks visit no other node has no neighbours.

    DGL's `PinSAGESampler` also counts the end of every step, but it counts the target too, and
    its walks go along out-edges.

    Fields:
      sizes: the largest number of neighbours of a target at each hop, the seeds' hop first.
      num_walks: the number of walks of a target.
      length: the largest number of steps of a walk.
      restart: the probability, before each step but the first, that the walk ends. The next
        walk begins at the target again.
      relations: relations of a typed graph, by name or triple, that the steps follow in turn.
        They must lead back to the type at which they begin, e.g. from items to users and back.
        One round of them counts as one step: `length` is in rounds, and only the ends of rounds
        are visited. Targets of other types have no neighbours. None: steps follow all edges.
      counts: whether a block's `edge_weight` is the number of visits to the neighbour. If not,
        this number is scaled so that a row's weights have the mean 1. `aggregate` with "mean"
        is then the paper's importance pooling, the mean of the rows weighted by visits.

    Blocks have weights and no `edge_id`, because a neighbour need not be joined to its target
    by an edge. Neighbours are in the order of visits. What a node draws at a hop depends on
    (key, hop, node) alone: its walk number `w` is that of `Walk(length, stop=restart)` with the
    key of the hop, from the `w`-th repetition of the node among the roots. It may need any row
    of the graph, so vanilla mode refuses this sampler. Raises `InputError` for fields that
    break these rules.
    """

    sizes: tuple[int, ...]
    relations: tuple[Any, ...] | None = None
    counts: bool = field(default=False, repr=False)

    @classmethod
    def from_options(
        cls,
        fanouts: Fanouts,
        walks: WalkCounts = (200, 10),
        restart: Restart = 0.5,
        relations: Annotated[
            tuple[str, ...], Option("relations that steps go along in turn, e.g. rev_buys buys")
        ] = (),
    ) -> PinSage:
        """How a command makes the sampler."""
        return cls(fanouts, *check_walks(walks), restart, relations or None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(isinstance(k, tuple) for k in self.sizes):
            raise InputError("each size must be an int", repr(self.sizes), "Give one a hop.")
        if self.relations is not None:
            given: Any = self.relations
            listed = isinstance(given, Sequence) and not isinstance(given, str)
            if not listed or not given:
                raise InputError(
                    "relations must be a tuple of relations, at least one",
                    repr(self.relations),
                    'Give e.g. ("rev_buys", "buys").',
                )
            path = (tuple(one) if isinstance(one, list) else one for one in self.relations)
            object.__setattr__(self, "relations", tuple(path))

    def _sizes_of(self, shape: GraphShape) -> tuple[int, ...]:
        return self.sizes

    def _facts_of(self, graph: Graph) -> Facts:
        groups, sizes = ((0, graph.num_nodes),), tuple((k,) for k in self.sizes)
        if self.relations is None:
            return Facts(groups, sizes, ())
        path = relation_path(graph, (*self.relations, self.relations[0]))[:-1]
        return Facts(groups, sizes, path)


@dataclass(frozen=True)
class HetGNN(VisitSampler):
    """Heterogeneous neighbours (Zhang et al., "Heterogeneous Graph Neural Network", KDD 2019,
    section 3.1), for a graph with a `Schema`.

    At hop `h` every target makes a random walk with restart, along edges of all types. Its
    neighbours are, for each node type in the schema's order, the `sizes[h]` nodes of that type
    which the walk visits most, counted and ordered as in `PinSage`. The target itself is not
    among them. A type that the walk does not reach has none. In the paper the walk goes on
    until it has met every type often enough. Here its length is fixed, so that the cost of a
    batch is known.

    Fields:
      sizes: for each hop the largest number of neighbours of each type, the seeds' hop first.
        An entry may be a tuple of ints, one for each type in the schema's order.
      num_walks: the number of times that the walk begins at the target.
      length: the largest number of steps between two restarts.
      restart: the probability of a restart before each step, except the first after a restart.
      counts: as in `PinSage`; the weights of a row have the mean 1 over all types together.

    `init` raises `InputError` for a graph without a schema. Everything else is as in `PinSage`.
    """

    sizes: tuple[int | tuple[int, ...], ...]
    counts: bool = field(default=False, repr=False)

    @classmethod
    def from_options(
        cls, fanouts: Fanouts, walks: WalkCounts = (200, 10), restart: Restart = 0.5
    ) -> HetGNN:
        """How a command makes the sampler."""
        return cls(fanouts, *check_walks(walks), restart)

    def _sizes_of(self, shape: GraphShape) -> list[int]:
        return [sum(k) if isinstance(k, tuple) else k * shape.num_types for k in self.sizes]

    def _facts_of(self, graph: Graph) -> Facts:
        if graph.schema is None:
            raise InputError(
                "HetGNN needs a graph with node types",
                "one without a schema",
                "Make it with Graph.from_relations.",
            )
        names = [name for name, _ in graph.schema.node_types]
        sizes = [k if isinstance(k, tuple) else (k,) * len(names) for k in self.sizes]
        if wrong := [k for k in sizes if len(k) != len(names)]:
            raise InputError(
                f"the sizes of a hop must be one for each of {len(names)} node types",
                repr(wrong[0]),
                "Give them in the order of graph.schema.node_types.",
            )
        ranges = [graph.schema.ranges(name) for name in names]
        groups = [tuple(end for r in own for end in (r.start, r.stop)) for own in ranges]
        return Facts(tuple(groups), tuple(sizes), ())
