"""Static shapes for samples of varying size: `Capacity`, how many such samples are drawn in one
call, and redrawing until a sample fits."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.rows import row_lengths

_INT32_MAX = 2**31 - 1
_MODEST = 1 << 20  # a number of edges or sources in a hop that takes little memory
_PER_THREAD = 4  # batches; a larger number brought no further gain when it was measured
_BYTES_PER_THREAD = 8 << 20

T = TypeVar("T")


class Capacity(NamedTuple):
    """The padded sizes of a sample; hashable, so it can be a static argument of `jax.jit`.

    Fields, with one entry for each hop, the seeds' hop first:
      edges: the largest number of edges that the hop may draw. For weighted draws, edges of
        weight 0 count too: it bounds the sum of `min(fanout, degree)` over the targets.
      sources: the largest number of distinct nodes after the hop, seeds included.
    """

    edges: tuple[int, ...]
    sources: tuple[int, ...]

    def enlarge(self, worst: Capacity) -> Capacity:
        """A capacity half as large again, but at most `worst`."""
        grow = [
            tuple(min(round_up(c + c // 2 + 1), w) for c, w in zip(sizes, limit, strict=True))
            for sizes, limit in zip(self, worst, strict=True)
        ]
        return Capacity(*grow)


class GraphShape(NamedTuple):
    """The facts of a graph that a sampler's bound depends on.

    Fields:
      num_nodes, num_edges: int; `N` and `E`.
      max_degree: int, the largest in-degree; None if it is not known.
      num_types: int, the number of node types in the graph's schema; 1 without a schema.
      num_relations: int, the number of relations there; 0 without a schema.
    """

    num_nodes: int
    num_edges: int
    max_degree: int | None = None
    num_types: int = 1
    num_relations: int = 0

    @classmethod
    def of(cls, graph: Graph, degrees: bool = False) -> GraphShape:
        """The shape of `graph`. With `degrees` the largest degree is computed from its
        offsets."""
        degree = None
        if degrees:
            degree = int(row_lengths(np.asarray(graph.indptr)).max(initial=0))
        types, relations = 1, 0
        if graph.schema is not None:
            types, relations = len(graph.schema.node_types), len(graph.schema.relations)
        return cls(graph.num_nodes, graph.num_edges, degree, types, relations)

    def under(self, cutoffs: int) -> GraphShape:
        """The shape that seeds with so many different cutoffs see: each sees nodes and edges of
        its own."""
        return self._replace(
            num_nodes=self.num_nodes * cutoffs, num_edges=self.num_edges * cutoffs
        )


def round_up(size: int) -> int:
    """`size` rounded up to one of a few sizes: 16 between one power of two and the next. Never
    0: nothing can be read from an empty array."""
    size = max(size, 1)
    step = max(8, 1 << max(0, math.ceil(math.log2(size)) - 5))
    return -(-size // step) * step


def check_capacity(capacity: Any, batch_size: int, num_hops: int) -> Capacity:
    """`capacity` as a `Capacity` that fits the seeds and hops; raises `InputError`."""
    try:
        edges, sources = (tuple(map(operator.index, field)) for field in capacity)
        good = len(edges) == len(sources) == num_hops and min(edges) >= 0
        good = good and all(
            a <= b for a, b in zip((batch_size, *sources), sources, strict=False)
        )
    except (TypeError, ValueError):
        good = False
    if not good:
        raise InputError(
            f"the capacity must be edges and sources for {num_hops} hops, sources not "
            f"decreasing from the {batch_size} seeds on",
            capacity,
            "Make one with jgs.sampling.plan_capacity for this batch size and sampler.",
        )
    if max(edges + sources) > _INT32_MAX:
        raise InputError(
            "a sample must have fewer than 2**31 edges and nodes",
            capacity,
            "Pass a smaller capacity (jgs.sampling.plan_capacity), sampler or batch.",
        )
    return Capacity(edges, sources)


class Capacities(NamedTuple):
    """The capacities of batches that are drawn until they fit.

    Fields:
      capacity: what a batch is drawn with at first.
      worst: the bound, which no batch exceeds.
      num_seeds: int, the seeds of a batch.
    """

    capacity: Capacity
    worst: Capacity
    num_seeds: int = 0

    @classmethod
    def of(
        cls, capacity: Capacity | Capacities | None, bound: Callable[[], Capacity]
    ) -> Capacities:
        """Those given, or those of a first capacity, by default the bound."""
        if isinstance(capacity, Capacities):
            return capacity
        worst = bound()
        return cls(worst if capacity is None else capacity, worst)

    @classmethod
    def modest(cls, worst: Capacity, num_seeds: int = 0) -> Capacities:
        """The first capacity is the bound, or less where that would take much memory."""
        edges = [min(w, _MODEST) for w in worst.edges]
        sources = [min(w, _MODEST + num_seeds) for w in worst.sources]
        return cls(Capacity(tuple(edges), tuple(sources)), worst, num_seeds)

    def at(self, level: int) -> Capacity:
        """The capacity, enlarged `level` times. Raises `InputError` beyond the bound."""
        capacity = self.capacity
        for _ in range(level):
            if capacity == self.worst:
                raise InputError(
                    "a batch must fit the bound of its sampler",
                    "an overflow there: seeds that are no nodes or repeat, wrong excluded "
                    "edges, or a bias of a draw that is negative, infinite or NaN",
                    "Give node ids; where seeds repeat, plan with distinct=False; where edges "
                    "are excluded, give edges_between more room; where draws read features, "
                    "give finite ones.",
                )
            capacity = capacity.enlarge(self.worst)
        return capacity

    def fit(self, draw: Callable[[Capacity], tuple[T, Any]], level: int = 0) -> tuple[T, int]:
        """Draws with larger and larger capacities until a batch does not overflow.

        Args:
          draw: `draw(capacity)` returns what it drew, and whether some of it overflowed: a bool
            or an array of such. The key is always the same, so the batch does not depend on the
            capacity.
          level: int, how often the first capacity to try has been enlarged.

        Returns what was drawn, and its level.
        """
        while True:
            drawn, overflow = draw(self.at(level))
            if not np.any(jax.device_get(overflow)):
                return drawn, level
            level += 1

    def with_margin(self, need: np.ndarray, margin: float) -> Capacities:
        """The first capacity is what was needed, int `[2, L]` edges and sources of each hop,
        and a `margin` as a fraction of it."""
        edges, sources = (
            [min(round_up(math.ceil(n * (1 + margin))), w) for n, w in zip(*each, strict=True)]
            for each in zip(need.tolist(), self.worst, strict=True)
        )
        sources = np.maximum.accumulate([self.num_seeds, *sources])[1:].tolist()
        return self._replace(capacity=Capacity(tuple(edges), tuple(sources)))


def bytes_of(capacity: Capacity) -> int:
    """About the bytes that a batch of this capacity takes."""
    return max(1, 4 * (sum(capacity.edges) + sum(capacity.sources) + capacity.sources[-1]))


def default_super_batch(capacity: Capacity) -> int:
    """The size of a super-batch: up to 4 batches a thread in at most 8 MiB a thread, or else 1.

    In a super-batch each thread samples whole batches and waits for no other thread (gSampler,
    SOSP 2023, super-batches), and the batches share the overhead of the call. A super-batch is
    of use only with at least one batch a thread. Measured by `python -m benchmarks.superbatch`.
    """
    threads = max(2, num_threads())
    rounds = min(_PER_THREAD, _BYTES_PER_THREAD // bytes_of(capacity))
    return threads * rounds or 1


def num_threads() -> int:
    """The number of threads that a kernel may use."""
    if kernels.NUM_THREADS:
        return kernels.NUM_THREADS
    # Else those in XLA's pool.
    if (cores := os.environ.get("NPROC", "")).isdecimal() and int(cores) > 0:
        return int(cores)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
