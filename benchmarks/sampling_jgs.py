"""One process of the sampling benchmarks: `Neighbors` or `Labor` of `jgs.sampling`, jitted.

The task's way is `typed` for fanouts of each relation, and `untyped` for those of all edges of
the same setting together.
"""

import jax
import numpy as np

import jgs
from benchmarks import draws, worker
from jgs.sampling import Labor, Neighbors


def sampler_of(way: str | None, setting: dict) -> Labor | Neighbors:
    if way == "typed":
        fanouts = tuple({"*": k} for k in setting["typed_fanouts"])
        return Neighbors(fanouts, edges=("type",))
    if way == "untyped":
        return Neighbors(tuple(setting["untyped_fanouts"]))
    fanouts = tuple(setting["fanouts"])
    return (
        Labor(fanouts) if setting["labor"] else Neighbors(fanouts, False, setting["weighted"])
    )


def measure(graph: jgs.Graph, way: str | None, setting: dict) -> dict:
    sample, capacity = draws.planned(graph, sampler_of(way, setting), setting)
    found = draws.measured(setting, sample)
    return found | {
        "sample_bytes": sum(array.nbytes for array in jax.tree.leaves(sample(np.int32(0)))),
        "padding": sum(capacity.edges) / max(1.0, found["edges"]) - 1,
    }


def prepare(task: dict):
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(8)))
    before, way = worker.peak_bytes(), task.get("way")
    graph = jgs.Graph.open(task["graph"], verify=False)

    def of(setting):
        found = measure(graph, way, setting)
        return found | {"peak_bytes": worker.peak_bytes(), "before_bytes": before}

    return of


if __name__ == "__main__":
    worker.main(prepare)
