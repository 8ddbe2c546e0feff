"""One process of the benchmark of links: the stage `Links` before `Neighbors`, in one program.

With `excluded` False in the task the same seeds are drawn without leaving edges out.
"""

from functools import partial

import jax
import numpy as np

import jgs
from benchmarks import draws, worker
from jgs.sampling import Links, Neighbors, plan_capacity


def measure(graph: jgs.Graph, excluded: bool, setting: dict) -> dict:
    src, dst = worker.links(graph.indptr, graph.indices, setting)
    sampler, links = Neighbors(tuple(setting["fanouts"])), Links(exclude=excluded)
    nodes = np.concatenate([src.ravel(), dst.ravel()])
    capacity = plan_capacity(graph, 3 * setting["batch"], sampler, seeds=nodes, distinct=False)

    @jax.jit
    def draw(key, step, graph, src, dst):
        key = jax.random.fold_in(key, step)
        seeds, items = links(key, graph, {"src": src, "dst": dst})
        return sampler.sample(key, graph, (), seeds, capacity), items

    key = jax.random.key(0)

    def sample(step):
        with jax.enable_x64(True):  # as the loader calls a program with a stage
            batch, items = draw(key, step, graph, src[step], dst[step])
            assert not batch.overflow
            return jax.block_until_ready((batch, items))[0]

    return draws.measured(setting, sample)


def prepare(task: dict):
    graph = jgs.Graph.open(task["graph"], verify=False).sorted()
    return partial(measure, graph, task["excluded"])


if __name__ == "__main__":
    worker.main(prepare)
