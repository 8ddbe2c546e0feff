"""Walks: the contract of walkers, the random bits of each walk, and the loop over its steps.

The plain functions here compute with 64-bit integers: trace them under
`jax.enable_x64(True)`. `jgs/kernels/walk.h` has the same in C++.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import described, is_real
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import call, vary_alike, where_it_is
from jgs.options import Option
from jgs.sampling import checks
from jgs.sampling.base import Draws, State
from jgs.sampling.edges.eligible import Eligible, bad_excluded, eligible, weights_of
from jgs.sampling.edges.hops import call_once, longs_or_empty
from jgs.sampling.edges.random import as_key_data, below, cutoff_keys, words
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

JUMPS = 0xFFFFFFFF  # the draw that decides whether a walk stops or goes back to its root
LENGTH = Option("steps of a walk", default=80, name="walk_length", least=1, most=1 << 16)
Causal = Annotated[
    bool, Option("walk back in time: each step's edge is earlier than the one before")
]


class Walks(NamedTuple):
    """Walks of at most `L` steps from `B` roots.

    Fields:
      nodes: int32 `[..., B, L+1]`; the root, then the node after each step. `N` after a walk's
        end, and in the whole row of a root that is padding.
      lengths: int32 `[..., B]`; the number of steps of each walk, 0 for padding. A walk that
        met a dead end, or stopped, has fewer than `L`. -1 for a root that is neither a node nor
        `N`. The kernels refuse such roots, and they are refused before if their values are
        known.
    """

    nodes: jax.Array
    lengths: jax.Array

    def __repr__(self) -> str:
        return f"Walks(nodes={described(self.nodes)}, lengths={described(self.lengths)})"


class Walker(Draws):
    """Walks from roots: a pure function of (key, graph, state, roots).

    A walker is a subclass, a frozen dataclass of its hyper-parameters like a `Sampler`. A step
    goes from a node to one of its in-neighbours, because the walk reads the graph's rows, as
    messages do. On a symmetric graph that is a step along an edge in either direction.

    The random bits of a walk depend on the key, its root and the root's cutoff, the number of
    earlier roots in the batch that are the same node with the same cutoff, and the step. So
    several walks from one root differ, and do so also after they have met. Neither padding nor
    the order of different roots changes a walk.

    Roots with times (`Seeds.time`): each step has a cutoff, and draws by its law among the
    edges before it, as if the graph had no others. The cutoff of every step is the root's.
    Steps of causal walks have cutoffs of their own: the first step has the root's, and each
    later one the time of the edge that the walk took before. So times fall strictly along a
    causal walk, which goes back in time because steps go from targets to sources. Read from its
    last node to its root, it is a path along which something can have spread.

    Attributes:
      length: int; `L`, the largest number of steps of a walk.
      weighted: bool; whether steps draw by weight.
      window: int or None; how far before its cutoff an edge of a step may be. In a causal walk
        that is the longest time between an edge and the next.
      causal: bool; whether a step's cutoff is the time of the edge before.
      by_source: bool; whether every row of the graph must be sorted by source, if its edges
        have no times.
    """

    length: int
    weighted: bool
    window: int | None = None
    causal: bool = False
    by_source: bool = False

    @abstractmethod
    def rule(self, graph: Graph, state: State, seeds: Seeds) -> Rule:
        """The plain form: which edge a step draws. Traced under x64."""

    def kernel_reads(self, graph: Graph, state: State) -> dict[str, Any]:
        """What steps of the kernel draw by, besides the fields that are named as those of
        `Walk`; see `call_walks`."""
        return {}

    def jump(
        self, graph: Graph, seeds: Seeds, keys: jax.Array, at: Place, step: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        """Where walks are after a `step`: the nodes int32 `[B]` to which it led, and the
        cutoffs of the next step."""
        return step

    def check_state(self, graph: Graph, state: State) -> None:
        """Raises `InputError` unless `state` may be what `init` returned for the graph."""

    def check_seeds(self, graph: Graph, state: State, seeds: Seeds) -> None:
        """Raises `InputError` where walks from these seeds need others or another state."""
        checks.check_timed(self, seeds)

    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: None = None
    ) -> Walks:
        """A walk from each of the `seeds`, `Seeds` or int `[B]` with `N` for padding; jittable.

        The arguments are those of `Sampler.sample`. For seeds `[S, B]` the key is an array of
        `S` keys. `capacity` is not used, because the size of a walk is known.
        """
        checks.check_graph(graph, self.weighted)
        self.check_state(graph, state)
        seeds = checks.checked_seeds(self, graph, seeds)
        self.check_seeds(graph, state, seeds)
        key_data = as_key_data(key, seeds.nodes.shape[:-1])
        operands = vary_alike(key_data, graph, state, seeds)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            return _walks(*operands, self)


def relation_path(graph: Graph, relations: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of `relations`, names or triples, that successive steps follow.

    A step goes from a target to a source of its relation. So each relation's source type must
    be the target type of the next one. Raises `InputError`, also for a graph without a schema.
    """
    if graph.schema is None or graph.edge_type is None:
        raise InputError(
            "steps along relations need a typed graph",
            "one without a schema" if graph.schema is None else "one whose edges have no types",
            "Make it with Graph.from_relations.",
        )
    numbers = tuple(graph.schema.relation(one) for one in relations)
    named = [graph.schema.relations[number] for number in numbers]
    for one, after in pairwise(named):
        if one[0] != after[2]:
            raise InputError(
                "each relation's source type must be the target type of the next",
                f"({', '.join(one)}) before ({', '.join(after)})",
                "Steps go from targets to sources: turn the path round, or use reverse "
                "relations.",
            )
    return numbers


