"""What steps of second order ask of rows: where the edges from one node are.

Rows that are sorted by source say it themselves (`Ascending`). The rows of a graph with times
are sorted by time. For those there is an index beside the graph, `BySource` (`Indexed`). Both
find what they look for by bisection. Everything but `index_by_source` is traced under
`jax.enable_x64(True)`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, as_device
from jgs.graph.rows import row_chunks
from jgs.kernels.call import FILL
from jgs.sampling.edges.eligible import (
    Eligible,
    count_less,
    first_where,
    row_weight,
    rows_of,
    weights_of,
)
from jgs.sampling.edges.hops import source_at

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
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    order: np.ndarray = np.zeros(indices.size, np.int64)
    sums: np.ndarray = np.zeros(indices.size if weighted else 0, np.int64)
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        starts, degrees = indptr[first:stop] - begin, np.diff(indptr[first : stop + 1])
        row = np.repeat(np.arange(stop - first), degrees)
        # Edges from one source stay in the order of their positions.
        sorting = np.argsort(row << 32 | indices[begin:end], kind="stable")
        position = sorting - starts[row]
        order[begin:end] = indices[begin:end][sorting].astype(np.int64) << 32 | position
        if weighted:
            prefix = np.asarray(graph.edge_weight_prefix[begin:end])  # type: ignore[index]
            weight = np.diff(prefix, prepend=0)
            heads = starts[degrees > 0]
            weight[heads] = prefix[heads]
            along = np.cumsum(weight[sorting])
            before = np.zeros(stop - first, np.int64)
            before[degrees > 0] = along[heads] - weight[sorting][heads]
            sums[begin:end] = along - before[row]
    return BySource(as_device(order), as_device(sums) if weighted else None)


class Ways:
    """The steps from rows `[B]` on, and those among them that lead back.

    Attributes:
      graph: their graph.
      rows: the rows, `[B]`.
      previous: int32 `[B]`; the nodes that the walks came from.
      weighted: whether edges weigh `graph.edge_weight` instead of 1.
      back_weight: int64 `[B]`; the weight of the edges from `previous`. It is 0 if steps back
        are not drawn separately.
    """

    def __init__(self, graph: Graph, rows: Eligible, previous: jax.Array, weighted: bool):
        self.graph, self.rows, self.previous, self.weighted = graph, rows, previous, weighted
        self.by_weight = weighted and graph.num_edges > 0
        self.back_weight = jnp.zeros_like(rows.num)

    def through(self, row: jax.Array, count: jax.Array) -> jax.Array:
        """int64 `[B]`: the total weight of the first `count` edges of each row."""
        if not self.by_weight:
            return count
        assert self.graph.edge_weight_prefix is not None
        return row_weight(self.graph.edge_weight_prefix, row, count)

    def edge(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: the eligible edges whose parts of their rows have these points."""
        if not self.by_weight:
            return self.rows.start + point
        prefix = self.graph.edge_weight_prefix
        return weights_of(self.rows, prefix, self.graph.indptr).edge(point)

    @abstractmethod
    def is_near(self, candidate: jax.Array) -> jax.Array:
        """bool `[B]`: whether an eligible edge leads from `candidate` int32 `[B]` to the node
        before."""

    @abstractmethod
    def over(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: points of the row, for points of what does not lead back."""

    @abstractmethod
    def back(self, point: jax.Array) -> jax.Array:
        """int64 `[B]`: the edges back whose parts of the weight of those have these points."""


class Ascending(Ways):
    """Rows sorted by source, all of whose edges are eligible. With `apart` steps back are drawn
    separately."""

    def __init__(self, graph: Graph, rows: Eligible, *how: Any, apart: bool):
        super().__init__(graph, rows, *how)
        self.before = self.back_weight  # the weight in each row before the edges back
        if apart:
            start, num = rows.start, rows.num
            self.before, through = (
                self.through(start, count_less(graph.indices, start, num, self.previous + i))
                for i in (0, 1)
            )
            self.back_weight = through - self.before
            self.back_weight = jnp.where(self.previous == graph.num_nodes, 0, self.back_weight)

    def is_near(self, candidate: jax.Array) -> jax.Array:
        start, degree = rows_of(self.graph.indptr, self.previous)
        at = count_less(self.graph.indices, start, degree, candidate)
        return (at < degree) & (source_at(self.graph, start + at) == candidate)

    def over(self, point: jax.Array) -> jax.Array:
        passed = (self.back_weight > 0) & (point >= self.before)
        return jnp.where(passed, point + self.back_weight, point)

    def back(self, point: jax.Array) -> jax.Array:
        return self.edge(self.before + point)


class Indexed(Ways):
    """Rows in any order, with an index of their graph's edges by source. Edges that are not
    eligible count for nothing. `before` are the eligible edges of `previous`, under the cutoffs
    of the rows."""

    def __init__(
        self,
        graph: Graph,
        rows: Eligible,
        *how: Any,
        apart: bool,
        before: Eligible,
        index: BySource,
    ):
        super().__init__(graph, rows, *how)
        self.before, self.index = before, index
        # Where among a row's edges by source the eligible edges back begin, and their number.
        self.first = self.num = self.back_weight
        if apart:
            begin = rows.start - rows.row
            _, degree = rows_of(graph.indptr, rows.nodes)
            self.first, after = (
                count_less(index.order, rows.row, degree, _named(self.previous, at))
                for at in (begin, begin + rows.num)
            )
            self.num = jnp.where(self.previous == graph.num_nodes, 0, after - self.first)
            self.back_weight = self._lost(self.num)

    def _lost(self, holes: jax.Array) -> jax.Array:
        """int64 `[B]`: the weight of the first so many edges that lead back."""
        if self.index.weight is None:
            return holes
        row, first = self.rows.row, self.first
        through, before = (
            row_weight(self.index.weight, row, first + i) for i in (holes, jnp.int64(0))
        )
        return through - before

    def _at(self, hole: jax.Array) -> jax.Array:
        """int64 `[B]`: the edges that lead back, by their number."""
        entry = self.index.order.at[self.rows.row + self.first + hole].get(**FILL)
        return self.rows.row + (entry & _POSITION)

    def is_near(self, candidate: jax.Array) -> jax.Array:
        start, degree = rows_of(self.graph.indptr, self.previous)
        begin = self.before.start - start
        at = count_less(self.index.order, start, degree, _named(candidate, begin))
        entry = self.index.order.at[start + at].get(mode="clip")
        eligible = (entry & _POSITION) < begin + self.before.num
        return (at < degree) & (entry >> 32 == candidate) & eligible

    def over(self, point: jax.Array) -> jax.Array:
        row = self.rows.row
        base = self.through(row, self.rows.start - row)

        def before(hole: jax.Array) -> jax.Array:  # the weight that does not lead back
            return self.through(row, self._at(hole) - row) - base - self._lost(hole)

        passed = first_where(lambda hole: before(hole) > point, self.num, (point, self.rows))
        return point + self._lost(passed)

    def back(self, point: jax.Array) -> jax.Array:
        last, reads = jnp.maximum(self.num - 1, 0), (point, self.rows)
        return self._at(first_where(lambda hole: self._lost(hole + 1) > point, last, reads))


def _named(source: jax.Array, position: jax.Array) -> jax.Array:
    """int64 `[B]`: what `BySource.order` has for edges of these sources and positions."""
    return source.astype(jnp.int64) << 32 | position
