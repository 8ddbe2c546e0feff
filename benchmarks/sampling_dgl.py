"""One process of the sampling benchmark: DGL's `NeighborSampler`, fused or not, in `dtype`.

With int32 ids the fused sampler returns a fraction of the sample, so measure it in int64.
"""

from functools import partial

import dgl
import torch

from benchmarks import dgl_graph, worker


def measure(graph: dgl.DGLGraph, fused: bool, setting: dict) -> dict:
    seeds = torch.from_numpy(worker.batches(setting)).to(graph.idtype)
    sampler = dgl.dataloading.NeighborSampler(
        setting["fanouts"][::-1],  # DGL lists the input side first
        prob="weight" if setting["weighted"] else None,
        fused=fused,
    )

    return worker.measured(
        setting, partial(sampler.sample_blocks, graph), seeds, dgl_graph.size
    )


def prepare(task: dict):
    weighted = any(setting["weighted"] for setting in task["settings"])
    graph = dgl_graph.load(task["graph"], getattr(torch, task["dtype"]), weighted)
    return partial(measure, graph, task["fused"])


if __name__ == "__main__":
    worker.main(prepare, torch.set_num_threads)
