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

from jgs.arrays import described
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import vary_alike, where_it_is
from jgs.options import Option
from jgs.sampling.base import Draws, State
from jgs.sampling.checks import (
    check_duration,
    check_graph,
    check_timed,
    checked_seeds,
    require_int,
)
from jgs.sampling.edges.eligible import Eligible, bad_excluded, eligible, weights_of
from jgs.sampling.edges.random import as_key_data, below, cutoff_keys, node_bits, words
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

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
    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: None = None
    ) -> Walks:
        """A walk from each of the `seeds`, `Seeds` or int `[B]` with `N` for padding; jittable.

        The arguments are those of `Sampler.sample`. For seeds `[S, B]` the key is an array of
        `S` keys. `capacity` is not used, because the size of a walk is known.
        """


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
    """Where `B` walks are before a step.

    Fields:
      step: uint32 `[]`; the number of the step, counted from 1.
      previous: int32 `[B]`; the nodes one step before, `N` before the first step.
      here: int32 `[B]`; the nodes where the walks are, `N` after their ends.
      cutoff: int64 `[B]`; the step's edge is before it. None: there are no times.
    """

    step: jax.Array
    previous: jax.Array
    here: jax.Array
    cutoff: jax.Array | None


# step(keys, at) makes the next step of `B` walks, whose keys are uint32 `[B, 2]`, from the
# `Place` where they are. It returns the next nodes, int32 `[B]`, which are `N` where a walk
# cannot go on or has ended before; and the cutoffs of the step after, int64 `[B]` or None.
Step = Callable[[jax.Array, Place], tuple[jax.Array, jax.Array | None]]

# An implementation of a walker: a function of `(key_data, graph, state, seeds, walker)` that
# returns walks. A plain one takes `Seeds` of roots int32 `[B]` and the data uint32 `[2]` of one
# key. A kernel takes `Seeds` of roots `[..., B]` and the data `[..., 2]` of as many keys.
Implementation = Callable[..., Walks]


def sample_walks(
    kernel: Implementation,
    plain: Implementation,
    key: Any,
    graph: Graph,
    state: State,
    seeds: Any,
    walker: Any,
) -> Walks:
    """What `walker.sample` returns, drawn by `kernel` on a CPU and by `plain` elsewhere. Both
    must be functions at the top level of a module."""
    check_graph(graph, walker.weighted)
    seeds = checked_seeds(walker, graph, seeds)
    check_timed(walker, seeds)
    key_data = as_key_data(key, seeds.nodes.shape[:-1])
    key_data, graph, state, seeds = vary_alike(key_data, graph, state, seeds)
    with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
        return _walks(kernel, plain, key_data, graph, state, seeds, walker)


@partial(jax.jit, static_argnums=(0, 1, 6))
def _walks(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Graph,
    state: State,
    seeds: Seeds,
    walker: Any,
) -> Walks:
    one = partial(plain, walker=walker)
    of_all = jax.vmap(one, (0, None, None, 0)) if seeds.nodes.ndim > 1 else one
    return where_it_is(partial(kernel, walker=walker), of_all, key_data, graph, state, seeds)


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


def step_bits(keys: jax.Array, step: jax.Array, number: Any) -> jax.Array:
    """uint64 `[B]`: the two words of `step_halves` as one number."""
    return node_bits(keys, step, number)


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
        weights = weights_of(rows, graph.edge_weight_prefix, graph.indptr)
        count = jnp.maximum(weights.total, 0)
        edge = weights.edge(below(bits, count))
    else:
        count = rows.num if latest is None else jnp.minimum(rows.num, latest)
        edge = rows.edge(rows.num - count + below(bits, count))
    return jnp.where(count > 0, edge, graph.num_edges)


def neighbor_by(graph: Graph, edge: jax.Array) -> jax.Array:
    """int32 `[B]`: the source of each edge, `N` for `E`."""
    if graph.num_edges == 0:
        return jnp.full(edge.shape, graph.num_nodes, jnp.int32)
    drawn = graph.indices.at[edge].get(mode="clip")
    return jnp.where(edge < graph.num_edges, drawn, graph.num_nodes)


def drawn_neighbor(graph: Graph, rows: Eligible, bits: jax.Array, weighted: bool) -> jax.Array:
    """int32 `[B]`: the source of each `drawn_edge`, `N` where there is none."""
    return neighbor_by(graph, drawn_edge(graph, rows, bits, weighted))


def cutoff_after(
    graph: Graph, cutoff: jax.Array | None, edge: jax.Array, causal: bool
) -> jax.Array | None:
    """The cutoffs int64 `[B]` of the steps after those along the edges `[B]`, whose own were
    `cutoff`: the times of the edges for `causal` walks."""
    if not causal or graph.num_edges == 0:
        return cutoff
    assert graph.edge_time is not None
    return graph.edge_time.at[edge].get(mode="clip")


def walk(key_data: jax.Array, graph: Graph, seeds: Seeds, length: int, step: Step) -> Walks:
    """Walks of at most `length` steps from the roots `[B]`, by the key data uint32 `[2]`."""
    num_nodes, roots = graph.num_nodes, seeds.nodes
    bad = (roots < 0) | (roots > num_nodes)
    if seeds.excluded is not None:
        bad |= bad_excluded(seeds.excluded, graph.num_edges)
    begin = jnp.where(bad, num_nodes, roots)
    cutoff = None if seeds.time is None else jnp.where(begin < num_nodes, seeds.time, 0)
    keys = walker_keys(cutoff_keys(key_data, cutoff), begin, walk_numbers(begin, cutoff))

    def go(state, t):
        previous, here, cutoff = state
        there, cutoff = step(keys, Place(t, previous, here, cutoff))
        return (here, there, cutoff), there

    nobody = jnp.full_like(begin, num_nodes)
    state = vary_alike(nobody, begin, cutoff, keys, graph)[:3]
    _, after = jax.lax.scan(go, state, jnp.arange(1, length + 1, dtype=jnp.uint32))
    nodes = jnp.concatenate([begin[None], after]).T
    steps = jnp.sum(nodes[:, 1:] < num_nodes, axis=1, dtype=jnp.int32)
    return Walks(nodes, jnp.where(bad, -1, steps))


def check_fields(walker: Walker) -> None:
    """Checks the fields that walkers share, and sets them; raises `InputError`."""
    object.__setattr__(walker, "length", require_int("length", walker.length, 1))
    for name in ("weighted", "causal"):
        object.__setattr__(walker, name, bool(getattr(walker, name)))
    if walker.window is not None:
        object.__setattr__(walker, "window", check_duration("window", walker.window))


def check_probability(name: str, value: Any) -> float:
    """`value` as a float in [0, 1]; raises `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
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
