"""One process of the typed training benchmark: DGL's layers of `typed_models_dgl.py`.

Batches come straight from the sampler, which the task's way names as in `typed_dgl.py`. R-GCN
runs in each way, R-SAGE on heterographs, and HGT on homogeneous blocks. Rows are read by
indexing.
"""

from functools import partial

import dgl
import torch

from benchmarks import typed_graph_dgl, worker
from benchmarks.step_dgl import trained
from benchmarks.typed_models_dgl import HGT, Hetero, RelGraph


class OfNodes(torch.nn.Module):
    """A model of rows by node type, as one of blocks and the rows of the only type."""

    def __init__(self, model: torch.nn.Module, hetero: bool):
        super().__init__()
        self.model, self.hetero = model, hetero

    def forward(self, blocks: list, x: torch.Tensor) -> torch.Tensor:
        if self.hetero:
            return self.model(blocks, {"node": x})["node"]
        zeros = torch.zeros(len(x), dtype=torch.int64)
        return self.model(blocks, {"node": x}, zeros, [b.edata["etype"] for b in blocks])


def measure(task: dict, setting: dict) -> dict:
    torch.manual_seed(0)
    relations, kind = setting["relations"], setting["model"]
    sizes = setting["hidden"], setting["classes"]
    hetero = task["way"] != "homogeneous"
    if hetero:
        graph = typed_graph_dgl.heterograph(setting["graph"], torch.int64)
        sampler = dgl.dataloading.NeighborSampler(
            setting["typed_fanouts"][::-1], fused=task["way"] == "hetero, fused"
        )
    else:
        fanouts = [[k] * relations for k in setting["typed_fanouts"]]
        homogeneous = typed_graph_dgl.ByEdgeType(setting["graph"], fanouts, torch.int64)

    def sample(seeds: torch.Tensor) -> tuple:
        if hetero:
            return sampler.sample_blocks(graph, {"node": seeds})
        return homogeneous.sample_blocks(seeds)

    def made(width: int) -> torch.nn.Module:
        if hetero:
            return OfNodes(Hetero(kind, graph.canonical_etypes, {"node": width}, *sizes), True)
        if kind == "rgcn":
            return RelGraph(relations, width, *sizes)
        return OfNodes(HGT(relations, {"node": width}, *sizes, setting["heads"]), False)

    return trained(task, setting, made, sample)


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
