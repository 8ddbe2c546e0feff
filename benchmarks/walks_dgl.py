"""One process of the walks' benchmark: DGL's `random_walk` and `node2vec_random_walk`.

DGL walks along out-edges and jgs along in-edges: the graph has every edge both ways, so its
rows are given to DGL as those of the out-edges.
"""

import dgl
import numpy as np
import torch

from benchmarks import worker


def load(folder: str) -> dgl.DGLGraph:
    indptr = torch.from_numpy(worker.array(folder, "indptr"))
    indices = torch.from_numpy(worker.array(folder, "indices")).to(torch.int64)
    arrays = indptr, indices, torch.empty(0, dtype=torch.int64)
    return dgl.graph(("csr", arrays), num_nodes=len(indptr) - 1).formats("csr")


def measure(graph: dgl.DGLGraph, setting: dict) -> dict:
    length, options = setting["length"], setting["options"]

    def walks(roots):
        if setting["walker"] == "node2vec":
            p, q = options["p"], options["q"]
            return dgl.sampling.node2vec_random_walk(graph, roots, p, q, length)
        stop = options.get("stop")
        return dgl.sampling.random_walk(graph, roots, length=length, restart_prob=stop)[0]

    roots = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    times = worker.milliseconds(walks, roots)
    taken = np.mean([int((walks(some)[:, 1:] >= 0).sum()) for some in roots])
    return {"name": setting["name"], "ms": times, "steps": float(taken)}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    graph = load(task["graph"])
    worker.report([measure(graph, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
