"""Choices that change no sample, decided by timing: the layout of slices, whether products of
the whole graph are stored, and how many batches a loader draws in one call."""

from __future__ import annotations

import logging
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.capacity import GraphShape, bytes_of
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.loader import Loader
from jgs.sampling.loading.stages import SamplerSchedule
from jgs.sampling.matrix.sampler import MatrixSampler, prepared
from jgs.sampling.plan import plan_capacity

T = TypeVar("T", bound=MatrixSampler)

_ROUNDS, _SLACK = 5, 1.03
# For each field: what is chosen, and what its values False and True mean.
_WORDS = {
    "compact": ("layout", "all nodes", "compact"),
    "stored": ("whole-graph values", "computed", "stored"),
}
_WORTH = {"compact": 1.0, "stored": 0.9}  # to be chosen, True must take less of False's time
_chosen: dict[Any, bool] = {}


def choose_layout(
    graph: Graph, batch_size: int, sampler: T, *, seeds: Any = None, key: Any = None
) -> T:
    """`sampler` with the faster `compact`, measured on this machine; its samples do not change.

    This is gSampler's layout selection (SOSP 2023, section 4.3). Row vectors of a slice have an
    entry for each node of the graph or, with `compact`, only for each distinct row of the
    slice. The first layout needs no search, and the second no memory for nodes that a batch
    does not touch. (`docs/benchmarks.md` says why an order by row would not pay.) A batch is
    drawn five times in each layout, in turn, and the medians decide. Arguments are those of
    `jgs.sampling.plan_capacity`.

    A process makes the choice once for each sampler, size of a graph and batch size, and logs
    it to the logger `jgs` at level INFO. To fix the choice, give the sampler `compact`. Raises
    `InputError`.
    """
    return _faster("compact", graph, batch_size, sampler, seeds, key)


def choose_stored(
    graph: Graph,
    batch_size: int,
    sampler: T,
    *,
    seeds: Any = None,
    key: Any = None,
    memory: int | None = None,
) -> T:
    """`sampler` with the faster `stored`, measured on this machine as in `choose_layout`.

    This is the second case of gSampler's pre-processing (SOSP 2023, section 4.2). A program may
    make edge values of the whole graph and slice them later, such as `A.dot(x, x)[:, frontier]`
    or `(A ** 2)[:, frontier]`. Each slice can compute its own values, or read them from an
    array of all edges that `init` has computed. To be chosen, reading must save a tenth of a
    batch's time, because it takes memory.

    The stored values may take `memory` bytes; None: any number. They take 4 an edge in each
    layer. Layers that have equal values share them once `init` is done, and are counted each.

    The result has `stored=False`, and nothing is timed, if the program makes no such values of
    the graph alone, if the sampler has arrays of its own, or if the values exceed `memory`.
    Raises `InputError`.
    """
    if memory is not None and memory < 0:
        raise InputError("memory must not be negative", memory, "Give bytes, or None.")
    without = replace(sampler, stored=False)
    needed = 0 if sampler.has_arrays else _bytes_stored(graph, without)
    if memory is not None and needed > memory:
        logging.getLogger("jgs").info(
            "whole-graph values of %s: computed, for %d bytes are more than %d",
            *(type(sampler).__name__, needed, memory),
        )
        return without
    return _faster("stored", graph, batch_size, sampler, seeds, key) if needed > 0 else without


def _bytes_stored(graph: Graph, sampler: MatrixSampler) -> int:
    """The size of the arrays that `init` computes only with `stored`, before layers share."""

    def arrays(stored: bool) -> Counter:
        one = replace(sampler, stored=stored)
        leaves = jax.tree.leaves(jax.eval_shape(partial(prepared, sampler=one), graph))
        return Counter((leaf.size * leaf.dtype.itemsize, leaf.shape) for leaf in leaves)

    return sum(size for size, _ in (arrays(True) - arrays(False)).elements())


def _faster(field: str, graph: Graph, batch_size: int, sampler: T, seeds: Any, key: Any) -> T:
    """`sampler` with that value of the boolean `field` with which it draws a batch faster."""
    settings: tuple[dict[str, Any], ...] = {field: False}, {field: True}
    both = [replace(sampler, **setting) for setting in settings]
    known = (field, both[0], GraphShape.of(graph), batch_size)
    if known not in _chosen:
        without, with_it = _of_samplers(graph, batch_size, both, seeds, key)
        _chosen[known] = with_it < _WORTH[field] * without
        what, *names = _WORDS[field]
        logging.getLogger("jgs").info(
            "%s of %s: %s (%s %.2f ms, %s %.2f ms)",
            *(what, type(sampler).__name__, names[_chosen[known]]),
            *(names[0], without * 1e3, names[1], with_it * 1e3),
        )
    return both[_chosen[known]]


