"""One process of the training benchmark: GraphSAGE as in DGL's own example.

It has `SAGEConv`, ReLU and dropout, DGL's default sampler (fused), and feature rows by
indexing. Batches come straight from the sampler: DGL's `DataLoader` around it would only add to
the time.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv
from torch import nn

from benchmarks import dgl_graph, worker


class SAGE(nn.Module):
    def __init__(self, widths: list[int], dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list, h: torch.Tensor) -> torch.Tensor:
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if i < len(self.layers) - 1:
                h = self.dropout(F.relu(h))
        return h


def measure(task: dict, setting: dict) -> dict:
    graph = dgl_graph.load(task["graph"], torch.int64, weighted=False)
    hidden = [setting["hidden"]] * (len(setting["fanouts"]) - 1)

    def made(width: int) -> SAGE:
        return SAGE([width, *hidden, setting["classes"]], setting["dropout"])

    sampler = dgl.dataloading.NeighborSampler(setting["fanouts"][::-1])
    return trained(task, setting, made, partial(sampler.sample_blocks, graph))


def trained(task: dict, setting: dict, made: Callable, sample: Callable) -> dict:
    """A setting's result: the times of its steps. `made(width)` is the model of features of
    that width, which takes blocks and rows, and `sample` returns what `sample_blocks` does."""
    features, labels = (
        torch.from_numpy(worker.array(task["features"], name))
        for name in ("features", "labels")
    )
    labels, model = labels.long(), made(features.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"])
    parts = {"sampling": [], "features": [], "computing": []}
    for timed in (False, True):
        for seeds in torch.from_numpy(worker.batches(setting)).to(torch.int64):
            clock = [time.perf_counter()]
            input_nodes, _, blocks = sample(seeds)
            clock.append(time.perf_counter())
            x, y = features[input_nodes], labels[seeds]
            clock.append(time.perf_counter())
            loss = F.cross_entropy(model(blocks, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.append(time.perf_counter())
            if timed:
                for part, seconds in zip(parts.values(), np.diff(clock), strict=True):
                    part.append(1e3 * seconds)
    assert torch.isfinite(loss)
    total = np.sum(list(parts.values()), axis=0)
    return {"name": setting["name"], "ms": total.tolist(), "parts": parts}


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
