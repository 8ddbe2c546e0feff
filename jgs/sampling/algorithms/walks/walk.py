"""`Walk`: random walks, uniform or by edge weight, with restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import call
from jgs.sampling.base import Weighted
from jgs.sampling.checks import check_duration, check_graph, check_timed, require_int
from jgs.sampling.edges.hops_kernel import call_once
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    LENGTH,
    Walker,
    Walks,
    check_probability,
    drawn_neighbor,
    eligible_of,
    happens,
    limit,
    sample_walks,
    step_bits,
    step_halves,
    walk,
)

JUMPS = 0xFFFFFFFF  # the draw that decides whether a walk stops or goes back to its root


@dataclass(frozen=True, repr=False)
class Walk(Walker):
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

      window: for roots with times (`Seeds.time`): every step follows an edge with
        `cutoff - window <= time < cutoff`, where the cutoff is the root's. None: any edge
        before the cutoff.
      latest: for roots with times: a step draws from that many latest edges before the cutoff.
        None: from all.

    Steps do not follow excluded edges (`Seeds.excluded`). Raises `InputError` for a length
    below 1, for a number that is not a probability, and for `latest` with `weighted`.
    """

    length: Annotated[int, LENGTH]
    weighted: Weighted = False
    restart: float = 0.0
    stop: float = 0.0
    window: int | None = field(default=None, kw_only=True)
    latest: int | None = field(default=None, kw_only=True)

    takes_excluded = takes_time = True
    later_fields = ("window", "latest")

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", check_duration("window", self.window))
        if self.latest is not None:
            object.__setattr__(self, "latest", require_int("latest", self.latest, 1))
            if self.weighted:
                raise InputError(
                    "the latest edges must be drawn from without weights",
                    f"latest={self.latest}, weighted=True",
                    "Leave one of them out.",
                )
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
        seeds = Seeds.of(seeds)
        check_timed(self, seeds)
        return sample_walks(walk_kernel, walk_plain, key, graph, state, seeds, self)


def walk_kernel(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Walk
) -> Walks:
    """The result of `walk_plain`, by jgs/kernels/walk.cc."""
    times = walker.window, walker.latest
    return call_walks(key_data, graph, seeds, walker, walker.restart, walker.stop, times=times)


def call_walks(
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    walker: Any,
    restart: float = 0.0,
    stop: float = 0.0,
    stretches: jax.Array | None = None,
    relations: Sequence[int] = (),
    second: tuple[int, ...] = (),
    times: tuple[int | None, int | None] = (None, None),
) -> Walks:
    """The walks of `walker.length` steps from the `seeds`, nodes int32 `[..., B]`, with the
    keys `key_data` uint32 `[..., 2]`, by weight with `walker.weighted`: jgs/kernels/walk.cc.
    `jax.vmap` makes it one call.

    Args:
      restart, stop: see `Walk`.
      stretches: int64 `[U, N, 2]`: `U` parts of every row, each with the position of its first
        edge and its number of edges.
      relations: the index among the `U` parts that each step draws from, repeated for longer
        walks. Empty: steps draw from whole rows.
      second: the fields of `SecondOrder` in jgs/kernels/walk.h. Empty: a walk of first order.
      times: `window` and `latest` of `Walk`.
    """

    def run(key_data: jax.Array, of_graph: Any, seeds: Seeds) -> Walks:
        graph, parts = of_graph
        prefix = graph.edge_weight_prefix if walker.weighted else None
        edge_time = None if seeds.time is None else graph.edge_time
        given = (prefix, parts, edge_time, seeds.nodes, seeds.time, seeds.excluded)
        arrays = [jnp.zeros(0, jnp.int64) if array is None else array for array in given]
        shape = (*seeds.nodes.shape, walker.length + 1)
        window, latest = (-1 if number is None else number for number in times)
        nodes, lengths = call(
            "jgs_walk",
            [jax.ShapeDtypeStruct(s, jnp.int32) for s in (shape, shape[:-1])],
            (key_data, graph.indptr, graph.indices, *arrays),
            kernels.NUM_THREADS,
            length=np.int64(walker.length),
            weighted=np.bool_(walker.weighted),
            restart=np.int64(limit(restart)),
            stop=np.int64(limit(stop)),
            relations=np.array(relations, np.int64),
            second=np.array(second, np.int64),
            window=np.int64(window),
            latest=np.int64(latest),
        )
        return Walks(nodes, lengths)

    return call_once(run, key_data, (graph, stretches), seeds)


def walk_plain(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Walk
) -> Walks:
    """See `jgs.sampling.walks.Implementation`."""

    def step(keys: jax.Array, t: jax.Array, previous: jax.Array, here: jax.Array) -> jax.Array:
        rows, bits = eligible_of(graph, here, seeds, walker.window), step_bits(keys, t, 0)
        there = drawn_neighbor(graph, rows, bits, walker.weighted, walker.latest)
        if walker.restart == walker.stop == 0:
            return there
        back, end = step_halves(keys, t, JUMPS)
        walks = (here < graph.num_nodes) & (t > 1)
        there = jnp.where(walks & happens(back, walker.restart), seeds.nodes, there)
        return jnp.where(walks & happens(end, walker.stop), graph.num_nodes, there)

    return walk(key_data, graph, seeds, walker.length, step)
