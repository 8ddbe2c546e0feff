"""One process of the benchmark of cutoffs: TGL's C++ sampler.

`uniform` and `latest` draw with the cutoff of the seed at every hop (`prop_time`), as jgs does.
`tgat` is TGL's own setting of TGAT: uniform, and in the second hop the cutoff is the time of
the first hop's edge, found by bisection. The time is that of its `sample` alone; `arrays` in
the result is that of the copies by which TGL's training gets the blocks as NumPy arrays. The
task's `source` is the folder where the sampler was built. It runs in the peers' environment.
Times are float32.

What it draws is a little less than jgs does: `uniform` draws with replacement, and where a node
has no more edges than the fanout it takes all but the earliest. It keeps a pointer into each
row, which moves to later edges only. So cutoffs must be in order, and edges between two seeds'
cutoffs are not seen by the earlier seed. It joins no nodes.
"""

import sys
from functools import partial

import numpy as np

from benchmarks import time_graph, worker

_ARRAYS = ("row", "col", "eid", "ts", "dts", "nodes")


def measure(task: dict, setting: dict) -> dict:
    sys.path.insert(0, task["source"])
    from sampler_core import ParallelSampler

    folder, way = task["graph"], task["way"]
    indptr = worker.array(folder, "indptr").astype(np.int32)
    indices = worker.array(folder, "indices")
    times = worker.array(folder, "edge_time").astype(np.float32)
    ids, fanouts = np.arange(indices.size, dtype=np.int32), list(setting["fanouts"])
    options = (
        task["threads"],
        1,
        len(fanouts),
        fanouts,
        way == "latest",
        way != "tgat",
        1,
        0.0,
    )
    sampler = ParallelSampler(indptr, indices, ids, times, *options)
    del ids
    nodes, cutoffs = worker.batches(setting), time_graph.cutoffs(setting)
    # The lists that `sample` takes.
    asked = [(n.tolist(), t.tolist()) for n, t in zip(nodes, cutoffs, strict=True)]

    def sample(step):
        sampler.sample(*asked[step])

    def arrays(step):
        return [[getattr(block, name)() for name in _ARRAYS] for block in sampler.get_ret()]

    def found(step):
        sample(step)
        hops, late, root = [], 0, len(nodes[step])
        for block in sampler.get_ret():
            rows, edges = block.row(), block.eid()
            target, until = block.nodes()[rows], block.ts()[rows].astype(np.int64)
            late += time_graph.late(setting, edges, target, until)
            hops.append(edges.size)
            root = block.dim_in()
        return hops, root, late

    steps = range(setting["iterations"])
    ms = worker.milliseconds(sample, steps)
    counted = [found(step) for step in steps]
    copies = {"arrays": worker.milliseconds(arrays, steps)}
    return time_graph.result(setting, ms, counted) | copies


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task))
