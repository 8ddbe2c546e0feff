"""Draws in proportion to recency: an edge's weight halves with each half-life of its age.

The edges of a row, or of one relation in it (a *run*), ascend by time. An edge of time `t` has
the weight `2**(t / half_life)`: no cutoff changes the ratio of two edges' weights. Such numbers
span more than any integer holds. So each edge keeps a sum that has decayed up to it:

    sums[e] = w[e] + (sums[e - 1] >> (octave[e] - octave[e - 1]))

where `octave` is the number of whole half-lives up to the edge's time, and `w` from 2**31 up
to 2**32 stands for the rest of it. `sums[e] >> (scale - octave[e])` is then the weight of the
run's edges up to `e` in units of any later `scale`, rounded down, and it ascends along the run.
So an edge is found by bisection, and its row's times are not read one by one.

A draw takes for `scale` the octave of the latest edge that is left. An edge's weight is right
to one unit of 2**-31 of that edge's. `jgs/kernels/draw_recent.h` has the draws in C++.
Everything but `decayed_sums` is traced under `jax.enable_x64(True)`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, as_device
from jgs.graph.rows import edge_chunks
from jgs.kernels.call import vary_alike
from jgs.sampling.edges.eligible import Eligible, first_where
from jgs.sampling.edges.random import below, node_bits

_STEPS = 2048
# int64 `[2050]`: `2**(i / 2048)` in units of 2**-31.
POWERS = np.rint(np.exp2(31 + np.arange(_STEPS + 2) / _STEPS)).astype(np.int64)


class Recency(NamedTuple):
    """The state of a sampler that draws by recency: `sums` int64 `[E]`, see this module, and
    the state that the sampler has without it."""

    sums: jax.Array
    runs: Any


def decayed_sums(graph: Graph, half_life: int) -> jax.Array:
    """int64 `[E]`: the `sums` of this module, for a graph with times. It takes 8 bytes an edge,
    and reads the times once, in pieces."""
    times = np.asarray(graph.edge_time)
    types = None if graph.edge_type is None else np.asarray(graph.edge_type)
    sums: np.ndarray = np.zeros(times.size, np.int64)
    for _, offsets, where in edge_chunks(np.asarray(graph.indptr)):
        if not offsets[-1]:
            continue
        starts = np.zeros(offsets[-1] + 1, bool)  # of runs; one more for rows without edges
        starts[offsets[:-1]] = True
        starts = starts[:-1]
        if types is not None:
            own = types[where]
            starts[1:] |= own[1:] != own[:-1]
        sums[where] = _sums_of(times[where], starts, half_life)
    return as_device(sums)


def _sums_of(times: np.ndarray, starts: np.ndarray, half_life: int) -> np.ndarray:
    """The sums of the edges of whole runs, which begin where `starts` bool `[n]` is True."""
    octave = times // half_life
    # Divisions and products of floats are rounded alike everywhere; so are these numbers.
    part = (times - octave * half_life).astype(np.float64) / half_life * _STEPS
    at = part.astype(np.int64)
    weight = POWERS[at] + ((POWERS[at + 1] - POWERS[at]) * (part - at)).astype(np.int64)
    # The edges of a run in one octave are a group. Between groups alone a sum decays.
    begins = starts.copy()
    begins[1:] |= octave[1:] != octave[:-1]
    (first,) = np.nonzero(begins)
    size = np.diff(first, append=times.size)
    along = np.cumsum(weight)
    along -= np.repeat(along[first] - weight[first], size)
    carry = np.zeros(first.size, np.int64)
    # The groups of each run have the numbers 0, 1, ..: those of one number are done together.
    (of_run,) = np.nonzero(starts[first])
    number = np.arange(first.size) - np.repeat(of_run, np.diff(of_run, append=first.size))
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number))
    of_octave = octave[first].view(np.uint64)  # so that differences do not overflow
    for low, high in pairwise(ends):
        group = order[low:high]
        apart = np.minimum(of_octave[group] - of_octave[group - 1], 63).astype(np.int64)
        carry[group] = (carry[group - 1] + along[first[group] - 1]) >> apart
    return along + np.repeat(carry, size)


class Decayed(NamedTuple):
    """The decayed sums of eligible edges: of the rows `[T]`, or with one more axis
    (`Eligible.along`), by the `sums` and the times int64 `[E]`."""

    rows: Eligible
    sums: jax.Array
    time: jax.Array
    half_life: int

    def octave(self, edge: jax.Array) -> jax.Array:
        """int64, the shape of `edge`."""
        return jnp.floor_divide(self.time.at[edge].get(mode="clip"), self.half_life)

    def through(self, edge: jax.Array, scale: jax.Array) -> jax.Array:
        """int64: the weight of the run's edges up to and with `edge`, in units of `scale`."""
        apart = scale.astype(jnp.uint64) - self.octave(edge).astype(jnp.uint64)
        apart = jnp.minimum(apart, 63).astype(jnp.int64)
        run = self.rows.run
        assert run is not None
        inside = edge >= run
        return jnp.where(inside, self.sums.at[edge].get(mode="clip") >> apart, 0)

    def weight(self, edge: jax.Array, scale: jax.Array) -> jax.Array:
        """int64: the weight of each edge, in units of `scale`."""
        return self.through(edge, scale) - self.through(edge - 1, scale)

    def eligible(self, position: jax.Array, scale: jax.Array) -> jax.Array:
        """int64: the weight of the eligible edges up to and with those at `position`, which
        counts from 0 in each row."""
        rows = self.rows
        edge = rows.edge(position)
        found = self.through(edge, scale) - self.through(rows.start - 1, scale)
        if rows.excluded is None:
            return found
        first, excluded, holes = rows.first, rows.excluded, edge - rows.start - position
        assert first is not None

        def subtract(h: jax.Array, left: jax.Array) -> jax.Array:
            hole = excluded.at[first + h].get(mode="clip")
            return left - jnp.where(h < holes, self.weight(hole, scale), 0)

        most, found, *_ = vary_alike(jnp.max(holes, initial=0), found, holes)
        return jax.lax.fori_loop(0, most, subtract, found)

    def drawn(self, bits: jax.Array) -> jax.Array:
        """int64, the shape of `bits`: an edge of each row, drawn in proportion to its weight by
        the random `bits` uint64. It is undefined in a row without eligible edges."""
        rows = self.rows
        last = jnp.maximum(rows.num - 1, 0)
        scale = self.octave(rows.edge(last))
        point = below(bits, self.eligible(last, scale))
        last = jnp.broadcast_to(last, point.shape)
        reads = (point, rows)
        return rows.edge(first_where(lambda p: self.eligible(p, scale) > point, last, reads))

    @property
    def some(self) -> jax.Array:
        """bool `[T]`: whether a row has edges to draw."""
        return self.rows.num > 0

    def along(self) -> Decayed:
        """The same with one more axis, along which each row has several positions."""
        return self._replace(rows=self.rows.along())


