"""One process of the walks' benchmark: `Walk` or `Node2Vec` of `jgs.sampling`, jitted."""

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import WALKERS


def measure(graph: jgs.Graph, setting: dict) -> dict:
    roots = [jax.device_put(batch) for batch in worker.batches(setting)]
    walker = WALKERS[setting["walker"]](setting["length"], **setting["options"])
    state, key = walker.init(graph), jax.random.key(0)

    @jax.jit
    def draw(key, step, graph, state, roots):
        return walker.sample(jax.random.fold_in(key, step), graph, state, roots)

    def walks(step):
        return jax.block_until_ready(draw(key, step, graph, state, roots[step]))

    steps = [np.int32(i) for i in range(setting["iterations"])]
    times = worker.milliseconds(walks, steps)
    taken = np.mean([np.asarray(walks(step).lengths).sum() for step in steps])
    return {"name": setting["name"], "ms": times, "steps": float(taken)}


def main() -> None:
    task = worker.task()
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    worker.report([measure(graph, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
