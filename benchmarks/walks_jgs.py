"""One process of the walks' benchmark: walkers of `jgs.sampling`, jitted.

Metapaths go over the graph with types. Its nodes in the lower half of the ids are `low`, and
the others `high`. An edge's relation is named by both types.
"""

from functools import partial

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import WALKERS


def typed(graph: jgs.Graph, edge_type: np.ndarray) -> jgs.Graph:
    half, names = graph.num_nodes // 2, ("low", "high")
    relations = tuple((a, f"{a}-{b}", b) for a in names for b in names)
    schema = jgs.Schema(tuple((name, half) for name in names), relations)
    arrays = graph.edge_arrays() | {"edge_type": edge_type}
    return jgs.Graph.from_edge_arrays(graph.indptr, arrays, schema=schema)


def measure(graph: jgs.Graph, setting: dict) -> dict:
    if setting["walker"] == "metapath":
        setting |= {"below": graph.num_nodes // 2}
    roots = [jax.device_put(batch) for batch in worker.batches(setting)]
    walker = WALKERS[setting["walker"]](length=setting["length"], **setting["options"])
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


def prepare(task: dict):
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    return partial(measure, typed(graph, np.load(task["edge_types"], mmap_mode="r")))


if __name__ == "__main__":
    worker.main(prepare)