def distinct(
    key_data: jax.Array, node: jax.Array, decayed: Decayed, k: int
) -> tuple[jax.Array, jax.Array]:
    """Up to `k` distinct edges by successive draws, each in proportion to its weight among the
    edges that are left. Arguments and results are those of
    `jgs.sampling.edges.draw.repeated_by`, with a key for each row."""
    rows, slots = decayed.rows, jnp.arange(k)

    def draw(i: jax.Array, state: tuple) -> tuple:
        position, latest = state  # -1 in slots that have drawn nothing

        def is_drawn(at: jax.Array) -> jax.Array:
            return jnp.any(position == at[:, None], axis=1)

        latest = jax.lax.while_loop(
            lambda at: jnp.any(is_drawn(at) & (at >= 0)),
            lambda at: jnp.where(is_drawn(at) & (at >= 0), at - 1, at),
            latest,
        )
        last = jnp.maximum(latest, 0)
        scale = decayed.octave(rows.edge(last))
        taken = decayed.along()
        weight = taken.weight(taken.rows.edge(jnp.maximum(position, 0)), scale[:, None])
        weight = jnp.where((position >= 0) & (position <= latest[:, None]), weight, 0)

        def left(at: jax.Array) -> jax.Array:
            lost = jnp.sum(jnp.where(position <= at[:, None], weight, 0), axis=1)
            return decayed.eligible(at, scale) - lost

        point = below(node_bits(key_data, node, i), left(last))
        found = first_where(lambda at: left(at) > point, last, (point, rows, position))
        found = jnp.where(latest >= 0, found, -1)
        return jnp.where(slots == i, found[:, None], position), latest

    start = jnp.full((node.shape[0], k), -1, jnp.int64), rows.num - 1
    start = vary_alike(*start, node, key_data)[:2]
    position, _ = jax.lax.fori_loop(0, k, draw, start)
    return decayed.along().rows.edge(jnp.maximum(position, 0)), position >= 0
