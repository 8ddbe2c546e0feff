"""`calibrate` measures the constants of this machine in some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks.plan.cost import Constants, Draw, Workload, step_flops
from jgs.dist.batches.source import HybridSampler
from jgs.dist.batches.vanilla import VanillaSampler
from jgs.dist.communicators.comm import Alone
from jgs.graph import Graph, as_device
from jgs.models import GraphSAGE
from jgs.ops import gather
from jgs.sampling import plan_capacity
from jgs.sampling.edges.random import threefry
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

_DEGREE = 24  # mean degree of the generated graph
_FEATURE_BYTES = 512 << 20  # of the generated features: more than any cache holds
_REPEATS = 5


def calibrate(
    work: Workload, graph: Graph | None = None, seeds: np.ndarray | None = None
) -> Constants:
    """Measures this machine's constants on 5 batches.

    Args:
      work: gives the sampler, the batch size, and the widths of features and hidden layers.
      graph: the graph to sample; None: a uniform random one is generated.
      seeds: int32, the nodes to draw seeds from; None: all nodes.

    The features are generated. The measurement takes about 1.5 GiB and uses as many threads as
    training.
    """
    rng = np.random.default_rng(0)
    num_rows = max(_FEATURE_BYTES // (4 * work.num_features), 1 << 15)
    if graph is None:
        num_rows = min(num_rows, 1 << 21)
        indptr = np.arange(num_rows + 1, dtype=np.int64) * _DEGREE
        graph = Graph(indptr, rng.integers(0, num_rows, num_rows * _DEGREE, np.int32))
    num_nodes = graph.num_nodes
    num_rows = min(num_rows, num_nodes)
    features = as_device(rng.random((num_rows, work.num_features), np.float32))
    capacity = plan_capacity(graph, work.batch_size, work.sampler, seeds=seeds, trials=4)
    comm, sizes = Alone(), (work.batch_size, work.sampler)
    samplers: list[Any] = [
        HybridSampler(comm, graph, *sizes, capacity),
        VanillaSampler(comm, graph, [0, num_nodes], graph.num_edges, *sizes, capacity),
    ]
    batches = [_seeds(rng, seeds, num_nodes, work.batch_size) for _ in range(_REPEATS)]

    def draw(sampler: Any, number: int) -> Any:
        def attempt(capacity: Any) -> Any:
            batch = sampler(np.array([0, number], np.uint32), batches[number], capacity)
            return batch, batch.overflow

        return sampler.capacities.fit(attempt)[0]

    drawn = [draw(samplers[0], number) for number in range(_REPEATS)]
    batch = drawn[0]
    blocks = batch.blocks[::-1]
    edges = tuple(float(b.num_edges) for b in blocks)
    drawn_edges = max(1.0, sum(edges))  # a graph may have none
    sources = tuple(float(b.num_sources) for b in blocks)
    sampling = [_median(partial(draw, sampler)) for sampler in samplers]
    read, rows = jax.jit(gather), [b.nodes % num_rows for b in drawn]
    reading = _median(lambda number: read(features, rows[number]))
    x = read(features, rows[0])
    here = Draw(edges, sources, (), (), 0, 0, 0.0, 1.0)
    return Constants(
        sampling[0] / drawn_edges,
        sampling[1] / drawn_edges,
        x.shape[0] * work.num_features * 4 / reading,
        step_flops(work, here) / _step_seconds(work, batch, x, num_nodes),
    )


def _seeds(
    rng: np.random.Generator, seeds: np.ndarray | None, num_nodes: int, size: int
) -> np.ndarray:
    """int32 `[size]`: a random batch of `seeds`, padded with `num_nodes` where there are
    fewer."""
    pool = num_nodes if seeds is None else seeds
    num = min(size, num_nodes if seeds is None else seeds.size)
    some = rng.choice(pool, num, replace=False).astype(np.int32)
    return np.pad(some, (0, size - num), constant_values=num_nodes)


def _step_seconds(work: Workload, batch: Any, x: jax.Array, num_nodes: int) -> float:
    widths = (work.num_features, work.hidden, work.num_classes)
    model = GraphSAGE(*widths, work.sampler.num_hops, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(1e-2)
    step = make_train_step(graphdef, optimizer)
    labels = np.random.default_rng(0).integers(0, work.num_classes, num_nodes, np.int32)
    state = [init_state(params, optimizer)]  # a step donates its state's buffers

    def one(_: int) -> Any:
        state[0] = step(state[0], threefry(0), batch, x, labels)
        return state[0].step

    return _median(one)


def _median(function: Callable[[int], Any]) -> float:
    """The median of the seconds that a call of `function` takes, after programs are compiled
    and buffers recycled."""
    for number in range(_REPEATS):
        jax.block_until_ready(function(number))
    times = []
    for number in range(_REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(number))
        times.append(time.perf_counter() - began)
    return float(np.median(times))
