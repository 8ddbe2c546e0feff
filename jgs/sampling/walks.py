"""Walks: what a walker is, which random bits are its own, and how it goes from step to step.

The plain functions here are integer arithmetic in 64 bits: trace them under
`jax.enable_x64(True)`. `jgs/kernels/walk.h` has the same in C++.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import on_cpu, vary_alike
from jgs.sampling import draw
from jgs.sampling.base import State
from jgs.sampling.checks import check_graph, check_seeds
from jgs.sampling.random import as_key_data, below


class Walks(NamedTuple):
    """Walks of at most `L` steps from `B` roots.

    Fields:
      nodes: int32 `[..., B, L+1]`; the root, then the node after each step. `N` after a walk's
        end, and everywhere in the row of a root that is padding.
      lengths: int32 `[..., B]`; how many steps each walk took, 0 for padding. A walk that met a
        dead end, or stopped, took fewer than `L`. -1 for a root that is neither a node nor
        `N`; such roots are refused where their values are known, and by the kernels.
    """

    nodes: jax.Array
    lengths: jax.Array


@runtime_checkable
class Walker(Protocol):
    """Walks from roots: a pure function of (key, graph, state, roots).

    A walker is a frozen dataclass of its hyper-parameters, like a `Sampler`. A step goes from a
    node to one of its in-neighbours: the walk reads the graph's rows, as messages are read. On
    a symmetric graph that is a step along an edge in either direction.

    What a walk draws depends on the key, its root, how many earlier roots of the batch are the
    same node, and the step. So each of a root's walks goes its own way, also after it has met
    another one, and neither padding nor the order of different roots changes a walk.

    Attributes:
      length: `L`, the most steps of a walk.
    """

    @property
    def length(self) -> int: ...

    def init(self, graph: Graph) -> State:
        """What depends on the graph alone, as a pytree; () if nothing. Raises `InputError`
        where the graph lacks what the walker needs."""

    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: None = None
    ) -> Walks:
        """A walk from each of the `seeds`, int `[B]` with `N` for padding; jittable.

        Args:
          key: a Threefry key, typed or as its key data uint32 `[2]`, used once. For seeds
            `[S, B]` an array of `S` keys.
          graph, state: of `init`; arguments of the jitted function.
          capacity: not used, since a walk's size is known. `Sampler.sample` has it.
        """


# step(keys, t, previous, here): by the walkers' keys uint32 `[B, 2]`, the nodes int32 `[B]`
# after step `t` (from 1) of those who are at `here` and were at `previous` a step before, `N`
# before the first. `N`: there is no way on, or nobody at `here`.
Step = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]

# An implementation of a walker: `(key_data, graph, state, roots, walker)` to walks. A plain
# one has roots int32 `[B]` and the key data uint32 `[2]` of one key. A kernel has roots
# `[..., B]` and the key data `[..., 2]` of as many keys.
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
    """What `walker.sample` returns. On a CPU `kernel` draws it, elsewhere `plain`, two
    functions of a module."""
    check_graph(graph, walker.weighted)
    roots = check_seeds(seeds, graph.num_nodes)
    key_data = as_key_data(key, roots.shape[:-1])
    key_data, graph, state, roots = vary_alike(key_data, graph, state, roots)
    with jax.enable_x64(True):  # edge offsets are 64-bit, whatever the caller's setting
        return _walks(kernel, plain, key_data, graph, state, roots, walker, kernels.host_only())


@partial(jax.jit, static_argnums=(0, 1, 6, 7))
def _walks(
    kernel: Implementation,
    plain: Implementation,
    key_data: jax.Array,
    graph: Graph,
    state: State,
    roots: jax.Array,
    walker: Any,
    host_only: bool,
) -> Walks:
    one = partial(plain, walker=walker)
    of_all = jax.vmap(one, (0, None, None, 0)) if roots.ndim > 1 else one
    return on_cpu(partial(kernel, walker=walker), of_all, key_data, graph, state, roots)


def walk_numbers(roots: jax.Array) -> jax.Array:
    """int32 `[B]`: of each root how many earlier ones are the same node."""
    place = jnp.arange(roots.shape[0], dtype=jnp.int32)
    order = jnp.argsort(roots, stable=True)
    ordered = roots[order]
    first = jnp.r_[True, ordered[1:] != ordered[:-1]]
    begin = jax.lax.cummax(jnp.where(first, place, 0))
    return jnp.zeros_like(place).at[order].set(place - begin)


def walker_keys(key_data: jax.Array, roots: jax.Array, number: jax.Array) -> jax.Array:
    """uint32 `[B, 2]`: the key of each walk, from the call's key, its root and its number."""
    counter = jnp.stack([roots.astype(jnp.uint32), number.astype(jnp.uint32)])
    return threefry_2x32(key_data, counter.reshape(-1)).reshape(counter.shape).T


