"""One process of the layer-wise benchmark: `Ladies` or `FastGCN`, jitted.

Its capacity is planned. After every call the host reads whether the draw overflowed, as the
loader does.
"""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import SAMPLERS, plan_capacity
from jgs.sampling.capacity import GraphShape


def measure(
    graph: jgs.Graph, setting: dict, prepared: bool, samplers: Mapping[str, type] = SAMPLERS
) -> dict:
    batches = worker.batches(setting)
    sampler = samplers[setting["sampler"]](tuple(setting["sizes"]))
    sampler = dataclasses.replace(sampler, compact=setting.get("compact", False))
    capacity = plan_capacity(graph, setting["batch"], sampler, seeds=batches.ravel())
    worst = sampler.bound(GraphShape.of(graph), setting["batch"], True)
    state, key = sampler.init(graph) if prepared else (), jax.random.key(0)

    def draw(key, step, graph, state, seeds, capacity):
        return sampler.sample(jax.random.fold_in(key, step), graph, state, seeds, capacity)

    draw = jax.jit(draw, static_argnums=5)

    def sample(step):
        batch = draw(key, step, graph, state, batches[step], capacity)
        return batch, bool(batch.overflow)

    def counted(step):
        batch, _ = sample(step)
        edges = sum(int(block.num_edges) for block in batch.blocks)
        return int(batch.blocks[0].num_sources), edges

    steps = [np.int32(i) for i in range(setting["iterations"])]
    while any(sample(step)[1] for step in steps):  # rare: a batch exceeds the plan
        capacity = capacity.enlarge(worst)
    nodes, edges = np.mean([counted(step) for step in steps], axis=0)
    times = worker.milliseconds(lambda step: jax.block_until_ready(sample(step)), steps)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    prepared = task.get("prepared", True)
    worker.report([measure(graph, setting, prepared) for setting in task["settings"]])


if __name__ == "__main__":
    main()
