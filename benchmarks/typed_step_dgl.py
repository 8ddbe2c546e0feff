"""One process of the typed training benchmark: DGL's layers of `typed_models_dgl.py`.

Batches come straight from the sampler, which the task's way names as in `typed_dgl.py`. R-GCN
runs in each way, R-SAGE on heterographs, and HGT on homogeneous blocks. Rows are read by
indexing.
"""

import time

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import typed_graph_dgl, worker
from benchmarks.typed_models_dgl import HGT, Hetero, RelGraph


def measure(task: dict, setting: dict) -> dict:
    torch.manual_seed(0)
    features, labels = (
        torch.from_numpy(worker.array(task["features"], name))
        for name in ("features", "labels")
    )
    labels, width = labels.long(), features.shape[1]
    relations, kind = setting["relations"], setting["model"]
    hidden, classes = setting["hidden"], setting["classes"]
    hetero = task["way"] != "homogeneous"
    dtype = torch.int64
    if hetero:
        graph = typed_graph_dgl.heterograph(setting["graph"], dtype)
        sampler = dgl.dataloading.NeighborSampler(
            setting["typed_fanouts"][::-1], fused=task["way"] == "hetero, fused"
        )
        model = Hetero(kind, graph.canonical_etypes, {"node": width}, hidden, classes)
    else:
        fanouts = [[k] * relations for k in setting["typed_fanouts"]]
        homogeneous = typed_graph_dgl.ByEdgeType(setting["graph"], fanouts, dtype)
        if kind == "rgcn":
            model = RelGraph(relations, width, hidden, classes)
        else:
            model = HGT(relations, {"node": width}, hidden, classes, setting["heads"])
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"])
    parts = {"sampling": [], "features": [], "computing": []}
    batches = torch.from_numpy(worker.batches(setting)).to(dtype)
    for timed in (False, True):
        for seeds in batches:
            clock = [time.perf_counter()]
            if hetero:
                nodes, _, blocks = sampler.sample_blocks(graph, {"node": seeds})
            else:
                nodes, _, blocks = homogeneous.sample_blocks(seeds)
            clock.append(time.perf_counter())
            x, y = features[nodes], labels[seeds]
            clock.append(time.perf_counter())
            if hetero:
                rows = model(blocks, {"node": x})["node"]
            elif kind == "rgcn":
                rows = model(blocks, x)
            else:
                zeros = torch.zeros(len(x), dtype=torch.int64)
                rows = model(blocks, {"node": x}, zeros, [b.edata["etype"] for b in blocks])
            loss = F.cross_entropy(rows, y)
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


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    worker.report([measure(task, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
