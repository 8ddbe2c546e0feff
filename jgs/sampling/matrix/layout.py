"""Layout selection: whether the rows of slices are compact, decided by timing both layouts."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from jgs.graph import Graph
from jgs.sampling.capacity import GraphShape
from jgs.sampling.edges.random import threefry
from jgs.sampling.matrix.sampler import MatrixSampler
from jgs.sampling.plan import plan_capacity

T = TypeVar("T", bound=MatrixSampler)

_ROUNDS = 5
_chosen: dict[Any, bool] = {}


def choose_layout(
    graph: Graph, batch_size: int, sampler: T, *, seeds: Any = None, key: Any = None
) -> T:
    """`sampler` with the faster `compact`, measured on this machine; its samples do not change.

    This is gSampler's layout selection (SOSP 2023, section 4.2). Row vectors of a slice have an
    entry for each node of the graph or, with `compact`, only for each distinct row of the
    slice. The first layout needs no search, and the second no memory for nodes that a batch
    does not touch. The format of a slice's edges is not chosen: it has each edge's row and
    column beside the columns' offsets (`docs/benchmarks.md` says why an order by row would not
    pay). A batch is drawn five times in each layout, in turn, and the medians decide.

    Args:
      graph, batch_size, sampler, seeds, key: as in `jgs.sampling.plan_capacity`.

    A process makes the choice once for each sampler, size of a graph and batch size, and logs
    it to the logger `jgs` at level INFO. To fix the choice, give the sampler `compact` and do
    not call this function. Raises `InputError`.
    """
    known = (replace(sampler, compact=False), GraphShape.of(graph), batch_size)
    if known not in _chosen:
        _chosen[known] = _faster(graph, batch_size, sampler, seeds, key)
    return replace(sampler, compact=_chosen[known])


def _faster(graph: Graph, batch_size: int, sampler: T, seeds: Any, key: Any) -> bool:
    capacity = plan_capacity(graph, batch_size, sampler, seeds=seeds, key=key, trials=3)
    key = threefry(0) if key is None else key
    pool = np.arange(graph.num_nodes) if seeds is None else np.unique(seeds)
    padded = np.full(batch_size, graph.num_nodes, np.int32)
    chosen = np.random.default_rng(0).permutation(pool)[:batch_size]
    padded[: chosen.size] = chosen
    state = sampler.init(graph)
    draws = [
        jax.jit(replace(sampler, compact=compact).sample, static_argnums=4)
        for compact in (False, True)
    ]
    seconds: list[list[float]] = [[], []]
    for number in range(_ROUNDS + 1):
        for draw, own_seconds in zip(draws, seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(draw(key, graph, state, padded, capacity))
            if number:  # the first call compiles
                own_seconds.append(time.perf_counter() - began)
    all_nodes, compact = map(statistics.median, seconds)
    logging.getLogger("jgs").info(
        "layout of %s: %s (all nodes %.2f ms, compact %.2f ms)",
        type(sampler).__name__,
        "compact" if compact < all_nodes else "all nodes",
        all_nodes * 1e3,
        compact * 1e3,
    )
    return compact < all_nodes
