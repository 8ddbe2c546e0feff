"""`calibrate`: the constants of this machine, measured in some seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.dist.comm import Alone
from jgs.dist.cost import Constants, Draw, Workload, step_flops
from jgs.dist.loader import HybridSampler
from jgs.dist.vanilla import VanillaSampler
from jgs.graph import Graph, as_device
from jgs.models import GraphSAGE
from jgs.ops import gather
from jgs.sampling.capacity import plan_capacity
from jgs.train.step import init_state, make_optimizer, make_train_step

_DEGREE = 24  # of the graph that is made up
_FEATURE_BYTES = 512 << 20  # of its features: more than any cache holds
_REPEATS = 5


def calibrate(work: Workload) -> Constants:
    """Measured on batches of a uniform random graph, with the fanouts, batch size, features and
    hidden width of `work`: the median of 5 batches each.

    It takes about 1.5 GiB and uses the threads that training would.
    """
    process = resident()
    rng = np.random.default_rng(0)
    num_nodes = min(max(_FEATURE_BYTES // (4 * work.num_features), 1 << 15), 1 << 21)
    indptr = np.arange(num_nodes + 1, dtype=np.int64) * _DEGREE
    graph = Graph(indptr, rng.integers(0, num_nodes, num_nodes * _DEGREE, np.int32))
    features = as_device(rng.random((num_nodes, work.num_features), np.float32))
    capacity = plan_capacity(graph, work.batch_size, work.fanouts, trials=2)
    comm, sizes = Alone(), (work.batch_size, work.fanouts)
    hybrid = HybridSampler(comm, graph, *sizes, capacity)
    vanilla = VanillaSampler(
        comm, graph, [0, num_nodes], graph.num_edges, *sizes, capacity
    )
    batches = [rng.choice(num_nodes, work.batch_size, False).astype(np.int32) for _ in range(_REPEATS)]

    def draw(sampler: Any, number: int) -> Any:
        return sampler(np.array([0, number], np.uint32), batches[number])

    batch = draw(hybrid, 0)
    blocks = batch.blocks[::-1]
    edges = tuple(float(b.num_edges) for b in blocks)
    sources = tuple(float(b.num_sources) for b in blocks)
    seconds = [_median(partial(draw, sampler)) for sampler in (hybrid, vanilla)]
    nodes = [draw(hybrid, number).nodes for number in range(_REPEATS)]
    read, x = jax.jit(gather), gather(features, batch.nodes)
    reading = _median(lambda number: read(features, nodes[number]))
    small = work._replace(num_classes=min(work.num_classes, 1024))
    here = Draw(edges, sources, (), (), 0, 0, 0.0, 1.0)
    return Constants(
        seconds[0] / sum(edges),
        seconds[1] / sum(edges),
        sources[-1] * work.num_features * 4 / reading,
        step_flops(small, here) / _step_seconds(small, batch, x, num_nodes),
        process,
    )


def _step_seconds(work: Workload, batch: Any, x: jax.Array, num_nodes: int) -> float:
    widths = (work.num_features, work.hidden, work.num_classes)
    model = GraphSAGE(*widths, len(work.fanouts), rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(1e-3)
    step = make_train_step(graphdef, optimizer)
    labels = jax.numpy.zeros(num_nodes, np.int32)
    state = [init_state(params, optimizer)]  # a step takes over the buffers of the last

    def one(_: int) -> Any:
        state[0] = step(state[0], jax.random.key(0), batch, x, labels)
        return state[0].step

    return _median(one)


def _median(function: Callable[[int], Any]) -> float:
    """Of the seconds that a call takes, after one that compiles."""
    jax.block_until_ready(function(0))
    times = []
    for number in range(_REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(number))
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def resident() -> float:
    """Bytes of memory that this process has now; the usual 300 MB where that is not told."""
    try:
        with open("/proc/self/statm") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return 3e8
