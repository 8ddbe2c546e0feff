"""`choose_super_batch`: how many batches a loader should draw in one call, measured."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.capacity import bytes_of
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.loader import Loader
from jgs.sampling.loading.stages import SamplerSchedule

_ROUNDS, _SLACK = 5, 1.03


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
    seconds: dict[int, list[float]] = {size: [] for size in loaders}
    for number in range(_ROUNDS + 1) if len(loaders) > 1 else ():
        for size, loader in loaders.items():
            began, left = time.perf_counter(), steps
            for batch in loader.rehearse(steps):
                jax.block_until_ready(batch)
                left -= 1
            assert left == 0
            if number:  # the first call compiles
                seconds[size].append(time.perf_counter() - began)
    medians = {size: statistics.median(own) for size, own in seconds.items() if own}
    least = min(medians.values(), default=0.0)
    best = next((size for size, own in medians.items() if own <= _SLACK * least), 1)
    told = ", ".join(f"{1e3 * s / steps:.2f} ms with {size}" for size, s in medians.items())
    logging.getLogger("jgs").info("%d batches a call: each takes %s", best, told or "one alone")
    return best
