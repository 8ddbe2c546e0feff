"""The edges that a row may be drawn from: a stretch of the row, without the holes in it.

An edge type, a cutoff or a window makes the row a shorter stretch, because rows are sorted by
type and time. Excluded edges are holes in it. A draw is one of the edges that are left, and a
step over the holes: so a fanout is full wherever there are enough edges, and every eligible
edge is as likely as every other, or as its weight says. `jgs/kernels/eligible.h` has the same
in C++. Everything here is traced under `jax.enable_x64(True)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jgs.graph import Graph
from jgs.graph.rows import clipped, count_less, first_where, rows_of
from jgs.kernels.call import FILL
from jgs.sampling.edges.random import below

# A read at an index that is known to be in bounds, and not negative.
WITHIN: dict[str, Any] = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


class Eligible(NamedTuple):
    """The eligible edges of the rows of `T` nodes.

    Fields:
      nodes: int32 `[T]`.
      row: int64 `[T]`, where each row begins among the edges.
      start, length: int64 `[T]`, the stretch's first edge and its number of edges.
      num: int64 `[T]`, the number of eligible edges; `length` without the holes.
      cutoff: int64 `[T]`, or None if there are no times.
      excluded: int64 `[X]`, ascending, or None if nothing is excluded.
      first: int64 `[T]`, the index in `excluded` of each stretch's first hole; or None.
      run: int64 `[T]`, where the edges begin that a stretch is a part of: the row, or those of
        its relation in the row. None where nobody asks.
    """

    nodes: jax.Array
    row: jax.Array
    start: jax.Array
    length: jax.Array
    num: jax.Array
    cutoff: jax.Array | None = None
    excluded: jax.Array | None = None
    first: jax.Array | None = None
    run: jax.Array | None = None

    def edge(self, position: jax.Array, at: Any = slice(None)) -> jax.Array:
        """int64, the shape of `position`: the eligible edges at these positions, which count
        from 0 in each row. `at` has the index of each position's row; by default position `i`
        is in row `i`."""
        start = self.start if isinstance(at, slice) else self.start.at[at].get(**WITHIN)
        if self.excluded is None:
            return start + position
        assert self.first is not None
        first, holes = self.first[at], (self.length - self.num)[at]
        holes = jnp.broadcast_to(holes, position.shape)

        def before(hole: jax.Array) -> jax.Array:  # the eligible edges before a hole
            return clipped(self.excluded, first + hole) - start - hole

        return start + position + first_where(lambda h: before(h) > position, holes, self)

    def along(self) -> Eligible:
        """The same rows with one more axis, along which each has several positions."""
        deeper = jax.tree.map(lambda a: a[:, None], self._replace(excluded=None))
        return deeper._replace(excluded=self.excluded)

    def part(self, begin: Any, size: int) -> Eligible:
        """The rows from `begin` on, so many."""

        def own(array: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(array, begin, size)

        return jax.tree.map(own, self._replace(excluded=None))._replace(excluded=self.excluded)

    def take(self, at: jax.Array) -> Eligible:
        """The rows `at` these indices, int64 `[R]`."""
        rows = jax.tree.map(lambda a: a[at], self._replace(excluded=None))
        return rows._replace(excluded=self.excluded)


def eligible(
    graph: Graph,
    nodes: jax.Array,
    real: jax.Array,
    cutoff: jax.Array | None = None,
    excluded: jax.Array | None = None,
    window: int | None = None,
    relation: jax.Array | None = None,
) -> Eligible:
    """What may be drawn from the rows of `nodes` int32 `[T]`; nothing where `real` is False.

    Args:
      relation: int32 `[T]`; only edges of this relation are eligible. None: those of all.
      cutoff: int64 `[T]`; only edges before it are eligible.
      excluded: int64 `[X]`, see `Seeds`.
      window: only edges from `cutoff - window` on are eligible. None: there is no such limit.
    """
    row, length = rows_of(graph.indptr, nodes, real)
    rows = Eligible(nodes, row, row, length, length, cutoff, run=row)
    if relation is not None:
        rows = of_relation(graph, rows, relation)
    if cutoff is not None:
        rows = before_cutoff(graph, rows, cutoff, window)
    return holes_of(rows, excluded)


def row_of_slots(indptr: jax.Array, num_edges: int) -> tuple[jax.Array, jax.Array]:
    """int32 `[E]`: in the row of which node each slot is, by offsets as those of a `Graph`. And
    bool `[E]`, whether it has an edge."""
    slot, begins = jnp.arange(num_edges), indptr if indptr.ndim == 1 else indptr[0]
    order = jnp.argsort(begins[:-1], stable=True)
    at = jnp.searchsorted(begins[:-1][order], slot, side="right") - 1
    row = order.astype(jnp.int32).at[at].get(mode="clip")
    start, length = rows_of(indptr, row)
    return row, (slot >= start) & (slot < start + length)


def before_cutoff(
    graph: Graph, rows: Eligible, cutoff: jax.Array, window: int | None
) -> Eligible:
    """The rows, which have no holes so far, of which only the edges before the `cutoff` int64
    `[T]` are eligible; with a `window` only those from `cutoff - window` on."""
    start, length = rows.start, rows.length
    assert graph.edge_time is not None
    end = count_less(graph.edge_time, start, length, cutoff)
    begin = jnp.zeros_like(end)
    if window is not None:
        least = jnp.iinfo(jnp.int64).min
        since = jnp.where(cutoff < least + window, least, cutoff - window)
        begin = count_less(graph.edge_time, start, length, since)
    num = end - begin
    return rows._replace(start=start + begin, length=num, num=num, cutoff=cutoff)


def holes_of(rows: Eligible, excluded: jax.Array | None) -> Eligible:
    """`rows` without the edges `excluded`, int64 `[X]` or None."""
    if excluded is None or excluded.shape[0] == 0:
        return rows
    first = jnp.searchsorted(excluded, rows.start)
    after = jnp.searchsorted(excluded, rows.start + rows.length)
    count = rows.length - (after - first)
    return rows._replace(num=count, excluded=excluded, first=first)


def of_relation(graph: Graph, rows: Eligible, relation: jax.Array | int) -> Eligible:
    """The rows, which have no holes so far, of which only the edges of `relation` are
    eligible."""
    assert graph.edge_type is not None
    begin, end = (
        count_less(graph.edge_type, rows.start, rows.length, jnp.asarray(relation) + i)
        for i in (0, 1)
    )
    start, num = rows.start + begin, end - begin
    return rows._replace(start=start, length=num, num=num, run=start)


def bad_excluded(excluded: jax.Array, num_edges: int) -> jax.Array:
    """bool `[]`: whether `excluded` int64 `[X]` does not ascend as `Seeds` says."""
    falls = (excluded[1:] <= excluded[:-1]) & (excluded[1:] < num_edges)
    return jnp.any(falls) | jnp.any((excluded < 0) | (excluded > num_edges))


def is_excluded(excluded: jax.Array, edge: jax.Array) -> jax.Array:
    """bool, the shape of `edge`: whether each is one of `excluded` int64 `[X]`."""
    if excluded.shape[0] == 0:  # an empty array cannot be indexed
        return jnp.zeros(edge.shape, bool)
    return clipped(excluded, jnp.searchsorted(excluded, edge)) == edge


class Weights(NamedTuple):
    """The weights of eligible edges, as parts of a line from 0 to `total` for each row.

    Fields:
      rows: the rows, `[T]`, or with one more axis (`along`).
      prefix: int64 `[E]`, `Graph.edge_weight_prefix`.
      total: int64 `[T]`, the weight of each row's eligible edges.
      base: int64 `[T]`, the weight in the row before the stretch, less that of the holes before
        the stretch (in any row).
      hole: int64 `[X]`, the prefix sum of the edge before each hole, less the weight of all
        holes before.
      lost: int64 `[X+1]`, the weight of all holes before each hole.
      extra: int64 `[T]`, what `hole` has too much in a row, and `lost` too little from its
        first hole on: prefix sums are of a row, and the hole may be the row's first edge.

    `hole` and `lost` count the holes of all rows, so they may wrap around. Their differences
    within a row are right.
    """

    rows: Eligible
    prefix: jax.Array
    total: jax.Array
    base: jax.Array
    hole: jax.Array | None
    lost: jax.Array | None
    extra: jax.Array | None

    def edge(self, point: jax.Array) -> jax.Array:
        """int64: the eligible edge whose part of its row's line has the point."""
        rows, real = self.rows, point + self.base
        if self.hole is not None and self.lost is not None:
            first, hole, extra = rows.first, self.hole, self.extra
            assert first is not None
            assert extra is not None
            holes = jnp.broadcast_to(rows.length - rows.num, real.shape)
            passed = first_where(
                lambda h: clipped(hole, first + h) - extra - self.base > point, holes, rows
            )
            real = real + clipped(self.lost, first + passed) + jnp.where(passed > 0, extra, 0)
        return rows.start + find(self.prefix, rows.start, rows.length, real)

    def drawn(self, bits: jax.Array) -> jax.Array:
        """int64, the shape of `bits`: an edge of each row, drawn by its weight."""
        return self.edge(below(bits, self.total))

    @property
    def some(self) -> jax.Array:
        """bool `[T]`: whether a row has edges to draw."""
        return self.total > 0

    def part(self, edge: jax.Array, at: Any = slice(None)) -> tuple[jax.Array, jax.Array]:
        """int64: where the part of each edge begins on its row's line, and its weight. `at` is
        as in `Eligible.edge`."""
        row = self.rows.row[at]
        before, through = (row_weight(self.prefix, row, edge - row + i) for i in (0, 1))
        begin = before - self.base[at]
        if self.lost is not None:
            assert self.rows.excluded is not None
            assert self.rows.first is not None
            assert self.extra is not None
            passed = jnp.searchsorted(self.rows.excluded, edge)
            some = passed > self.rows.first[at]
            begin = begin - self.lost[passed] - jnp.where(some, self.extra[at], 0)
        return begin, through - before

    def along(self) -> Weights:
        """The same with one more axis, along which each row has several points."""
        total, base = self.total[:, None], self.base[:, None]
        extra = None if self.extra is None else self.extra[:, None]
        return self._replace(rows=self.rows.along(), total=total, base=base, extra=extra)


