"""One process of the visits' benchmark: `PinSage`, jitted, with a planned capacity.

After every call the host reads whether the draw overflowed, as the loader does.
"""

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import PinSage, plan_capacity


def measure(graph: jgs.Graph, setting: dict) -> dict:
    batches, key = worker.batches(setting), jax.random.key(0)
    options = {name: setting[name] for name in ("num_walks", "length", "restart")}
    sampler = PinSage((setting["neighbors"],), **options)
    capacity = plan_capacity(graph, setting["batch"], sampler, seeds=batches.ravel())

    @jax.jit
    def draw(key, step, graph, seeds):
        return sampler.sample(jax.random.fold_in(key, step), graph, (), seeds, capacity)

    def sample(step):
        batch = draw(key, step, graph, batches[step])
        return jax.block_until_ready(batch), bool(batch.overflow)

    steps = [np.int32(i) for i in range(setting["iterations"])]
    drawn, overflows = zip(*map(sample, steps), strict=True)
    assert not any(overflows)
    times = worker.milliseconds(sample, steps)
    edges = np.mean([int(batch.blocks[0].num_edges) for batch in drawn])
    nodes = np.mean([int(batch.blocks[0].num_sources) for batch in drawn])
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    worker.report([measure(graph, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