class Place(NamedTuple):
    """Where `B` walks are before a step: the step's number, uint32 from 1 on; int32 `[B]`, the
    nodes one step before, `N` before the first step, and where the walks are, `N` after their
    ends; and the cutoffs int64 `[B]` that the step's edges are before, or None."""

    step: jax.Array
    previous: jax.Array
    here: jax.Array
    cutoff: jax.Array | None


# rule(keys, at) draws the next step of `B` walks, whose keys are uint32 `[B, 2]`, from the
# `Place` where they are: int64 `[B]`, the edges along which they go, `E` for a walk that cannot
# go on or has ended before.
Rule = Callable[[jax.Array, Place], jax.Array]


@partial(jax.jit, static_argnums=4)
def _walks(
    key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, walker: Walker
) -> Walks:
    one = partial(walk, walker=walker)
    plain = jax.vmap(one, (0, None, None, 0)) if seeds.nodes.ndim > 1 else one
    kernel = partial(call_walks, walker=walker)
    return where_it_is(kernel, plain, key_data, graph, state, seeds)


def call_walks(
    key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, walker: Walker
) -> Walks:
    """The result of `walk` for roots `[..., B]` and keys `[..., 2]`, by jgs/kernels/walk.cc and
    walk_second.cc.

    The walker's `kernel_reads` may be:
      stretches: int64 `[U, N, 2]`: `U` parts of every row, each with the position of its first
        edge and its number of edges.
      relations: the index among the `U` parts that each step draws from, repeated for longer
        walks. By default steps draw from whole rows.
      second: the fields of `SecondOrder` in jgs/kernels/walk.h, for a walk of second order.
      sums: int64 `[E]`, `jgs.sampling.edges.recency.decayed_sums`, with a `half_life`.
      by_source, weight_by_source: the fields of
        `jgs.sampling.algorithms.node2vec.BySource`. By default rows are sorted by
        source.
      index: the `jgs.graph.grouping.RelationIndex` of a graph of several
        relations. Steps from roots with times draw by it.
    """
    edges, attributes = kernel_arguments(graph, state, seeds, walker)

    def run(key_data: jax.Array, arrays: Any, seeds: Seeds) -> Walks:
        limits = longs_or_empty(seeds.time), longs_or_empty(seeds.excluded)
        shape = (*seeds.nodes.shape, walker.length + 1)
        out = [jax.ShapeDtypeStruct(s, jnp.int32) for s in (shape, shape[:-1])]
        operands = (key_data, *arrays, seeds.nodes, *limits)
        return Walks(*call("jgs_walk", out, operands, kernels.NUM_THREADS, **attributes))

    return call_once(run, key_data, edges, seeds)