def step_halves(keys: jax.Array, step: jax.Array, number: Any) -> tuple[jax.Array, jax.Array]:
    """Two uint32 `[B]`: the random words of draw `number` (a scalar or `[B]`) at `step`."""
    shape = keys.shape[:1]
    counter = [jnp.broadcast_to(jnp.asarray(x, jnp.uint32), shape) for x in (step, number)]
    high, low = jax.vmap(threefry_2x32)(keys, jnp.stack(counter, axis=1)).T
    return high, low


def step_bits(keys: jax.Array, step: jax.Array, number: Any) -> jax.Array:
    """uint64 `[B]`: those bits as one number."""
    high, low = step_halves(keys, step, number)
    return (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)


def rows_of(graph: Graph, nodes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int64 `[B]` each: where the rows of `nodes` begin among the edges, and their lengths;
    0 for a node `N`."""
    real = nodes < graph.num_nodes
    start = jnp.where(real, graph.indptr.at[nodes].get(mode="clip"), 0)
    end = jnp.where(real, graph.indptr.at[nodes + 1].get(mode="clip"), 0)
    return start, end - start


def neighbor_at(graph: Graph, edge: jax.Array, drawn: jax.Array) -> jax.Array:
    """int32 `[B]`: the source of each edge where one was `drawn`, else `N`."""
    if graph.num_edges == 0:  # nothing can index no edges
        return jnp.full(edge.shape, graph.num_nodes, jnp.int32)
    return jnp.where(drawn, graph.indices.at[edge].get(mode="clip"), graph.num_nodes)


def drawn_neighbor(
    graph: Graph,
    start: jax.Array,
    degree: jax.Array,
    bits: jax.Array,
    weighted: bool,
    before: jax.Array | int = 0,
) -> jax.Array:
    """int32 `[B]`: one of the `degree` neighbours from `start` on, all alike or in proportion
    to the edges' weights; `N` where there is none to draw. Of part of a row `before` is what
    the edges before it weigh, see `draw.row_weight`."""
    if graph.num_edges == 0:
        return neighbor_at(graph, start, start < 0)
    if weighted:
        prefix = graph.edge_weight_prefix
        assert prefix is not None
        total = jnp.maximum(draw.row_weight(prefix, start, degree) - before, 0)
        position = draw.find(prefix, start, degree, before + below(bits, total))
    else:
        total, position = degree, below(bits, degree)
    return neighbor_at(graph, start + position, total > 0)


def count_less(
    values: jax.Array, start: jax.Array, count: jax.Array, bound: jax.Array
) -> jax.Array:
    """int64 `[B]`: how many of the `count` ascending values from `start` on are less than
    `bound`, by binary search."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        less = (low < high) & (values.at[start + middle].get(mode="clip") < bound)
        return jnp.where(less, middle + 1, low), jnp.where(less, high, middle)

    low, high, _ = vary_alike(jnp.zeros_like(count), count, values)
    if values.shape[0] == 0:
        return low
    return jax.lax.fori_loop(0, 32, halve, (low, high))[0]


def walk(key_data: jax.Array, graph: Graph, roots: jax.Array, length: int, step: Step) -> Walks:
    """Walks of `length` from `roots` int32 `[B]` by the key `key_data` uint32 `[2]`."""
    num_nodes = graph.num_nodes
    bad = (roots < 0) | (roots > num_nodes)
    begin = jnp.where(bad, num_nodes, roots)
    keys = walker_keys(key_data, begin, walk_numbers(begin))

    def go(state, t):
        previous, here = state
        there = step(keys, t, previous, here)
        return (here, there), there

    nobody = jnp.full_like(begin, num_nodes)
    state = vary_alike(nobody, begin, keys, graph)[:2]
    _, after = jax.lax.scan(go, state, jnp.arange(1, length + 1, dtype=jnp.uint32))
    nodes = jnp.concatenate([begin[None], after]).T
    steps = jnp.sum(nodes[:, 1:] < num_nodes, axis=1, dtype=jnp.int32)
    return Walks(nodes, jnp.where(bad, -1, steps))


def check_probability(name: str, value: Any) -> float:
    """`value` as a float in [0, 1]; raises `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(
            f"{name} must be a probability, from 0 to 1", repr(value), "Change it."
        )
    return float(value)


def limit(probability: float) -> int:
    """A probability as the number that a random 32-bit word is below."""
    return round(probability * 2**32)


def happens(word: jax.Array, probability: float) -> jax.Array:
    """bool: whether each random uint32 says that something of this probability happens."""
    return word.astype(jnp.uint64) < jnp.uint64(limit(probability))
