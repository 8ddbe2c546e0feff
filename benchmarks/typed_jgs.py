"""One process of the typed sampling benchmark: jgs's `Neighbors` by relation, jitted, or, with
the way `untyped`, `Neighbors` with fanouts of all edges together.

As in `sampling_jgs.py` the capacity is planned, and the host reads whether a draw overflowed.
"""

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import Neighbors, plan_capacity
from jgs.sampling.capacity import Capacity, round_up


def measure(way: str, setting: dict) -> dict:
    graph = jgs.Graph.open(setting["graph"], verify=False)
    batches = worker.batches(setting)
    if way == "untyped":
        sampler = Neighbors(tuple(setting["untyped_fanouts"]))
    else:
        fanouts = tuple({"*": k} for k in setting["typed_fanouts"])
        sampler = Neighbors(fanouts, edges=("type",))
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
        return int(batch.blocks[0].num_sources), edges

    steps = [np.int32(i) for i in range(setting["iterations"])]
    while any(sample(step)[1] for step in steps):  # rare: a batch exceeds the plan
        edges, sources = ([round_up(size * 9 // 8) for size in field] for field in capacity)
        capacity = Capacity(tuple(edges), tuple(sources))
    nodes, edges = np.mean([counted(step) for step in steps], axis=0)
    times = worker.milliseconds(timed, steps)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    worker.report([measure(task.get("way", "typed"), s) for s in task["settings"]])


if __name__ == "__main__":
    main()
