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

import numpy as np

from benchmarks import time_graph, worker

_ARRAYS = ("row", "col", "eid", "ts", "dts", "nodes")


def measure(source: str, folder: str, way: str, threads: int, setting: dict) -> dict:
    sys.path.insert(0, source)
    from sampler_core import ParallelSampler

    indptr = worker.array(folder, "indptr").astype(np.int32)
    indices = worker.array(folder, "indices")
    times = worker.array(folder, "edge_time").astype(np.float32)
    ids, fanouts = np.arange(indices.size, dtype=np.int32), list(setting["fanouts"])
    options = (threads, 1, len(fanouts), fanouts, way == "latest", way != "tgat", 1, 0.0)
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
    return {
        "name": setting["name"],
        "ms": ms,
        "arrays": worker.milliseconds(arrays, steps),
        "hops": np.mean([hops for hops, _, _ in counted], axis=0).tolist(),
        "nodes": float(np.mean([count for _, count, _ in counted])),
        "late": sum(late for _, _, late in counted),
    }


def main() -> None:
    task = worker.task()
    common = (task["source"], task["graph"], task["way"], task["threads"])
    settings = [setting | {"graph": task["graph"]} for setting in task["settings"]]
    worker.report([measure(*common, setting) for setting in settings])


if __name__ == "__main__":
    main()
