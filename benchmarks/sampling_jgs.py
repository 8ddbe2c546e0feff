"""One process of the sampling benchmarks: `Neighbors` or `Labor` of `jgs.sampling`, jitted.

Its capacity is planned. After every call the host reads whether the draw overflowed, as the
loader does.
"""

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import Labor, Neighbors, plan_capacity
from jgs.sampling.capacity import Capacity, round_up


def measure(graph: jgs.Graph, setting: dict) -> dict:
    batches = worker.batches(setting)
    fanouts = tuple(setting["fanouts"])
    sampler = (
        Labor(fanouts) if setting["labor"] else Neighbors(fanouts, False, setting["weighted"])
    )
    capacity = plan_capacity(graph, setting["batch"], sampler, seeds=batches.ravel())
    state = sampler.init(graph)

    def draw(key, step, graph, state, seeds, capacity):
        key = jax.random.fold_in(key, step)
        return sampler.sample(key, graph, state, seeds, capacity)

    draw = jax.jit(draw, static_argnums=5)
    key = jax.random.key(0)

    def sample(step):
        batch = draw(key, step, graph, state, batches[step], capacity)
        return batch, bool(batch.overflow)

    def timed(step):
        jax.block_until_ready(sample(step))

    def counted(step):
        batch, _ = sample(step)
        edges = sum(int(block.num_edges) for block in batch.blocks)
        size = sum(array.nbytes for array in jax.tree.leaves(batch))
        return int(batch.blocks[0].num_sources), edges, size

    steps = [np.int32(i) for i in range(setting["iterations"])]
    while any(sample(step)[1] for step in steps):  # rare: a batch exceeds the plan
        edges, sources = ([round_up(size * 9 // 8) for size in field] for field in capacity)
        capacity = Capacity(tuple(edges), tuple(sources))
    nodes, edges, size = np.mean([counted(step) for step in steps], axis=0)
    return {
        "name": setting["name"],
        "ms": worker.milliseconds(timed, steps),
        "nodes": nodes,
        "edges": edges,
        "sample_bytes": size,
        "padding": sum(capacity.edges) / max(1.0, edges) - 1,
    }


def main() -> None:
    task = worker.task()
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(8)))
    before = worker.peak_bytes()
    graph = jgs.Graph.open(task["graph"], verify=False)
    results = []
    for setting in task["settings"]:
        results.append(measure(graph, setting))
        results[-1] |= {"peak_bytes": worker.peak_bytes(), "before_bytes": before}
    worker.report(results)


if __name__ == "__main__":
    main()
