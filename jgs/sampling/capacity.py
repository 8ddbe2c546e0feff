"""Static shapes for samples of varying size: `Capacity` and how to choose one."""

from __future__ import annotations

import logging
import math
import operator
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.checks import check_fanouts, check_graph, check_seed_ids, require_int
from jgs.sampling.random import key_words

_INT32_MAX = 2**31 - 1
_MODEST = 1 << 20  # edges for which memory is no concern


class Capacity(NamedTuple):
    """The padded sizes of a sample; hashable, so it can be a static argument of `jax.jit`.

    Fields, one entry a hop, seed-first:
      edges: the most edges the hop may draw (by weight: before those without weight are left
        out, that is the sum of `min(fanout, degree)` over its targets).
      sources: the most nodes known after the hop, seeds included.
    """

    edges: tuple[int, ...]
    sources: tuple[int, ...]

    def enlarge(self, worst: Capacity) -> Capacity:
        """Half as large again, at most `worst`."""
        grow = [
            tuple(min(round_up(c + c // 2 + 1), w) for c, w in zip(mine, limit, strict=True))
            for mine, limit in zip(self, worst, strict=True)
        ]
        return Capacity(*grow)


def round_up(size: int) -> int:
    """`size` rounded up to one of few sizes: 16 steps from one power of two to the next."""
    step = max(8, 1 << max(0, math.ceil(math.log2(max(size, 1))) - 5))
    return -(-size // step) * step


def worst_case(
    num_nodes: int,
    num_edges: int,
    batch_size: int,
    fanouts: Sequence[int],
    replace: bool,
    distinct: bool = False,
) -> Capacity:
    """The capacity that no sample of `batch_size` seeds exceeds.

    With `distinct` no seed is repeated. Where one may be, a fanout of -1 can exceed it all the
    same: every repetition draws all of its neighbours again.
    """
    repeated = 0 if distinct else batch_size - 1
    edges, sources, targets = [], [], batch_size
    for k in fanouts:
        if k == -1:
            most = num_edges
        elif replace:
            most = targets * k
        else:
            most = min(targets * k, num_edges + repeated * k)
        edges.append(most)
        targets = min(targets + most, num_nodes + batch_size)
        sources.append(targets)
    return Capacity(tuple(edges), tuple(sources))


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
            "Make one with jgs.sampling.plan_capacity for this batch size and these fanouts.",
        )
    if max(edges + sources) > _INT32_MAX:
        raise InputError(
            "a sample must have fewer than 2**31 edges and nodes",
            capacity,
            "Pass a smaller capacity (jgs.sampling.plan_capacity), fanouts or batch.",
        )
    return Capacity(edges, sources)


def plan_capacity(
    graph: Graph,
    batch_size: int,
    fanouts: Sequence[int],
    *,
    seeds: Any = None,
    key: Any = None,
    replace: bool = False,
    weighted: bool = False,
    trials: int = 10,
    margin: float = 0.05,
) -> Capacity:
    """A tight capacity, measured: what `trials` samples needed, and a margin.

    Args:
      batch_size: `B`, the seeds of a batch, padding included.
      fanouts, replace, weighted: as for `sample_neighbors`.
      seeds: int `[n]`, the nodes that batches are drawn from (repetitions count once); None:
        all nodes.
      key: a random key; None: `jax.random.key(0)`. The plan is a function of it.
      trials: how many batches are drawn to measure.
      margin: what is added to the largest need, as a fraction of it. The sizes are then
        rounded up to one of 16 steps between powers of two, so that few shapes exist, and
        cut to the worst case.

    A batch that needs more overflows (see `MiniBatch.overflow`) and is drawn again with
    `Capacity.enlarge`; `Loader` does so by itself. What the plan cost and saved is logged to
    the logger `jgs` at level INFO. Raises `InputError`.
    """
    fanouts = check_fanouts(fanouts)
    check_graph(graph, weighted)
    batch_size = require_int("batch_size", batch_size, 1)
    trials = require_int("trials", trials, 1)
    if not 0 <= margin < math.inf:
        raise InputError("margin must be a fraction of at least 0", margin, "0.05 is usual.")
    words = key_words(jax.random.key(0) if key is None else key)
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    pool = np.arange(graph.num_nodes) if seeds is None else seeds
    pool = np.unique(check_seed_ids(pool, graph.num_nodes))
    began = time.perf_counter()
    chooser = np.random.default_rng(np.asarray(words).tolist())
    sample = _sampler()

    def needed(trial: int, size: int, capacity: Capacity) -> tuple[np.ndarray, Capacity]:
        """What a batch of `size` seeds needs, and the capacity in which it could be drawn."""
        some = chooser.choice(pool, min(size, pool.size), replace=False)
        seeds = np.full(size, graph.num_nodes, np.int32)
        seeds[: some.size] = some
        words = key_words(jax.random.fold_in(key, trial))
        kinds = bool(replace), bool(weighted)
        while True:  # ends at the worst case: the seeds are distinct
            hops, nodes, overflow = sample(words, graph, seeds, fanouts, capacity, *kinds)
            if not overflow:
                break
            capacity = capacity.enlarge(worst(size))
        need = _need(graph, hops, nodes, fanouts, weighted and not replace)
        return np.array(need), capacity

    def worst(size: int) -> Capacity:
        return worst_case(graph.num_nodes, graph.num_edges, size, fanouts, replace, True)

    def guess(size: int) -> Capacity:
        """Where the worst case would take much memory, twice what half the seeds need: on
        average a batch needs no more than its halves together."""
        first = first_guess(graph.num_nodes, graph.num_edges, size, fanouts, replace)
        if sum(first.edges) <= _MODEST or size == 1:
            return first
        half = -(-size // 2)
        need, _ = needed(trials, half, guess(half))
        return with_margin(2 * need, margin, size, worst(size))

    need, capacity = np.zeros((2, len(fanouts)), np.int64), guess(batch_size)
    for trial in range(trials):
        more, capacity = needed(trial, batch_size, capacity)
        need = np.maximum(need, more)
    planned = with_margin(need, margin, batch_size, worst(batch_size))
    logging.getLogger("jgs").info(
        "capacity planned from %d batches in %.2f s: edges %s, sources %s; the worst case "
        "would take %.1f times the edges",
        trials,
        time.perf_counter() - began,
        planned.edges,
        planned.sources,
        sum(worst(batch_size).edges) / max(1, sum(planned.edges)),
    )
    return planned


def _sampler() -> Callable[..., Any]:
    """`sample(words, graph, seeds, fanouts, capacity, replace, weighted)`: the hops' blocks
    seed-first, the nodes and the overflow.

    It is compiled for some sizes and not needed afterwards, so it leaves little behind: on a
    CPU the kernel alone, as JAX never forgets what it traced, and the plain path is long.
    """
    from jgs.sampling.algorithms import (  # they need this one
        neighbors,
        neighbors_kernel,
        neighbors_plain,
    )

    run = neighbors._sample
    if kernels.available() and jax.default_backend() == "cpu":
        run = jax.jit(partial(neighbors_kernel.sample_kernel), static_argnames="spec")

    def sample(words, graph, seeds, fanouts, capacity, replace, weighted):
        spec = neighbors_plain.Spec(fanouts, capacity, replace, weighted, False, False, True)
        with jax.enable_x64(True):  # as sample_neighbors does
            (sample,) = run(words, graph, seeds, spec=spec)
        return sample

    return sample


def first_guess(
    num_nodes: int, num_edges: int, batch_size: int, fanouts: Sequence[int], replace: bool
) -> Capacity:
    """The worst case of distinct seeds, but twice the mean degree where all neighbours are
    taken."""
    worst = worst_case(num_nodes, num_edges, batch_size, fanouts, replace, True)
    mean_degree = 1 + num_edges // max(1, num_nodes)
    edges, sources, targets = [], [], batch_size
    for h, k in enumerate(fanouts):
        edges.append(min(worst.edges[h], targets * (k if k > 0 else 2 * mean_degree)))
        targets = min(worst.sources[h], targets + edges[-1])
        sources.append(targets)
    return Capacity(tuple(edges), tuple(sources))


def _need(
    graph: Graph, blocks: Any, nodes: Any, fanouts: Sequence[int], bounded: bool
) -> list[list[int]]:
    """The edges and the sources that each hop needed; `bounded`: zero weights are counted."""
    edges = [int(block.num_edges) for block in blocks]
    if bounded:
        nodes = np.asarray(nodes)
        indptr = np.asarray(graph.indptr)
        for h, (k, block) in enumerate(zip(fanouts, blocks, strict=True)):
            real = nodes[: int(block.num_targets)]
            real = real[real < graph.num_nodes].astype(np.int64)
            degree = indptr[real + 1] - indptr[real]
            edges[h] = int((degree if k == -1 else np.minimum(degree, k)).sum())
    return [edges, [int(block.num_sources) for block in blocks]]


def with_margin(need: np.ndarray, margin: float, batch_size: int, worst: Capacity) -> Capacity:
    edges, sources = (
        [min(round_up(math.ceil(n * (1 + margin))), w) for n, w in zip(row, limit, strict=True)]
        for row, limit in zip(need.tolist(), worst, strict=True)
    )
    sources = np.maximum.accumulate([batch_size, *sources])[1:].tolist()
    return Capacity(tuple(edges), tuple(sources))
