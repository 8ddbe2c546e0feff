"""One process of the visits' benchmark: DGL's `RandomWalkNeighborSampler`, and `to_block`."""

from functools import partial

import dgl
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
    return worker.measured(
        setting, sample, batches, lambda block: (block.num_src_nodes(), block.num_edges())
    )


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, load(task["graph"])), torch.set_num_threads)
