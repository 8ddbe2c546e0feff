"""One process of the benchmark of cutoffs: jgs's `Neighbors`, jitted, in one of these ways.

`untimed` draws without cutoffs; `uniform` among the edges before them; `latest` takes the
latest ones; `window` draws among those of the last `WINDOW`; `half_life` in proportion to
2**(-age / HALF_LIFE). As in `draws.py` the capacity is planned, and the host reads
whether a draw overflowed.
"""

from dataclasses import replace
from functools import partial

import jax
import numpy as np

import jgs
from benchmarks import time_graph, worker
from jgs.sampling import Neighbors, Seeds, plan_capacity, worst_case

WINDOW = HALF_LIFE = time_graph.SPAN // 16
WAYS = {
    "untimed": {},
    "uniform": {},
    "latest": {"latest": True},
    "window": {"window": WINDOW},
    "half_life": {"half_life": HALF_LIFE},
}


def measure(graph: jgs.Graph, way: str, setting: dict) -> dict:
    nodes, timed = worker.batches(setting), way != "untimed"
    cutoffs = time_graph.cutoffs(setting)
    sampler = Neighbors(tuple(setting["fanouts"]), **WAYS[way])
    state, steps = sampler.init(graph), range(setting["iterations"])
    batches = [Seeds(nodes[i], cutoffs[i] if timed else None) for i in steps]
    every = {"node": nodes.ravel(), "time": cutoffs.ravel()} if timed else nodes.ravel()
    capacity = plan_capacity(
        graph,
        setting["batch"],
        sampler,
        seeds=every,
        state=state,
        before=_seeds if timed else (),
    )

    def draw(key, step, graph, state, seeds, capacity, sampler):
        key = jax.random.fold_in(key, step)
        return sampler.sample(key, graph, state, seeds, capacity)

    draw = jax.jit(draw, static_argnums=(5, 6))
    key = jax.random.key(0)

    def sample(step, sampler=sampler):
        batch = draw(key, np.int32(step), graph, state, batches[step], capacity, sampler)
        return batch, bool(batch.overflow)

    def timed_call(step):
        jax.block_until_ready(sample(step))

    while any(sample(step)[1] for step in steps):  # rare: a batch exceeds the plan
        capacity = capacity.enlarge(worst_case(graph, setting["batch"], sampler))
    shown = replace(sampler, edges=("id",))
    window = WINDOW if way == "window" else time_graph.SPAN
    found = [_found(setting, sample(step, shown)[0], window) for step in steps]
    return time_graph.result(setting, worker.milliseconds(timed_call, steps), found)


def _seeds(key, graph, items):
    """The stage that makes seeds of items for the plan."""
    return Seeds(items["node"], items["time"]), items


def _found(setting: dict, batch: jgs.MiniBatch, window: int) -> tuple[list[int], int, int]:
    """The edges of each hop, the nodes, and how many edges break the law of cutoffs."""
    hops, late, nodes = [], 0, np.asarray(batch.nodes)
    for block in reversed(batch.blocks):
        count = int(block.num_edges)
        rows = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
        hops.append(count)
        if batch.cutoff is not None:
            until, edges = np.asarray(batch.cutoff)[rows], np.asarray(block.edge_id)[:count]
            late += time_graph.late(setting, edges, nodes[rows], until, window)
    return hops, int(batch.blocks[0].num_sources), late


if __name__ == "__main__":
    worker.main(
        lambda task: partial(measure, jgs.Graph.open(task["graph"], verify=False), task["way"])
    )