def kernel_arguments(
    graph: Graph, state: State, seeds: Seeds, walker: Walker
) -> tuple[tuple[jax.Array, ...], dict[str, Any]]:
    """The arrays of the graph and of the state that steps read in a kernel, and the attributes
    that say how they draw; see `call_walks`."""
    reads = walker.kernel_reads(graph, state)
    numbers = {"window": -1, "latest": -1, "half_life": 0}
    numbers |= {n: getattr(walker, n) for n in numbers if getattr(walker, n, None)}
    attributes = {
        "length": np.int64(walker.length),
        "weighted": np.bool_(walker.weighted),
        "restart": np.int64(limit(getattr(walker, "restart", 0.0))),
        "stop": np.int64(limit(getattr(walker, "stop", 0.0))),
        "relations": np.array(reads.get("relations", ()), np.int64),
        "second": np.array(reads.get("second", ()), np.int64),
        "causal": np.bool_(walker.causal),
        **{name: np.int64(number) for name, number in numbers.items()},
    }
    index = (None, None) if seeds.time is None else reads.get("index", (None, None))
    edges = (
        graph.edge_weight_prefix if walker.weighted else None,
        reads.get("stretches"),
        None if seeds.time is None else graph.edge_time,
        *(reads.get(name) for name in ("sums", "by_source", "weight_by_source")),
        *index,
    )
    return (graph.indptr, graph.indices, *map(longs_or_empty, edges)), attributes


def walk_numbers(roots: jax.Array, cutoff: jax.Array | None = None) -> jax.Array:
    """int32 `[B]`: for each root, the number of earlier roots that are the same node and, if
    there are cutoffs int64 `[B]`, have the same one."""
    place = jnp.arange(roots.shape[0], dtype=jnp.int32)
    keys = [roots] if cutoff is None else [roots, cutoff]
    *ordered, order = jax.lax.sort([*keys, place], num_keys=len(keys), is_stable=True)
    differs = jnp.zeros(max(roots.size - 1, 0), bool)
    for key in ordered:
        differs |= key[1:] != key[:-1]
    starts = jnp.concatenate([jnp.ones(1, bool), differs])[: roots.size]
    begin = jax.lax.cummax(jnp.where(starts, place, 0))
    return jnp.zeros_like(place).at[order].set(place - begin)


def walker_keys(key_data: jax.Array, roots: jax.Array, number: jax.Array) -> jax.Array:
    """uint32 `[B, 2]`: the key of each walk, from the call's key uint32 `[2]` or those of the
    roots' cutoffs, uint32 `[B, 2]`, its root and its number."""
    return words(key_data, roots, number).T


def step_halves(keys: jax.Array, step: jax.Array, number: Any) -> tuple[jax.Array, jax.Array]:
    """Two uint32 `[B]`: the random words of draw `number` (a scalar or `[B]`) at `step`."""
    high, low = words(keys, step, number)
    return high, low


def eligible_of(
    graph: Graph, nodes: jax.Array, of: Seeds, window: int | None = None
) -> Eligible:
    """What a step from each of the `nodes` `[B]` may draw; nothing for `N`."""
    return eligible(graph, nodes, nodes < graph.num_nodes, of.time, of.excluded, window)


def drawn_edge(
    graph: Graph, rows: Eligible, bits: jax.Array, weighted: bool, latest: int | None = None
) -> jax.Array:
    """int64 `[B]`: an eligible edge of each of the rows `[B]`, each equally likely or in
    proportion to its weight; `E` where there is none to draw. With `latest` only so many last
    edges of a row are eligible."""
    if graph.num_edges == 0:  # an empty array cannot be indexed
        return jnp.zeros_like(rows.start)
    if weighted:
        weights = weights_of(rows, graph.edge_weight_prefix)
        count = jnp.maximum(weights.total, 0)
        edge = weights.edge(below(bits, count))
    else:
        count = rows.num if latest is None else jnp.minimum(rows.num, latest)
        edge = rows.edge(rows.num - count + below(bits, count))
    return jnp.where(count > 0, edge, graph.num_edges)


def edge_of_runs(graph: Graph, runs: Eligible, bits: jax.Array, weighted: bool) -> jax.Array:
    """int64 `[B]`: an eligible edge of all the `R` runs of each of `B` rows, `runs` `[B * R]`,
    by the same law and the same bits as `drawn_edge` draws from one run with these edges."""
    if graph.num_edges == 0:
        return jnp.zeros(bits.shape, jnp.int64)
    size = runs.num
    if weighted:
        size = jnp.maximum(weights_of(runs, graph.edge_weight_prefix).total, 0)
    size = size.reshape(bits.shape[0], -1)
    ends = jnp.cumsum(size, axis=1)
    point, (num_rows, each) = below(bits, ends[:, -1]), size.shape
    run = jnp.minimum(jnp.sum(ends <= point[:, None], axis=1), each - 1)
    row = jnp.arange(num_rows)
    point = point - (ends - size)[row, run]
    rows = runs.take(row * each + run)
    if weighted:
        edge = weights_of(rows, graph.edge_weight_prefix).edge(point)
    else:
        edge = rows.edge(point)
    return jnp.where(ends[:, -1] > 0, edge, graph.num_edges)


