"""One process of the sampling benchmarks: GraphBolt, without its data pipes.

It samples and compacts hop by hop, as its `NeighborSampler` and `LayerNeighborSampler` do.
"""

import dgl.graphbolt as gb
import numpy as np
import torch

from benchmarks import worker


def load(folder: str, weighted: bool) -> gb.FusedCSCSamplingGraph:
    indptr, indices = (
        torch.from_numpy(worker.array(folder, name)) for name in ("indptr", "indices")
    )
    attributes = None
    if weighted:
        attributes = {"weight": torch.from_numpy(worker.array(folder, "edge_weight"))}
    return gb.fused_csc_sampling_graph(indptr, indices, edge_attributes=attributes)


def measure(graph: gb.FusedCSCSamplingGraph, setting: dict) -> dict:
    seeds = torch.from_numpy(worker.batches(setting))
    fanouts = [torch.tensor([k]) for k in setting["fanouts"]]
    weight = "weight" if setting["weighted"] else None
    draw = graph.sample_layer_neighbors if setting["labor"] else graph.sample_neighbors

    def sample(nodes):
        blocks = []
        for fanout in fanouts:
            hop = draw(nodes, fanout, probs_name=weight)
            nodes, block = gb.unique_and_compact_csc_formats(hop.sampled_csc, nodes)
            blocks.insert(0, block)
        return nodes, blocks

    def counted(batch):
        nodes, blocks = sample(batch)
        return len(nodes), sum(len(block.indices) for block in blocks)

    nodes, edges = np.mean([counted(batch) for batch in seeds], axis=0)
    times = worker.milliseconds(sample, seeds)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    graph = load(task["graph"], any(setting["weighted"] for setting in task["settings"]))
    worker.report([measure(graph, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
