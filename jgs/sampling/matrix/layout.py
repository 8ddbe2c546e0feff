"""Choices that change no sample, decided by timing: the layout of slices, and whether products
of the whole graph are stored."""

from __future__ import annotations

import logging
import statistics
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.capacity import GraphShape
from jgs.sampling.edges.random import threefry
from jgs.sampling.matrix.sampler import MatrixSampler, prepared
from jgs.sampling.plan import plan_capacity

T = TypeVar("T", bound=MatrixSampler)

_ROUNDS = 5
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
        without, with_it = _medians(graph, batch_size, both, seeds, key)
        _chosen[known] = with_it < _WORTH[field] * without
        what, *names = _WORDS[field]
        logging.getLogger("jgs").info(
            "%s of %s: %s (%s %.2f ms, %s %.2f ms)",
            *(what, type(sampler).__name__, names[_chosen[known]]),
            *(names[0], without * 1e3, names[1], with_it * 1e3),
        )
    return both[_chosen[known]]


def _medians(
    graph: Graph, batch_size: int, samplers: list[T], seeds: Any, key: Any
) -> list[float]:
    """The median seconds that each sampler takes to draw the same batch, in turn."""
    capacity = plan_capacity(graph, batch_size, samplers[0], seeds=seeds, key=key, trials=3)
    key = threefry(0) if key is None else key
    pool = np.arange(graph.num_nodes) if seeds is None else np.unique(seeds)
    padded = np.full(batch_size, graph.num_nodes, np.int32)
    chosen = np.random.default_rng(0).permutation(pool)[:batch_size]
    padded[: chosen.size] = chosen
    states = [sampler.init(graph) for sampler in samplers]
    draws = [jax.jit(sampler.sample, static_argnums=4) for sampler in samplers]
    seconds: list[list[float]] = [[] for _ in samplers]
    for number in range(_ROUNDS + 1):
        for draw, state, own_seconds in zip(draws, states, seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(draw(key, graph, state, padded, capacity))
            if number:  # the first call compiles
                own_seconds.append(time.perf_counter() - began)
    return list(map(statistics.median, seconds))
