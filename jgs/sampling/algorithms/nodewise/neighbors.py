"""Neighbour sampling: `Neighbors`, and `sample_neighbors` for one call.

`neighbors_draws.py` defines what it draws. On CPU devices a fused C++ kernel draws the same
bits in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.options import LONGEST, Option
from jgs.sampling.algorithms.nodewise.neighbors_draws import Reads, sample_kernel, sample_plain
from jgs.sampling.base import WINDOW, FanoutsByRelation, Weighted
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_duration, check_graph, check_has_times
from jgs.sampling.edges.columns import check_edges
from jgs.sampling.edges.recency import Recency, decayed_sums
from jgs.sampling.edges.relations import RelationIndex, index_of
from jgs.sampling.fanouts import check_fanouts
from jgs.sampling.hopwise import Hopwise, check_indptr


@dataclass(frozen=True, repr=False)
class Neighbors(Hopwise):
    """Draws, at hop `h`, `fanouts[h]` in-neighbours of every node known so far.

    This is Algorithm 2 of GraphSAGE (Hamilton et al. 2017), sampled straight into CSC as in
    Algorithm 1 of FastSample (2023). `sample_neighbors` specifies what it draws and returns.

    Fields:
      fanouts: the number of neighbours that each node draws, the seeds' hop first: with
        `(5, 10)` each seed draws 5, then each node draws 10. -1 takes all neighbours. On a
        graph with relations a fanout may be a dict of such numbers by relation: with
        `({"writes": 5, "cites": 10}, 10)` each seed draws 5 of its edges `writes` and 10 of its
        edges `cites`, and none of other relations. `"*"` stands for all relations that are not
        named.
      replace: False: the drawn neighbours are distinct. Every subset of `fanout` neighbours is
        equally likely, and all are taken where there are at most `fanout`. True: `fanout`
        independent draws wherever there is a neighbour.
      weighted: whether to draw in proportion to `graph.edge_weight` (without replacement: by
        successive draws among those left). Edges of weight 0 are never drawn, not even by -1.
      window: for seeds with times: only edges with `cutoff - window <= time < cutoff` are
        drawn. None: there is no such limit.
      latest: for seeds with times: whether a node takes the latest of its edges before the
        cutoff, as many as its fanout, in place of random ones.
      half_life: for seeds with times: an edge is drawn in proportion to
        `2**(-age / half_life)`, where its age is the time from it to the cutoff, in the unit of
        the times. Edges more than 31 half-lives older than the latest edge that is left are
        drawn at most once in 2**31 draws. None: age does not matter.
      edges: the names of the columns that the blocks carry of their edges: `"id"`, `"weight"`,
        `"type"`, `"time"`, `"elapsed"`, and names of `graph.edge_columns`. `edge_ids` is the
        first. `"weight"` and, for seeds with times, `"elapsed"` are columns that layers read,
        in the blocks' `edge_columns` (see `jgs.Block`).
      edge_ids, edge_weights: whether the blocks carry `edge_id` and `edge_weight`, which
        multiplies messages.
      relabel_inputs: False: the first block names its sources by node id, for a first layer
        that reads rows straight from the feature store (see `Block`, `MiniBatch`). The last
        hop's sources then need no capacity. Otherwise the sample is the same, bit for bit.

    Seeds with times (`Seeds.time`): what a node draws depends on (key, hop, node, cutoff). Two
    seeds' samples share a node where their cutoffs are equal. Excluded edges (`Seeds.excluded`)
    are stepped over: fanouts stay full, and the draws fit the law of the edges that are left.

    Fanouts by relation: a node draws from its edges of each relation by themselves, and what it
    draws depends on (key, hop, relation, node). `replace`, `weighted`, `window` and `latest`
    hold for each relation. The block's edges into a target are in the order of the relations.
    The state that `init` returns is an index of each node's edges by relation, of 8 bytes a
    node and 8 bytes for each relation that a node has edges of
    (`jgs.sampling.edges.relations.RelationIndex`). With () in its place the draws are the same,
    and take more time.

    With `half_life` the state is a `jgs.sampling.edges.recency.Recency`: 8 bytes an edge, and
    what it is without.

    Raises `InputError` for invalid fanouts, for `latest` with `replace`, `weighted` or
    `half_life`, and for `half_life` with `weighted`.
    """

    fanouts: FanoutsByRelation
    replace: Annotated[bool, Option("draw neighbours with replacement")] = False
    weighted: Weighted = False
    edge_ids: bool = field(default=False, repr=False)
    edge_weights: bool = field(default=False, repr=False)
    relabel_inputs: bool = field(default=True, repr=False)
    window: Annotated[int | None, WINDOW] = field(default=None, kw_only=True)
    latest: Annotated[
        bool, Option("--temporal: take the latest edges before the cutoff", first=False)
    ] = field(default=False, kw_only=True)
    half_life: Annotated[
        int | None,
        Option(
            "--temporal: the age at which an edge is drawn half as often",
            least=1,
            most=LONGEST,
            first=False,
        ),
    ] = field(default=None, kw_only=True)
    edges: tuple[str, ...] = field(default=(), repr=False, kw_only=True)

    forms = sample_kernel, sample_plain
    by_node = takes_excluded = takes_time = True
    later_fields = ("window", "latest", "half_life")

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", check_fanouts(self.fanouts, by_relation=True))
        if not isinstance(self.latest, bool | np.bool_):
            raise InputError(
                "latest must be True or False: the fanouts say how many edges are taken",
                repr(self.latest),
                "Give latest=True, and the number as a fanout.",
            )
        names = ("replace", "weighted", "latest", "edge_ids", "edge_weights", "relabel_inputs")
        for name in names:
            object.__setattr__(self, name, bool(getattr(self, name)))
        check_edges(self)
        for name in ("window", "half_life"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_duration(name, getattr(self, name)))
        if self.latest and (self.replace or self.weighted or self.half_life):
            raise InputError(
                "the latest edges must be taken without replacement and without weights",
                f"latest=True, replace={self.replace}, weighted={self.weighted}, "
                f"half_life={self.half_life}",
                "Leave these out.",
            )
        if self.half_life and self.weighted:
            raise InputError(
                "edges must be drawn by weight, or by recency",
                f"weighted=True, half_life={self.half_life}",
                "Leave one of them out.",
            )

    def init(self, graph: Graph) -> RelationIndex | Recency | tuple[()]:
        """See `Sampler`; the state is described above."""
        self._check_graph(graph)
        runs = index_of(graph) if self._draws_relations(graph) else ()
        if self.half_life is None:
            return runs
        check_has_times(graph)
        return Recency(decayed_sums(graph, self.half_life), runs)

    def _check_graph(self, graph: Graph) -> None:
        check_graph(graph, self.weighted, self.edge_weights)

    def _most_edges(self, hop: int, shape: GraphShape, targets: int, repeated: int) -> int:
        k: Any = self.fanouts[hop]
        k = k if isinstance(k, int) else k.total(shape.num_relations)
        if k == -1:
            return shape.num_edges + repeated * (shape.max_degree or 0)
        return targets * k if self.replace else min(targets * k, shape.num_edges + repeated * k)

    def _reads(self, graph: Graph, state: Any) -> Reads:
        sums: Any = ()
        if self.half_life is not None:
            if not isinstance(state, Recency) or state.sums.shape != graph.indices.shape:
                raise InputError(
                    "draws by recency read the state that init returns for the whole graph",
                    "that of another graph" if isinstance(state, Recency) else repr(state),
                    'Call sampler.init(graph); on ranks use mode="hybrid".',
                )
            sums, state = state
        if not isinstance(state, RelationIndex):
            return Reads((), sums)
        check_indptr(state.indptr, graph)
        return Reads(state, sums)

    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        k = self.fanouts[hop]
        if self.replace and isinstance(k, int) and k != -1:
            return np.where(degree > 0, k, 0)
        return super().expected_draws(hop, degree)


def sample_neighbors(
    key: Any,
    graph: Graph,
    seeds: Any,
    fanouts: Sequence[int],
    capacity: Capacity | None = None,
    replace: bool = False,
    weighted: bool = False,
    return_edge_ids: bool = False,
    return_edge_weights: bool = False,
    relabel_inputs: bool = True,
    window: int | None = None,
    latest: bool = False,
    edges: tuple[str, ...] = (),
) -> MiniBatch:
    """Sample the in-neighbourhood of `seeds`, hop by hop, as message-passing blocks:
    `Neighbors` in one call.

    At hop `h` every node known so far (the seeds and all neighbours drawn before) draws
    `fanouts[h]` of its in-neighbours. What node `v` draws at hop `h` depends on `(key, h, v)`
    alone: not on the other seeds, their order, the padding, the device or the number of
    threads. The function is jittable; `fanouts` and all arguments after it are static.

    Args:
      key: a Threefry key (`jax.random.key(0)`), used once. For several batches an array of as
        many keys (`jax.random.split(key, S)`).
      graph: the graph, of `N` nodes. Under `jax.jit` pass it as an argument, do not close over
        it.
      seeds: `Seeds`, or integer `[B]` node ids, `B >= 1`. `N` marks padding, at any position:
        it draws nothing. Each repetition of a seed has a row of its own, with an equal sample;
        edges from the seed name its first row. `[S, B]` are S batches (gSampler, SOSP 2023,
        super-batches), drawn in one call, each separately.
      fanouts, replace, weighted, relabel_inputs, window, latest, edges: the fields of
        `Neighbors`.
      capacity: static sizes, from `plan_capacity`. None takes the worst case, which is large. A
        sample that does not fit comes back empty with `overflow` set.
      return_edge_ids, return_edge_weights: its fields `edge_ids` and `edge_weights`.

    Returns:
      A `MiniBatch` of `len(fanouts)` blocks, the hop of the seeds last. For S batches all its
      arrays have a leading axis S, and each batch has the bits of a call with its own key and
      seeds.

    Raises:
      InputError: for arguments that break these rules. Seeds out of range are noticed where
        their values are known. Under `jax.jit` on a CPU the kernel fails with the same message
        (a `jax.errors.JaxRuntimeError`). The plain form, which cannot fail, returns an empty
        batch with `overflow` set and with -1 for `needed`.
    """
    sampler = Neighbors(
        fanouts,  # type: ignore[arg-type]
        replace,
        weighted,
        return_edge_ids,
        return_edge_weights,
        relabel_inputs,
        window=window,
        latest=latest,
        edges=edges,
    )
    return sampler.sample(key, graph, (), seeds, capacity)
