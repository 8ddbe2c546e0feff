"""`Walk`: random walks, uniform, by edge weight or by recency, with restart."""

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
from jgs.options import LONGEST, Option
from jgs.sampling.base import Weighted
from jgs.sampling.checks import check_duration, check_graph, check_has_times, require_int
from jgs.sampling.edges.hops_kernel import call_once
from jgs.sampling.edges.recency import Decayed, decayed_sums, drawn
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    LENGTH,
    Causal,
    Place,
    Walker,
    Walks,
    check_fields,
    check_probability,
    cutoff_after,
    drawn_edge,
    eligible_of,
    happens,
    limit,
    neighbor_by,
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
    walks with restart (Tong et al. 2006). With `causal` they are those of CTDNE (Nguyen et al.
    2018, section 3), read from their ends. Returns `Walks`; `Walker` says what a walk depends
    on, and how cutoffs hold.

    Fields:
      length: the largest number of steps of a walk.
      weighted: whether a step draws in proportion to `graph.edge_weight` instead of uniformly.
        A node whose edges all have weight 0 is then a dead end.
      restart: the probability, before each step but the first, that the walk jumps back to its
        root. The jump takes the place of the step, also at a dead end. The cutoff is then the
        root's again.
      stop: the probability, before each step but the first, that the walk ends. It is decided
        before `restart`. DGL's `restart_prob` is this probability.

      causal: for roots with times (`Seeds.time`): whether the times fall along a walk, see
        `Walker`.
      window: for roots with times: every step follows an edge with
        `cutoff - window <= time < cutoff`, where the cutoff is the step's. None: any edge
        before the cutoff.
      latest: for roots with times: a step draws from that many latest edges before its cutoff.
        None: from all.
      half_life: for roots with times: a step draws in proportion to `2**(-age / half_life)`,
        where an edge's age is the time from it to the step's cutoff. CTDNE's exponential bias
        is this one. The law is exact as far as that of `Neighbors` is. The state that `init`
        returns is then int64 `[E]`. None: age does not matter.

    Steps do not follow excluded edges (`Seeds.excluded`). Raises `InputError` for a length
    below 1, for a number that is not a probability, and for two of `weighted`, `latest` and
    `half_life`.
    """

    length: Annotated[int, LENGTH]
    weighted: Weighted = False
    restart: float = 0.0
    stop: float = 0.0
    window: int | None = field(default=None, kw_only=True)
    latest: int | None = field(default=None, kw_only=True)
    half_life: Annotated[
        int | None,
        Option(
            "the age, before each step's cutoff, at which an edge is drawn half as often",
            least=1,
            most=LONGEST,
        ),
    ] = field(default=None, kw_only=True)
    causal: Causal = field(default=False, kw_only=True)

    takes_excluded = takes_time = True
    later_fields = ("window", "latest", "half_life", "causal")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.half_life is not None:
            object.__setattr__(self, "half_life", check_duration("half_life", self.half_life))
        if self.latest is not None:
            object.__setattr__(self, "latest", require_int("latest", self.latest, 1))
        ways = (self.weighted, self.latest is not None, self.half_life is not None)
        if sum(ways) > 1:
            raise InputError(
                "a step must draw by weight, or by recency, or from the latest edges",
                f"weighted={self.weighted}, latest={self.latest}, half_life={self.half_life}",
                "Leave out the others.",
            )
        for name in ("restart", "stop"):
            object.__setattr__(self, name, check_probability(name, getattr(self, name)))

    def init(self, graph: Graph) -> jax.Array | tuple[()]:
        """See `Draws`; the state is described above."""
        check_graph(graph, self.weighted)
        if self.half_life is None:
            return ()
        check_has_times(graph)
        return decayed_sums(graph, self.half_life)

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: None = None
    ) -> Walks:
        shape = getattr(state, "shape", None)
        if self.half_life is not None and shape != jnp.shape(graph.indices):
            raise InputError(
                "walks by recency read the state that init returns for the graph",
                repr(state) if shape is None else f"one of shape {list(shape)}",
                "Call walker.init(graph).",
            )
        return sample_walks(walk_kernel, walk_plain, key, graph, state, seeds, self)


def walk_kernel(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Walk
) -> Walks:
    """The result of `walk_plain`, by jgs/kernels/walk.cc."""
    reads = None if walker.half_life is None else state
    return call_walks(key_data, graph, seeds, walker, sums=reads)


def call_walks(
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    walker: Any,
    stretches: jax.Array | None = None,
    relations: Sequence[int] = (),
    second: tuple[int, ...] = (),
    sums: jax.Array | None = None,
    by_source: jax.Array | None = None,
    weight_by_source: jax.Array | None = None,
) -> Walks:
    """The walks of `walker.length` steps from the `seeds`, nodes int32 `[..., B]`, with the
    keys `key_data` uint32 `[..., 2]`, by weight with `walker.weighted`: jgs/kernels/walk.cc.
    `jax.vmap` makes it one call.

    What else steps draw by are fields of the walker that are named as those of `Walk`.

    Args:
      stretches: int64 `[U, N, 2]`: `U` parts of every row, each with the position of its first
        edge and its number of edges.
      relations: the index among the `U` parts that each step draws from, repeated for longer
        walks. Empty: steps draw from whole rows.
      second: the fields of `SecondOrder` in jgs/kernels/walk.h. Empty: a walk of first order.
      sums: int64 `[E]`, `jgs.sampling.edges.recency.decayed_sums`, with a `half_life`.
      by_source, weight_by_source: int64 `[E]` each, the fields of
        `jgs.sampling.algorithms.walks.by_source.BySource`. None: rows are sorted by source.
    """

    def run(key_data: jax.Array, of_graph: Any, seeds: Seeds) -> Walks:
        graph, (parts, *beside) = of_graph
        prefix = graph.edge_weight_prefix if walker.weighted else None
        edge_time = None if seeds.time is None else graph.edge_time
        given = (prefix, parts, edge_time, *beside, seeds.nodes, seeds.time, seeds.excluded)
        arrays = [jnp.zeros(0, jnp.int64) if array is None else array for array in given]
        shape = (*seeds.nodes.shape, walker.length + 1)
        numbers = {"window": -1, "latest": -1, "half_life": 0}
        numbers |= {n: getattr(walker, n) for n in numbers if getattr(walker, n, None)}
        nodes, lengths = call(
            "jgs_walk",
            [jax.ShapeDtypeStruct(s, jnp.int32) for s in (shape, shape[:-1])],
            (key_data, graph.indptr, graph.indices, *arrays),
            kernels.NUM_THREADS,
            length=np.int64(walker.length),
            weighted=np.bool_(walker.weighted),
            restart=np.int64(limit(getattr(walker, "restart", 0.0))),
            stop=np.int64(limit(getattr(walker, "stop", 0.0))),
            relations=np.array(relations, np.int64),
            second=np.array(second, np.int64),
            causal=np.bool_(walker.causal),
            **{name: np.int64(number) for name, number in numbers.items()},
        )
        return Walks(nodes, lengths)

    beside = (stretches, sums, by_source, weight_by_source)
    return call_once(run, key_data, (graph, beside), seeds)


def walk_plain(
    key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, walker: Walk
) -> Walks:
    """See `jgs.sampling.walks.Implementation`."""

    def step(keys: jax.Array, at: Place) -> tuple[jax.Array, jax.Array | None]:
        of = seeds.replace(time=at.cutoff)
        rows, bits = eligible_of(graph, at.here, of, walker.window), step_bits(keys, at.step, 0)
        if walker.half_life is not None and graph.num_edges > 0:
            assert graph.edge_time is not None
            by = Decayed(rows, state, graph.edge_time, walker.half_life)
            edge = jnp.where(rows.num > 0, drawn(bits, by), graph.num_edges)
        else:
            edge = drawn_edge(graph, rows, bits, walker.weighted, walker.latest)
        there = neighbor_by(graph, edge)
        cutoff = cutoff_after(graph, at.cutoff, edge, walker.causal)
        if walker.restart == walker.stop == 0:
            return there, cutoff
        back, end = step_halves(keys, at.step, JUMPS)
        walks = (at.here < graph.num_nodes) & (at.step > 1)
        back = walks & happens(back, walker.restart)
        there = jnp.where(back, seeds.nodes, there)
        cutoff = None if cutoff is None else jnp.where(back, seeds.time, cutoff)
        return jnp.where(walks & happens(end, walker.stop), graph.num_nodes, there), cutoff

    return walk(key_data, graph, seeds, walker.length, step)
