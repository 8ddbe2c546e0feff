"""One process of the benchmark of draws under cutoffs: jgs's `Neighbors`, jitted.

`way` is "untimed", or one of "uniform", "latest", "window" and "recent" under cutoffs.
"""

import jax
import numpy as np

import jgs
from benchmarks import worker
from benchmarks.timed_graph import SPAN
from jgs.graph import as_device
from jgs.sampling import Neighbors, Seeds
from jgs.sampling.capacity import Capacity, round_up

WAYS = {
    "untimed": {},
    "uniform": {},
    "latest": {"latest": True},
    "window": {"window": SPAN // 3},
    "recent": {"half_life": SPAN // 20},
}


def measure(way: str, setting: dict) -> dict:
    graph = jgs.Graph.open(setting["graph"], verify=False)
    graph = graph._with(edge_time=as_device(np.load(setting["times"], mmap_mode="r")))
    batches, cutoffs = worker.batches(setting), worker.cutoffs(setting, SPAN)
    sampler = Neighbors(tuple(setting["fanouts"]), **WAYS[way])
    state, key = sampler.init(graph), jax.random.key(0)

    def seeds_of(step):
        return Seeds(batches[step], None if way == "untimed" else cutoffs[step])

    def draw(key, step, graph, state, seeds, capacity):
        return sampler.sample(jax.random.fold_in(key, step), graph, state, seeds, capacity)

    draw = jax.jit(draw, static_argnums=5)
    sizes = [setting["batch"]]
    for fanout in setting["fanouts"]:
        sizes.append(sizes[-1] * (1 + fanout))
    edges = [size * k for size, k in zip(sizes, setting["fanouts"], strict=False)]
    worst = Capacity(tuple(edges), tuple(sizes[1:]))
    steps = [np.int32(i) for i in range(setting["iterations"])]
    needed = [draw(key, i, graph, state, seeds_of(i), worst).needed for i in steps]
    most = np.max(np.asarray(needed), axis=0)
    capacity = Capacity(*(tuple(round_up(int(n) * 9 // 8) for n in row) for row in most))

    def sample(step):
        batch = draw(key, step, graph, state, seeds_of(step), capacity)
        return batch, bool(batch.overflow)

    def counted(step):
        batch, overflow = sample(step)
        assert not overflow
        found = 0
        for block in batch.blocks:
            found += int(block.num_edges)
        return int(batch.blocks[0].num_sources), found

    nodes, edges = np.mean([counted(step) for step in steps], axis=0)
    times = worker.milliseconds(lambda step: jax.block_until_ready(sample(step)), steps)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    worker.report([measure(task["way"], s) for s in task["settings"]])


if __name__ == "__main__":
    main()