def _medians(draws: Sequence[Callable[[], Any]]) -> list[float]:
    seconds: list[list[float]] = [[] for _ in draws]
    for number in range(_ROUNDS + 1):
        for draw, own_seconds in zip(draws, seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(draw())
            if number:  # the first call compiles
                own_seconds.append(time.perf_counter() - began)
    return list(map(statistics.median, seconds))


def _of_samplers(
    graph: Graph, batch_size: int, samplers: list[T], seeds: Any, key: Any
) -> list[float]:
    capacity = plan_capacity(graph, batch_size, samplers[0], seeds=seeds, key=key, trials=3)
    key = threefry(0) if key is None else key
    pool = np.arange(graph.num_nodes) if seeds is None else np.unique(seeds)
    padded = np.full(batch_size, graph.num_nodes, np.int32)
    chosen = np.random.default_rng(0).permutation(pool)[:batch_size]
    padded[: chosen.size] = chosen

    def drawn(sampler: T) -> Callable[[], Any]:
        state, draw = sampler.init(graph), jax.jit(sampler.sample, static_argnums=4)
        return lambda: draw(key, graph, state, padded, capacity)

    return _medians(list(map(drawn, samplers)))


def choose_super_batch(
    graph: Graph,
    seeds: Any,
    batch_size: int,
    sampler: Any = None,
    *,
    memory: int = 64 << 20,
    sizes: Sequence[int] = (1, 2, 4, 8, 16),
    **options: Any,
) -> int:
    """The size of a super-batch that takes the least time a batch on this machine.

    Give it to the loader: `Loader(..., super_batch=size)`. It changes no batch. Super-batches
    are those of gSampler (SOSP 2023, section 4.3). Of sizes that are within 3 % of the fastest
    the smallest is taken.

    Args:
      graph, seeds, batch_size, sampler, options: as in `Loader`.
        `sampler` is one sampler, no schedule.
      memory: the bytes that the batches of a call may take, by their capacity. A single batch
        may take more.
      sizes: what to choose from, beside 1.

    Each size draws the same batches in turn, five times, and the medians decide. The choice is
    logged to the logger `jgs` at level INFO. Raises `InputError`.
    """
    memory = require_int("memory", memory, 0)
    sizes = [require_int("a size", size, 1) for size in sizes]
    if isinstance(sampler, SamplerSchedule) or "super_batch" in options:
        raise InputError(
            "a super-batch must be chosen for one sampler, and not be given",
            repr(sampler),
            "Call it for each sampler, without super_batch.",
        )
    key = options.pop("key", threefry(0))
    of_all: dict[str, Any] = {"prefetch": 0} | options

    def make(size: int, **more: Any) -> Loader:
        asked = (graph, seeds, batch_size, sampler)
        return Loader(*asked, key=key, super_batch=size, **of_all | more)

    one = make(1)
    fits = memory // (bytes_of(one.capacity) * one.source.schedules[0].devices)
    chosen = {size for size in sizes if size <= min(fits, len(one))}
    loaders = {1: one}
    for size in sorted(chosen - {1}):
        loaders[size] = make(size, capacity=one.capacity)
    if one.learns:  # each batch has another state
        loaders = {1: one}
    steps = min(len(one), 2 * max(loaders))

    def rehearsed(loader: Loader) -> None:
        for batch in loader.rehearse(steps):
            jax.block_until_ready(batch)

    medians = {}
    if len(loaders) > 1:
        draws = [partial(rehearsed, loader) for loader in loaders.values()]
        medians = dict(zip(loaders, _medians(draws), strict=True))
    least = min(medians.values(), default=0.0)
    best = next((size for size, own in medians.items() if own <= _SLACK * least), 1)
    told = ", ".join(f"{1e3 * s / steps:.2f} ms with {size}" for size, s in medians.items())
    logging.getLogger("jgs").info("%d batches a call: each takes %s", best, told or "one alone")
    return best
