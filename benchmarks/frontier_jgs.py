"""One process of `benchmarks.frontier`: `Frontier`, jitted; one call draws a subgraph a thread.

After every call the host reads whether the draw overflowed, as the loader does.
"""

from functools import partial

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import Frontier, plan_capacity

SEEDS = 1024


def measure(graph: jgs.Graph, threads: int, setting: dict) -> dict:
    budget, cap = setting["budget"] + setting["more"], setting["degree_cap"]
    sampler = Frontier(setting["m"], budget, degree_cap=cap, edge_ids=True)
    state, seeds = sampler.init(graph), np.arange(SEEDS, dtype=np.int32)
    capacity = plan_capacity(graph, SEEDS, sampler, seeds=seeds, margin=0.1)
    seeds, key = np.tile(seeds, (threads, 1)), jax.random.key(0)

    @jax.jit
    def draw(step, graph, state, seeds):
        key_data = jax.random.key_data(jax.random.split(jax.random.fold_in(key, step), threads))
        return sampler.sample_separately(key_data, graph, state, seeds, capacity)

    @jax.jit
    def draw_nodes(step, graph):
        key_data = jax.random.key_data(jax.random.split(jax.random.fold_in(key, step), threads))
        with jax.enable_x64(True):
            return sampler.draw_nodes(key_data, graph, (), budget)

    def whole(step):
        batches = jax.block_until_ready(draw(step, graph, state, seeds))
        assert not any(bool(batch.overflow) for batch in batches)
        return batches

    steps = [np.int32(i) for i in range(setting["iterations"])]
    times = worker.milliseconds(whole, steps)
    alone = worker.milliseconds(lambda i: jax.block_until_ready(draw_nodes(i, graph)), steps)
    blocks = [batch.blocks[0] for step in steps for batch in whole(step)]
    return {
        "name": setting["name"],
        "whole": [ms / threads for ms in times],
        "alone": [ms / threads for ms in alone],
        "nodes": float(np.mean([int(block.num_sources) for block in blocks])),
        "edges": float(np.mean([int(block.num_edges) for block in blocks])),
    }


def prepare(task: dict):
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    return partial(measure, graph, task["threads"])


if __name__ == "__main__":
    worker.main(prepare)