def weights_of(rows: Eligible, prefix: jax.Array | None) -> Weights:
    """The weights of the eligible edges, by the graph's `edge_weight_prefix` int64 `[E]`."""
    assert prefix is not None
    before = row_weight(prefix, rows.row, rows.start - rows.row)
    total = row_weight(prefix, rows.row, rows.start - rows.row + rows.length) - before
    if rows.excluded is None:
        return Weights(rows, prefix, total, before, None, None, None)
    assert rows.first is not None
    hole, through = (row_weight(prefix, jnp.int64(0), rows.excluded + i) for i in (0, 1))
    weight = jnp.where(rows.excluded < prefix.shape[0], through - hole, 0)
    lost = jnp.concatenate([jnp.zeros(1, jnp.int64), jnp.cumsum(weight)])
    earlier, holes = lost[rows.first], rows.length - rows.num
    at_begin = (holes > 0) & (clipped(rows.excluded, rows.first) == rows.row)
    extra = jnp.where(at_begin, clipped(hole, rows.first), 0)
    gone = lost[rows.first + holes] - earlier + extra
    return Weights(rows, prefix, total - gone, before - earlier, hole - lost[:-1], lost, extra)


def find(prefix: jax.Array, start: jax.Array, degree: jax.Array, point: jax.Array) -> jax.Array:
    """int64: for each row the first position whose prefix sum exceeds `point` (binary
    search); the last one if there is none."""
    last = jnp.maximum(jnp.broadcast_to(degree, point.shape) - 1, 0)
    return first_where(lambda i: clipped(prefix, start + i) > point, last, (start, prefix))


def row_weight(prefix: jax.Array, start: jax.Array, position: jax.Array) -> jax.Array:
    """int64: the prefix sum of each row's weights before `position` (0 for position 0)."""
    return jnp.where(position > 0, prefix.at[start + position - 1].get(**FILL), 0)
