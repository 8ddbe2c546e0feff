"""One process of the sampling benchmark: DGL's `NeighborSampler`, fused or not, in `dtype`.

With int32 ids the fused sampler returns a fraction of the sample, so measure it in int64.
"""

import dgl
import numpy as np
import torch

from benchmarks import dgl_graph, worker


def measure(graph: dgl.DGLGraph, setting: dict, fused: bool) -> dict:
    seeds = torch.from_numpy(worker.batches(setting)).to(graph.idtype)
    sampler = dgl.dataloading.NeighborSampler(
        setting["fanouts"][::-1],  # DGL lists the input side first
        prob="weight" if setting["weighted"] else None,
        fused=fused,
    )

    def sample(batch):
        return sampler.sample_blocks(graph, batch)

    def counted(batch):
        nodes, _, blocks = sample(batch)
        return len(nodes), sum(block.num_edges() for block in blocks)

    nodes, edges = np.mean([counted(batch) for batch in seeds], axis=0)
    times = worker.milliseconds(sample, seeds)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    weighted = any(setting["weighted"] for setting in task["settings"])
    graph = dgl_graph.load(task["graph"], getattr(torch, task["dtype"]), weighted)
    worker.report([measure(graph, s, task["fused"]) for s in task["settings"]])


if __name__ == "__main__":
    main()
