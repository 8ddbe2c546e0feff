"""One process of `benchmarks.frontier`: GraphSAINT's `MRW`, a subgraph for each of its threads.

It runs in GraphSAINT's own environment. The task's `source` is the folder where it was built.
"""

import sys
from functools import partial

import numpy as np

from benchmarks import worker


def measure(indptr: np.ndarray, indices: np.ndarray, threads: int, setting: dict) -> dict:
    from graphsaint.cython_sampler import MRW

    nodes = np.arange(indptr.size - 1, dtype=np.int32)
    degree, sizes = np.diff(indptr), (setting["m"], setting["budget"])
    arrays = indptr, indices, nodes, threads, 1, degree, setting["degree_cap"]
    sampler = MRW(*arrays, *sizes)
    steps = range(setting["iterations"])
    whole = worker.milliseconds(lambda _: sampler.par_sample(), steps)
    alone = worker.milliseconds(lambda _: sampler.sample_nodes(), steps)
    drawn = [subgraph for _ in steps for subgraph in zip(*sampler.par_sample(), strict=True)]
    return {
        "name": setting["name"],
        "whole": [ms / threads for ms in whole],
        "alone": [ms / threads for ms in alone],
        "nodes": float(np.mean([found[3].size for found in drawn])),
        "edges": float(np.mean([found[1].size for found in drawn])),
    }


def prepare(task: dict):
    sys.path.insert(0, task["source"])
    indptr = worker.array(task["graph"], "indptr").astype(np.int32)
    indices = np.ascontiguousarray(worker.array(task["graph"], "indices"))
    return partial(measure, indptr, indices, task["threads"])


if __name__ == "__main__":
    worker.main(prepare)
