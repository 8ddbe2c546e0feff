"""`Node2Vec`: second-order walks, whose steps depend on the node before, drawn by rejection.

They ask of rows where the edges from one node are. Rows that are sorted by source say it
themselves. The rows of a graph with times are sorted by time: for those there is an index
beside the graph, `BySource`. Both are bisected. Everything but `index_by_source` is traced
under `jax.enable_x64(True)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Graph, as_device
from jgs.graph.checks import first_fall
from jgs.graph.rows import edge_chunks
from jgs.kernels.call import vary_alike
from jgs.options import Option
from jgs.sampling import walks
from jgs.sampling.base import Weighted
from jgs.sampling.checks import check_graph, refuse_room
from jgs.sampling.edges.eligible import (
    Eligible,
    count_less,
    first_where,
    row_weight,
    rows_of,
    weights_of,
)
from jgs.sampling.edges.hops import source_at
from jgs.sampling.edges.random import below, node_bits
from jgs.sampling.seeds import Seeds

_MOST = 1e6  # p and q are in [1 / _MOST, _MOST], because chances have units of 2**-32
_SEPARATE = 8  # steps back are drawn separately if fewer than 1 in this number were accepted


@dataclass(frozen=True, repr=False)
class Node2Vec(walks.Walker):
    """Walks whose steps go back, stay near or go on (Grover and Leskovec 2016, section 3.2).

    A walk that came from `t` to `v` steps to the in-neighbour `x` of `v` in proportion to the
    weight of that edge times 1/p if `x` is `t`, times 1 if `x` is in the row of `t`, and times
    1/q otherwise. Each parallel edge counts. The first step is that of `Walk`. Returns `Walks`;
    `Walker` says what a walk depends on, and how cutoffs hold.

    A neighbour is drawn by weight, and is accepted or drawn again (KnightKing, SOSP 2019,
    section 3). If 1/p is larger than the other chances (the paper's outlier) or much smaller,
    steps back are drawn separately, and their edge is found in the row. So each draw is
    accepted with at least 1/8 of the chance min(q, 1/q), and the distribution is exact to about
    2**-31.

    Roots with times (`Seeds.time`): a step is one in the graph of the edges before its cutoff.
    So `x` is in the row of `t` if an edge from `x` to `t` is before the cutoff of the step that
    goes to `x`, and within the window. In a causal walk that is the time of the edge by which
    the walk came from `t`.

    Fields:
      length: the largest number of steps of a walk.
      p, q: the paper's return and in-out parameters, each from 1e-6 to 1e6.
      weighted: whether edges have the weights `graph.edge_weight` instead of 1. A node whose
        edges all have weight 0 is then a dead end.
      window, causal: for roots with times, see `Walker`.

    The rows of a graph without times must be sorted by source, see `Graph.sorted`. Those of a
    graph with times are sorted by time. For it the state is an index of each row's edges by
    source, of 8 bytes an edge; and of 16 if steps are `weighted` and those back are drawn
    separately (`jgs.sampling.algorithms.node2vec.BySource`). Raises `InputError` for a
    length below 1 and for `p` or `q` out of range.
    """

    length: Annotated[int, walks.LENGTH]
    p: Annotated[float, Option("the larger, the less likely a step back is", above=0)] = 1.0
    q: Annotated[float, Option("the larger, the less likely a step away is", above=0)] = 1.0
    weighted: Weighted = False
    window: int | None = field(default=None, kw_only=True)
    causal: walks.Causal = field(default=False, kw_only=True)

    by_source = takes_time = True
    later_fields = ("window", "causal")

    def __post_init__(self) -> None:
        walks.check_fields(self)
        for name in ("p", "q"):
            value = getattr(self, name)
            if not is_real(value) or not 1 / _MOST <= value <= _MOST:
                raise InputError(
                    f"{name} must be a number from {1 / _MOST:g} to {_MOST:g}",
                    repr(value),
                    "Change it: beyond that the likelier steps are all there are.",
                )
            object.__setattr__(self, name, float(value))

    def init(self, graph: Graph) -> jax.Array | BySource:
        """For a graph with times the index of its edges by source. Otherwise bool `[]`, True:
        the rows are sorted by source. This reads all edges, and raises `InputError` if they are
        not sorted."""
        check_graph(graph, self.weighted)
        if graph.edge_time is not None:
            return index_by_source(graph, self._weighs_back)
        self._refuse_room(graph)
        indices = np.asarray(graph.indices)
        if fall := first_fall(indices, np.asarray(graph.indptr)):
            at, node = fall
            raise InputError(
                "Node2Vec needs rows sorted by source",
                f"{indices[at]} after {indices[at - 1]} in the row of node {node}",
                "Use graph.sorted().",
            )
        return jax.device_put(np.True_)

    @property
    def _weighs_back(self) -> bool:
        return self.weighted and bool(chances_of(self).back_separately)

    def _refuse_room(self, graph: Graph) -> None:
        if graph.has_room and graph.edge_time is None:  # its rows are in the order of arrival
            refuse_room("Node2Vec, without times,")

    def check_state(self, graph: Graph, state: Any) -> None:
        self._refuse_room(graph)
        shapes: tuple[Any, ...] = ((),)
        if graph.edge_time is not None:
            shapes = (graph.indices.shape,) * (1 + self._weighs_back)
        if tuple(getattr(array, "shape", None) for array in jax.tree.leaves(state)) != shapes:
            kind = "an index of its edges by source" if shapes[0] else "a bool: it is sorted"
            raise InputError(
                f"the state for this graph must be {kind}",
                repr(state),
                "Give what `init` returned for this graph.",
            )

    def kernel_reads(self, graph: Graph, state: Any) -> dict[str, Any]:
        """Steps are those of jgs/kernels/walk_second.cc."""
        reads: dict[str, Any] = {"second": chances_of(self)}
        if isinstance(state, BySource):
            reads |= {"by_source": state.order, "weight_by_source": state.weight}
        return reads

    def rule(self, graph: Graph, state: Any, seeds: Seeds) -> walks.Rule:
        chances, num_nodes = chances_of(self), graph.num_nodes

        def step(keys: jax.Array, at: walks.Place) -> jax.Array:
            if graph.num_edges == 0:  # an empty array cannot be indexed
                return jnp.zeros(at.here.shape, jnp.int64)
            t, previous, of = at.step, at.previous, seeds.replace(time=at.cutoff)
            rows = walks.eligible_of(graph, at.here, of, self.window)
            before = walks.eligible_of(graph, previous, of, self.window)
            index = state if isinstance(state, BySource) else None
            apart = bool(chances.back_separately)
            ways = Ways(graph, rows, before, self.weighted, apart, index)
            first = previous == num_nodes
            total = rows.num
            if self.weighted:
                total = weights_of(rows, graph.edge_weight_prefix).total
            area_back, area = _areas(chances, total, ways.back_weight)

            def attempt(state):
                j, taken, waits = state
                side, chance = walks.step_halves(keys, t, 2 * j + 1)
                goes_back = below(side.astype(jnp.uint64) << jnp.uint64(32), area) < area_back
                goes_back &= ways.back_weight > 0
                bits = node_bits(keys, t, 2 * j)
                edge = ways.edge(ways.over(below(bits, total - ways.back_weight)))
                candidate = source_at(graph, edge)
                near = ways.is_near(candidate)
                limit = jnp.where(near, jnp.uint64(chances.near), jnp.uint64(chances.far))
                limit = jnp.where(candidate == previous, jnp.uint64(chances.back), limit)
                accepted = first | goes_back | (chance.astype(jnp.uint64) < limit)
                edge = jnp.where(goes_back, ways.back(below(bits, ways.back_weight)), edge)
                taken = jnp.where(waits & accepted, edge, taken)
                return j + jnp.uint32(1), taken, waits & ~accepted

            nothing = jnp.full_like(rows.num, graph.num_edges)
            begin = vary_alike(jnp.uint32(0), nothing, total > 0, keys, graph)[:3]
            return jax.lax.while_loop(lambda state: jnp.any(state[2]), attempt, begin)[1]

        return step


class Chances(NamedTuple):
    """`p` and `q` as integers: the fields of `SecondOrder` in jgs/kernels/walk.h.

    Fields:
      back, near, far: a candidate is accepted if a random uint32 is below this number: `back`
        if it is the node before, `near` if it is in that node's row, `far` otherwise.
      back_separately: whether steps back are drawn separately.
      area_back, area_on: with separate steps back, the factors of the weight of a step back and
        of that of the other candidates, at most 2**31. The choice is in proportion to the
        products.
    """

    back: int
    near: int
    far: int
    back_separately: int
    area_back: int
    area_on: int


def chances_of(walker: Node2Vec) -> Chances:
    back, far = 1 / walker.p, 1 / walker.q
    most = max(1.0, far)

    def limit(chance: float) -> int:
        return max(1, round(2**32 * min(1.0, chance / most)))

    def area(chance: float) -> int:
        return max(1, round(2**31 * chance / max(back, most)))

    separately = not most / _SEPARATE <= back <= most
    return Chances(limit(back), limit(1.0), limit(far), int(separately), area(back), area(most))


def _areas(
    chances: Chances, total: jax.Array, back_weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """int64 `[B]` each: the area of a step back, and the total area. A step back is drawn with
    the probability of their ratio. Weights are reduced to 31 bits."""
    bits = 64 - jax.lax.clz(total)
    shift = jnp.maximum(bits - 31, 0)

    def scaled(weight: jax.Array) -> jax.Array:
        return jnp.maximum(weight >> shift, (weight > 0).astype(jnp.int64))

    back = scaled(back_weight) * chances.area_back
    return back, back + scaled(total - back_weight) * chances.area_on


_POSITION = (1 << 32) - 1


class BySource(NamedTuple):
    """The edges of each row in the order of their sources, of 8 bytes an edge, and 8 more with
    weights.

    Fields:
      order: int64 `[E]`; of each edge its source times 2**32, plus its position in the row.
        These numbers ascend within the row.
      weight: int64 `[E]`; the prefix sums of each row's weights in that order. None where
        nobody asks.
    """

    order: jax.Array
    weight: jax.Array | None


def index_by_source(graph: Graph, weighted: bool) -> BySource:
    """The index of a graph, with `weighted` that of its weights too. It reads the edges once,
    in pieces."""
    indices = np.asarray(graph.indices)
    order: np.ndarray = np.zeros(indices.size, np.int64)
    sums: np.ndarray = np.zeros(indices.size if weighted else 0, np.int64)
    for _, offsets, where in edge_chunks(np.asarray(graph.indptr)):
        starts, degrees = offsets[:-1], np.diff(offsets)
        row, sources = np.repeat(np.arange(degrees.size), degrees), indices[where]
        # Edges from one source stay in the order of their positions.
        sorting = np.argsort(row << 32 | sources, kind="stable")
        position = sorting - starts[row]
        order[where] = sources[sorting].astype(np.int64) << 32 | position
        if weighted:
            prefix = np.asarray(graph.edge_weight_prefix)[where]
            weight = np.diff(prefix, prepend=0)
            heads = starts[degrees > 0]
            weight[heads] = prefix[heads]
            along = np.cumsum(weight[sorting])
            before = np.zeros(degrees.size, np.int64)
            before[degrees > 0] = along[heads] - weight[sorting][heads]
            sums[where] = along - before[row]
    return BySource(as_device(order), as_device(sums) if weighted else None)


class Ways:
    """The steps from rows `[B]` on, and those among them that lead back.

    Args:
      rows: the eligible edges of the rows, `[B]`.
      before: those of the nodes that the walks came from, under the cutoffs of `rows`.
      weighted: whether edges weigh `graph.edge_weight` instead of 1.
      apart: whether steps back are drawn separately.
      index: the edges of each row by source. None: rows are sorted by source, and all their
        edges are eligible.

    Attributes:
      back_weight: int64 `[B]`; the weight of the edges back. It is 0 if these are not drawn
        separately.
    """

    def __init__(
        self,
        graph: Graph,
        rows: Eligible,
        before: Eligible,
        weighted: bool,
        apart: bool,
        index: BySource | None,
    ):
        self.graph, self.rows, self.before, self.index = graph, rows, before, index
        self.by_weight = weighted and graph.num_edges > 0
        # Where among a row's edges by source the eligible edges back begin, and their number.
        self.first = self.num = self.back_weight = jnp.zeros_like(rows.num)
        if apart:
            begin, previous = rows.start - rows.row, before.nodes
            self.first = self._rank(rows.nodes, previous, begin)
            after = self._rank(rows.nodes, previous, begin + rows.num)
            self.num = jnp.where(previous == graph.num_nodes, 0, after - self.first)
            self.back_weight = self._lost(self.num)

    def edge(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: the eligible edges whose parts of their rows have these points."""
        if not self.by_weight:
            return self.rows.start + point
        prefix = self.graph.edge_weight_prefix
        return weights_of(self.rows, prefix).edge(point)

    def is_near(self, candidate: jax.Array) -> jax.Array:
        """bool `[B]`: whether an eligible edge leads from `candidate` int32 `[B]` to the node
        before."""
        before = self.before
        _, degree = rows_of(self.graph.indptr, before.nodes)
        at = self._rank(before.nodes, candidate, before.start - before.row)
        source, edge = self._entry(before.row, at)
        return (at < degree) & (source == candidate) & (edge < before.start + before.num)

    def over(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: points of the row, for points of what does not lead back."""
        row = self.rows.row
        base = self._through(self.rows.start - row)

        def before(hole: jax.Array) -> jax.Array:  # the weight that does not lead back
            _, edge = self._entry(row, self.first + hole)
            return self._through(edge - row) - base - self._lost(hole)

        passed = first_where(lambda hole: before(hole) > point, self.num, (point, self.rows))
        return point + self._lost(passed)

    def back(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: the edges back whose parts of the weight of those have these points."""
        last, reads = jnp.maximum(self.num - 1, 0), (point, self.rows)
        hole = first_where(lambda hole: self._lost(hole + 1) > point, last, reads)
        return self._entry(self.rows.row, self.first + hole)[1]

    def _rank(self, nodes: jax.Array, source: jax.Array, position: jax.Array) -> jax.Array:
        """int64 `[B]`: how many edges of the rows of `nodes`, by source, come before those from
        `source` that have this `position` in the row or a later one."""
        start, degree = rows_of(self.graph.indptr, nodes)
        if self.index is None:  # the position is 0, or the end of the row
            return count_less(self.graph.indices, start, degree, source + (position > 0))
        bound = source.astype(jnp.int64) << 32 | position
        return count_less(self.index.order, start, degree, bound)

    def _entry(self, row: jax.Array, rank: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sources and the edges, int64 `[B]`, of these ranks among a row's edges by
        source."""
        if self.index is None:
            return source_at(self.graph, row + rank), row + rank
        entry = self.index.order.at[row + rank].get(mode="clip")
        return entry >> 32, row + (entry & _POSITION)

    def _through(self, count: jax.Array) -> jax.Array:
        """int64 `[B]`: the total weight of the first `count` edges of each row."""
        if not self.by_weight:
            return count
        assert self.graph.edge_weight_prefix is not None
        return row_weight(self.graph.edge_weight_prefix, self.rows.row, count)

    def _lost(self, holes: jax.Array) -> jax.Array:
        """int64 `[B]`: the weight of the first so many edges that lead back."""
        if not self.by_weight:
            return holes
        prefix = self.graph.edge_weight_prefix if self.index is None else self.index.weight
        if prefix is None:  # steps back are not drawn separately
            return holes
        row, first = self.rows.row, self.first
        return row_weight(prefix, row, first + holes) - row_weight(prefix, row, first)
