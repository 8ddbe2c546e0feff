"""`plan_capacity`: a tight capacity for a sampler, measured by drawing."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import Any

import jax
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.base import Sampler, State, draws_seeds, of_pairs
from jgs.sampling.capacity import (
    Capacity,
    GraphShape,
    enlarged,
    modest,
    until_it_fits,
    with_margin,
)
from jgs.sampling.checks import check_graph, check_seed_ids, require_int
from jgs.sampling.random import as_key_data, fold_each
from jgs.sampling.shorthand import as_sampler


def worst_case(
    graph: Graph,
    batch_size: int,
    sampler: Any = None,
    *,
    distinct: bool = False,
    **options: Any,
) -> Capacity:
    """The capacity that no batch of `batch_size` seeds exceeds.

    Args:
      sampler, options: as in `plan_capacity`.
      distinct: whether no seed is repeated within a batch, which gives a tighter bound.

    The graph's offsets are read once where seeds may repeat. Raises `InputError`.
    """
    sampler = as_sampler(sampler, **options)
    sampler.init(graph)
    shape = GraphShape.of(graph, degrees=not distinct)
    return sampler.bound(shape, require_int("batch_size", batch_size, 1), distinct)


def plan_capacity(
    graph: Graph,
    batch_size: int,
    sampler: Any = None,
    *,
    seeds: Any = None,
    key: Any = None,
    trials: int = 10,
    margin: float = 0.05,
    distinct: bool = True,
    **options: Any,
) -> Capacity:
    """A tight capacity, measured: what `trials` samples needed, plus a margin.

    Args:
      batch_size: int; `B`, the number of seeds in a batch, padding included.
      sampler: the `Sampler`, or a tuple of ints with the `options` of `sample_neighbors`.
      seeds: int `[n]`, the nodes that batches are drawn from. None: all nodes. For a sampler of
        pairs it is int `[n, 2]`, and required.
      key: a Threefry key. None: that of seed 0. The plan is a pure function of it.
      trials: int; the number of batches that are drawn to measure.
      margin: float; what is added to the largest need, as a fraction of it. The sizes are then
        rounded up to one of 16 steps between powers of two, so that few shapes exist, and
        limited to the worst case.
      distinct: True: repeated `seeds` are drawn from once. False: a node may occur several
        times among a batch's seeds, as ends of edges do; trials then draw seeds with
        replacement.

    A batch that needs more overflows (see `MiniBatch.overflow`) and must be drawn again with
    `Capacity.enlarge`, as `Loader` does. The time that the plan took and the size that it saves
    are logged to the logger `jgs` at level INFO. Raises `InputError`.
    """
    sampler = as_sampler(sampler, **options)
    check_graph(graph, False)
    batch_size = require_int("batch_size", batch_size, 1)
    trials = require_int("trials", trials, 1)
    if not 0 <= margin < math.inf:
        raise InputError("margin must be a fraction of at least 0", margin, "0.05 is usual.")
    key_data = np.zeros(2, np.uint32) if key is None else jax.device_get(as_key_data(key))
    pool = np.arange(graph.num_nodes) if seeds is None else seeds
    pool = check_seed_ids(pool, graph.num_nodes, of_pairs(sampler))
    if distinct:
        pool = np.unique(pool, axis=0)
    began = time.perf_counter()
    state = sampler.init(graph)
    chooser = np.random.default_rng(key_data.tolist())
    worst = sampler.bound(GraphShape.of(graph, degrees=not distinct), batch_size, distinct)
    least = 0 if draws_seeds(sampler) else batch_size
    first = modest(worst, least)
    draw = _draw_on_this_host(sampler)
    need, level = np.zeros((2, len(worst.edges)), np.int64), 0
    trial_keys = fold_each(key_data, np.arange(trials))
    for trial in range(trials):
        size = min(batch_size, len(pool)) if distinct else batch_size
        trial_seeds = np.full((batch_size, *pool.shape[1:]), graph.num_nodes, np.int32)
        trial_seeds[:size] = chooser.choice(pool, size, replace=not distinct)
        given = jax.device_put((trial_keys[trial], trial_seeds))

        def attempt(level: int, given: Any = given) -> Any:
            key_data, seeds = given
            return draw(key_data, graph, state, seeds, enlarged(first, worst, level))

        needed, level = until_it_fits(attempt, level)
        need = np.maximum(need, jax.device_get(needed))
    planned = with_margin(need, margin, least, worst)
    log = logging.getLogger("jgs")
    log.info(
        "capacity planned from %d batches in %.2f s, %.1f times below the worst case",
        trials,
        time.perf_counter() - began,
        sum(worst.edges) / max(1, sum(planned.edges)),
    )
    log.info("  edges %s, sources %s", planned.edges, planned.sources)
    return planned


def _draw_on_this_host(sampler: Sampler) -> Any:
    """A function `draw(key_data, graph, state, seeds, capacity)` that returns what the batch
    needed, and whether it overflowed.

    It is compiled for a few sizes and not needed afterwards. JAX keeps everything that it has
    traced, so on a CPU only the kernel is traced, and not the long plain form.
    """

    @partial(jax.jit, static_argnums=4)
    def draw(
        key_data: jax.Array, graph: Graph, state: State, seeds: jax.Array, capacity: Capacity
    ) -> tuple[jax.Array, jax.Array]:
        batch = sampler.sample(key_data, graph, state, seeds, capacity)
        assert batch.needed is not None, "every sampler says what its batches needed"
        return batch.needed, batch.overflow

    def on_this_host(*arguments: Any) -> Any:
        with kernels.this_host_only():
            return draw(*arguments)

    return on_this_host
