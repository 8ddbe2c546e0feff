"""One process of the sampling benchmarks: GraphBolt, without its data pipes.

It samples and compacts hop by hop, as its `NeighborSampler` and `LayerNeighborSampler` do.
"""

from functools import partial

import dgl.graphbolt as gb
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

    def size(found):
        nodes, blocks = found
        return len(nodes), sum(len(block.indices) for block in blocks)

    return worker.measured(setting, sample, seeds, size)


def prepare(task: dict):
    graph = load(task["graph"], any(setting["weighted"] for setting in task["settings"]))
    return partial(measure, graph)


if __name__ == "__main__":
    worker.main(prepare, torch.set_num_threads)
