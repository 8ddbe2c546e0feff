"""Neighbour sampling: `Neighbors`. What it draws within each target's row is defined in
plain JAX. On CPU devices a fused C++ kernel, jgs/kernels/sample.cc, draws the same bits in
one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.grouping import RUN_BITS, RelationIndex, index_of
from jgs.options import LONGEST, Option
from jgs.sampling.base import WINDOW, FanoutsByRelation, Weighted
from jgs.sampling.capacity import GraphShape
from jgs.sampling.checks import check_duration, check_graph, check_has_times
from jgs.sampling.edges import draw, recency
from jgs.sampling.edges.columns import check_edges, compacted
from jgs.sampling.edges.eligible import WITHIN, Eligible, rows_of, weights_of
from jgs.sampling.edges.hops import DrawnEdges, Hop, HopDraw, Sample, call_hops, sample_hops
from jgs.sampling.edges.random import cutoff_keys, fold
from jgs.sampling.edges.recency import Recency, decayed_sums
from jgs.sampling.edges.slots import row_of_slot
from jgs.sampling.fanouts import check_fanouts, relations_of
from jgs.sampling.hopwise import Hopwise, check_indptr
from jgs.sampling.seeds import Seeds


def runs_of(graph: Graph, index: RelationIndex, nodes: jax.Array) -> Eligible:
    """The runs of each of the `nodes` int32 `[T]` as `R` stretches `[T * R]`, by the index of
    the graph, which has `R` relations. A node's runs come first, ascending; the others are
    empty. Ids of no nodes have none."""
    assert graph.schema is not None
    slot = jnp.arange(len(graph.schema.relations))
    row, _ = rows_of(graph.indptr, nodes)
    first, num = rows_of(index.indptr, nodes)
    at, real = first[:, None] + slot, slot < num[:, None]
    begin, end = (index.runs.at[at + i].get(mode="clip") >> RUN_BITS for i in (0, 1))
    start = jnp.where(real, begin, row[:, None]).reshape(-1)
    length = jnp.where(real, end - begin, 0).reshape(-1)
    nodes, row = (jnp.repeat(of, slot.shape[0]) for of in (nodes, row))
    return Eligible(nodes, row, start, length, length, run=start)


class Reads(NamedTuple):
    """What draws read beside the graph: for the kernel its `RelationIndex` or (), and the
    `sums` of `Recency` or ()."""

    index: Any = ()
    sums: Any = ()


def _draw(hop: Hop, rows: Eligible) -> DrawnEdges:
    how, room, k, num_rows = hop.spec.sampler, hop.room, hop.fanout, rows.nodes.shape[0]
    key_data = fold(hop.key_data, hop.number)
    some_take_all = not isinstance(k, int) and any(each == -1 for _, each in k)
    if isinstance(k, int):
        most, k = k, jnp.full(num_rows, k, jnp.int64)
    else:
        keys = jnp.stack([fold(key_data, relation) for relation, _ in k])
        times, most = num_rows // len(k), max(each for _, each in k)
        key_data = jnp.tile(keys, (times, 1))
        k = jnp.tile(jnp.array([each for _, each in k], jnp.int64), times)
    key_data = cutoff_keys(key_data, rows.cutoff)
    # A row draws `bound` neighbours, or fewer if draws are weighted.
    bound = jnp.where(rows.num > 0, k, 0) if how.replace else jnp.minimum(rows.num, k)
    bound = jnp.where(k == -1, rows.num, bound)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(room, dtype=jnp.int64)
    row = jnp.minimum(row_of_slot(ends, room), max(bound.shape[0] - 1, 0))
    nth = slot - (ends - bound).at[row].get(**WITHIN)
    given = (key_data, hop.graph, rows, row, nth, how, k, most, hop.reads.sums)
    edge, drawn = _edges(*given, some_take_all, ends - bound)
    edge = jnp.where(drawn & (slot < total), edge, -1)
    if how.weighted or how.half_life is not None:  # then a draw may have no edge
        _, (edge, row), _ = compacted(
            jnp.zeros(1, jnp.int32), edge >= 0, [(edge, -1), (row, 0)]
        )
        return edge, row, total, None, None
    return edge, row, total, None, ends


def _distinct(
    key_data: jax.Array,
    rows: Eligible,
    k: jax.Array,
    most: int,
    first: jax.Array,
    room: int,
    num_edges: int,
) -> jax.Array:
    """int64 `[room]`: the edges that each row draws, from its slot `first` int64 `[T]` on, as
    many of the `k` as it has; -1 in other slots."""
    index = jnp.arange(most)

    def step(begin: Any, size: int, edge: jax.Array) -> jax.Array:
        def own(array: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(array, begin, size)

        part, wanted = rows.part(begin, size), own(k)
        key = own(key_data) if key_data.ndim == 2 else key_data
        drawn = draw.distinct(key, part.nodes, part.num, most, wanted)
        position = jnp.where((part.num <= wanted)[:, None], index, drawn)
        kept = index < jnp.minimum(part.num, wanted)[:, None]
        slot = jnp.where(kept, own(first)[:, None] + index, room)
        slot = jnp.minimum(slot, room).astype(jnp.int32)
        found = part.along().edge(position).astype(edge.dtype)
        return edge.at[slot].set(found, mode="drop", wrap_negative_indices=False)

    few = isinstance(num_edges, int) and num_edges < 2**31  # exports do not know it
    empty = jnp.full(room, -1, jnp.int32 if few else jnp.int64)
    reads = key_data, rows, k
    return draw.in_pieces(step, k.shape[0], most, empty, reads).astype(jnp.int64)


def _edges(
    key_data: jax.Array,
    graph: Graph,
    rows: Eligible,
    row: jax.Array,
    nth: jax.Array,
    how: Any,
    k: jax.Array,
    most: int,
    sums: Any,
    some_take_all: bool,
    first: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The edge that each edge slot draws, and whether it draws one. Slot `i` is draw number
    `nth[i]` of target `row[i]`. `how` is the `Neighbors`, `k` int64 `[T]` are the fanouts, and
    `most` the largest number of random draws in a row, -1 where there are none."""
    weighted = how.weighted and graph.edge_weight_prefix is not None
    skipped = jnp.zeros_like(rows.num)
    if how.latest:
        skipped = jnp.where(k == -1, 0, jnp.maximum(rows.num - k, 0))
    everything = jnp.ones(row.shape, bool)
    if not (weighted or how.latest or how.half_life is not None or how.replace or most == -1):
        most = min(most, graph.num_edges)  # no row has more edges than the graph
        edge = _distinct(key_data, rows, k, most, first, row.shape[0], graph.num_edges)
        if some_take_all:
            edge = jnp.where(k[row] == -1, rows.edge(nth, row), edge)
        return edge, everything
    in_order = rows.edge(nth + skipped[row], row)
    if weighted:
        weights = weights_of(rows, graph.edge_weight_prefix)
        everything = weights.part(in_order, row)[1] > 0
    if most == -1 or how.latest:
        return in_order, everything
    if not how.replace:  # no row has more edges than the graph
        most = min(most, graph.num_edges)
    if how.half_life is not None:
        times = graph.edge_time
        assert times is not None
        sums = sums if sums.shape[0] else jnp.zeros(1, jnp.int64)  # there are no edges
        decayed = recency.Decayed(rows, sums, times, how.half_life)
        by_recency = draw.repeated_by if how.replace else recency.distinct
        edge, drawn = by_recency(key_data, rows.nodes, decayed, most)
    elif weighted:
        by_weight = draw.repeated_by if how.replace else draw.weighted_distinct
        edge, drawn = by_weight(key_data, rows.nodes, weights, most)
    else:
        if how.replace:
            position = draw.repeated(key_data, rows.nodes, rows.num, most)
        else:
            position = draw.distinct(key_data, rows.nodes, rows.num, most, k)
        edge = rows.along().edge(position)
        drawn = jnp.ones_like(edge, bool)
    at = (row, jnp.clip(nth, 0, most - 1))
    take_all = k[row] == -1
    if not how.replace:
        take_all |= rows.num[row] <= k[row]
    return jnp.where(take_all, in_order, edge[at]), jnp.where(take_all, everything, drawn[at])


sample_plain = partial(sample_hops, draw=_draw)


def sample_kernel(
    key_data: jax.Array, graph: Graph, reads: Reads, seeds: Seeds, spec: HopDraw
) -> list[Sample]:
    """The result of `sample_plain`."""
    how, nothing = spec.sampler, jnp.zeros(0, jnp.int64)
    typed = any(relations_of(fanout) for fanout in spec.fanouts)
    prefix = graph.edge_weight_prefix if how.weighted else nothing
    sums = nothing if how.half_life is None else reads.sums
    weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
    limited = typed or how.weighted or how.latest or how.half_life or seeds.time is not None
    limited |= seeds.excluded is not None and seeds.excluded.size > 0
    return call_hops(
        "jgs_sample_neighbors" if limited else "jgs_sample_uniform",
        key_data,
        graph,
        (prefix, sums, weight),
        seeds,
        spec,
        reads.index if isinstance(reads.index, RelationIndex) and typed else (nothing,) * 2,
        replace=np.bool_(how.replace),
        weighted=np.bool_(how.weighted),
        latest=np.bool_(how.latest),
        half_life=np.int64(how.half_life or 0),
    )


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
    (`RelationIndex`). With () in its place the draws are the same,
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
