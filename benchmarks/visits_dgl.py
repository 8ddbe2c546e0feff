"""One process of the visits' benchmark: DGL's `RandomWalkNeighborSampler`, and `to_block`."""

import dgl
import numpy as np
import torch

from benchmarks import worker
from benchmarks.walks_dgl import load


def measure(graph: dgl.DGLGraph, setting: dict) -> dict:
    draw = dgl.sampling.RandomWalkNeighborSampler(
        graph,
        setting["length"],
        setting["restart"],
        setting["num_walks"],
        setting["neighbors"],
    )

    def sample(seeds):
        return dgl.to_block(draw(seeds), seeds)

    batches = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    times = worker.milliseconds(sample, batches)
    blocks = [sample(seeds) for seeds in batches]
    edges = np.mean([block.num_edges() for block in blocks])
    nodes = np.mean([block.num_src_nodes() for block in blocks])
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    graph = load(task["graph"])
    worker.report([measure(graph, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
