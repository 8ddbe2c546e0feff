"""What the processes share that draw with jgs: a draw of planned capacity, and its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import plan_capacity, worst_case
from jgs.sampling.capacity import Capacity

Draw = Callable[[Any], jgs.MiniBatch]


def steps(setting: dict) -> list[np.int32]:
    """The numbers of a setting's batches, in the dtype that the jitted draws take."""
    return [np.int32(i) for i in range(setting["iterations"])]


def planned(
    graph: jgs.Graph, sampler: Any, setting: dict, state: Any = None
) -> tuple[Draw, Capacity]:
    """A jitted function of a step that draws its batch of seeds, and its capacity.

    The capacity is planned, and enlarged until no step overflows. After every call the host
    reads whether the draw overflowed, as the loader does. By default the state is that of
    `sampler.init`.
    """
    batches, key = worker.batches(setting), jax.random.key(0)
    capacity = plan_capacity(graph, setting["batch"], sampler, seeds=batches.ravel())
    state = sampler.init(graph) if state is None else state

    @partial(jax.jit, static_argnums=5)
    def draw(key, step, graph, state, seeds, capacity):
        key = jax.random.fold_in(key, step)
        return sampler.sample(key, graph, state, seeds, capacity)

    def overflows(step, capacity):
        batch = draw(key, step, graph, state, batches[step], capacity)
        return bool(batch.overflow)

    while any(overflows(step, capacity) for step in steps(setting)):  # rare
        capacity = capacity.enlarge(worst_case(graph, setting["batch"], sampler))

    def sample(step):
        batch = draw(key, step, graph, state, batches[step], capacity)
        assert not bool(batch.overflow)
        return jax.block_until_ready(batch)

    return sample, capacity


def measured(setting: dict, sample: Draw) -> dict:
    """A setting's result: the times of its draws, and their mean numbers of nodes and edges."""
    return worker.measured(setting, sample, steps(setting), _size)


def _size(batch: jgs.MiniBatch) -> tuple[int, int]:
    return int(batch.blocks[0].num_sources), sum(int(b.num_edges) for b in batch.blocks)