def neighbor_by(graph: Graph, edge: jax.Array) -> jax.Array:
    """int32 `[B]`: the source of each edge, `N` for `E`."""
    if graph.num_edges == 0:
        return jnp.full(edge.shape, graph.num_nodes, jnp.int32)
    drawn = graph.indices.at[edge].get(mode="clip")
    return jnp.where(edge < graph.num_edges, drawn, graph.num_nodes)


def drawn_neighbor(graph: Graph, rows: Eligible, bits: jax.Array, weighted: bool) -> jax.Array:
    """int32 `[B]`: the source of each `drawn_edge`, `N` where there is none."""
    return neighbor_by(graph, drawn_edge(graph, rows, bits, weighted))


def walk(
    key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, walker: Walker
) -> Walks:
    """The walks from the roots `[B]` by the key data uint32 `[2]`, in plain JAX."""
    num_nodes, roots = graph.num_nodes, seeds.nodes
    bad = (roots < 0) | (roots > num_nodes)
    if seeds.excluded is not None:
        bad |= bad_excluded(seeds.excluded, graph.num_edges)
    begin = jnp.where(bad, num_nodes, roots)
    cutoff = None if seeds.time is None else jnp.where(begin < num_nodes, seeds.time, 0)
    number = walk_numbers(begin, cutoff)
    nodes, _ = paths(key_data, graph, state, seeds.replace(nodes=begin), walker, number)
    steps = jnp.sum(nodes[:, 1:] < num_nodes, axis=1, dtype=jnp.int32)
    return Walks(nodes, jnp.where(bad, -1, steps))


def paths(
    key_data: jax.Array,
    graph: Graph,
    state: State,
    seeds: Seeds,
    walker: Walker,
    number: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Walk `number` int32 `[B]` of each of the roots `[B]`, nodes or `N`: its nodes int32
    `[B, L+1]`, and the edge int64 `[B, L]` along which each step went. The edge of a step that
    jumped is undefined, and that of one after the walk's end."""
    num_nodes, begin = graph.num_nodes, seeds.nodes
    cutoff = None if seeds.time is None else jnp.where(begin < num_nodes, seeds.time, 0)
    keys = walker_keys(cutoff_keys(key_data, cutoff), begin, number)
    rule = walker.rule(graph, state, seeds)

    def go(carry, t):
        at = Place(t, *carry)
        edge, cutoff = rule(keys, at), at.cutoff
        if walker.causal and graph.num_edges > 0:
            assert graph.edge_time is not None
            cutoff = graph.edge_time.at[edge].get(mode="clip")
        step = (neighbor_by(graph, edge), cutoff)
        there, cutoff = walker.jump(graph, seeds, keys, at, step)
        return (at.here, there, cutoff), (there, edge)

    nobody = jnp.full_like(begin, num_nodes)
    carry = vary_alike(nobody, begin, cutoff, keys, graph)[:3]
    steps = jnp.arange(1, walker.length + 1, dtype=jnp.uint32)
    _, (after, edges) = jax.lax.scan(go, carry, steps)
    return jnp.concatenate([begin[None], after]).T, edges.T


def check_fields(walker: Walker) -> None:
    """Checks the fields that walkers share, and sets them; raises `InputError`."""
    object.__setattr__(walker, "length", checks.require_int("length", walker.length, 1))
    for name in ("weighted", "causal"):
        object.__setattr__(walker, name, bool(getattr(walker, name)))
    if walker.window is not None:
        object.__setattr__(walker, "window", checks.check_duration("window", walker.window))


def check_probability(name: str, value: Any) -> float:
    """`value` as a float in [0, 1]; raises `InputError`."""
    if not is_real(value) or not 0 <= value <= 1:
        raise InputError(
            f"{name} must be a probability, from 0 to 1", repr(value), "Change it."
        )
    return float(value)


def limit(probability: float) -> int:
    """A probability as a bound: a random uint32 is below it with that probability."""
    return round(probability * 2**32)


def happens(word: jax.Array, probability: float) -> jax.Array:
    """bool: for each random uint32 in `word`, True with the given `probability`."""
    return word.astype(jnp.uint64) < jnp.uint64(limit(probability))
