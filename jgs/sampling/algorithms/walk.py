"""`Walk`: random walks, uniform or by edge weight, with restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Graph
from jgs.sampling.algorithms.walk_kernel import call_walks
from jgs.sampling.checks import check_graph, require_int
from jgs.sampling.walks import (
    Walks,
    check_probability,
    drawn_neighbor,
    happens,
    rows_of,
    sample_walks,
    step_bits,
    step_halves,
    walk,
)

JUMPS = 0xFFFFFFFF  # the draw that decides whether a walk stops or goes back to its root


@dataclass(frozen=True)
class Walk:
    """Walks whose every step draws one of the node's in-neighbours.

    DeepWalk (Perozzi et al. 2014, section 4.1) makes such walks. With `restart` they are random
    walks with restart (Tong et al. 2006). Returns `Walks`; `Walker` says what a walk depends
    on.

    Fields:
      length: the largest number of steps of a walk.
      weighted: whether a step draws in proportion to `graph.edge_weight` instead of uniformly.
        A node whose edges all have weight 0 is then a dead end.
      restart: the probability, before each step but the first, that the walk jumps back to its
        root. The jump takes the place of the step, also at a dead end.
      stop: the probability, before each step but the first, that the walk ends. It is decided
        before `restart`. DGL's `restart_prob` is this probability.

    Raises `InputError` for a length below 1 and for a number that is not a probability.
    """

    length: int
    weighted: bool = False
    restart: float = 0.0
    stop: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", require_int("length", self.length, 1))
        object.__setattr__(self, "weighted", bool(self.weighted))
        for name in ("restart", "stop"):
            object.__setattr__(self, name, check_probability(name, getattr(self, name)))

    def init(self, graph: Graph) -> tuple[()]:
        check_graph(graph, self.weighted)
        return ()

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: None = None
    ) -> Walks:
        return sample_walks(walk_kernel, walk_plain, key, graph, state, seeds, self)


def walk_kernel(
    key_data: jax.Array, graph: Graph, state: Any, roots: jax.Array, walker: Walk
) -> Walks:
    """The result of `walk_plain`, by jgs/kernels/walk.cc."""
    return call_walks(key_data, graph, roots, walker, walker.restart, walker.stop)


def walk_plain(
    key_data: jax.Array, graph: Graph, state: Any, roots: jax.Array, walker: Walk
) -> Walks:
    """See `jgs.sampling.walks.Implementation`."""

    def step(keys: jax.Array, t: jax.Array, previous: jax.Array, here: jax.Array) -> jax.Array:
        start, degree = rows_of(graph, here)
        bits = step_bits(keys, t, 0)
        there = drawn_neighbor(graph, start, degree, bits, walker.weighted)
        if walker.restart == walker.stop == 0:
            return there
        back, end = step_halves(keys, t, JUMPS)
        walks = (here < graph.num_nodes) & (t > 1)
        there = jnp.where(walks & happens(back, walker.restart), roots, there)
        return jnp.where(walks & happens(end, walker.stop), graph.num_nodes, there)

    return walk(key_data, graph, roots, walker.length, step)
