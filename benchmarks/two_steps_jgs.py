"""One process of `benchmarks.batch_sizes`: `Neighbors` in two steps (`two_steps.py`).

As in `draws.py` the capacity is planned, and after every call the host reads whether the
draw overflowed. The task also has `programs`, the folder in which `two_steps.cc` is compiled.
"""

from functools import partial
from pathlib import Path

import jax
import numpy as np

import jgs
from benchmarks import draws, two_steps, worker
from jgs.sampling import Neighbors, plan_capacity


def measure(graph: jgs.Graph, setting: dict) -> dict:
    seeds, sampler = worker.batches(setting), Neighbors(tuple(setting["fanouts"]))
    capacity = plan_capacity(graph, setting["batch"], sampler, seeds=seeds.ravel())
    draw = two_steps.TwoSteps(graph, setting["batch"], sampler, capacity)
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(len(seeds))]
    key_data = [np.asarray(jax.random.key_data(key)) for key in keys]
    level = 0
    steps = range(len(seeds))
    while any(draw(key_data[i], seeds[i], level).overflow for i in steps):  # rare
        level += 1

    def sample(step):
        batch = draw(key_data[step], seeds[step], level)
        assert not bool(batch.overflow)
        return jax.block_until_ready(batch)

    return draws.measured(setting, sample)


def prepare(task: dict):
    if not two_steps.register(Path(task["programs"])):
        raise SystemExit("two steps need a C++ compiler and jgs's kernels")
    return partial(measure, jgs.Graph.open(task["graph"], verify=False))


if __name__ == "__main__":
    worker.main(prepare)
