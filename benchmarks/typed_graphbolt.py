"""One process of the typed sampling benchmark: GraphBolt, without its data pipes.

It samples and compacts hop by hop, as its `NeighborSampler` does. `hetero` is the graph with
metadata, whose blocks GraphBolt splits by relation. `fused` has the edges' types alone: fanouts
are by relation too, and the block stays one. It keeps the types of its edges.
"""

from functools import partial

import dgl.graphbolt as gb
import torch

from benchmarks import worker


def load(folder: str, relations: int) -> gb.FusedCSCSamplingGraph:
    indptr, indices, types = (
        torch.from_numpy(worker.array(folder, name))
        for name in ("indptr", "indices", "edge_type")
    )
    numbers = {f"node:r{i}:node": i for i in range(relations)}
    return gb.fused_csc_sampling_graph(
        indptr,
        indices,
        node_type_offset=torch.tensor([0, len(indptr) - 1]),
        type_per_edge=types,
        node_type_to_id={"node": 0},
        edge_type_to_id=numbers,
    )


def measure(task: dict, setting: dict) -> dict:
    relations, hetero = setting["relations"], task["way"] == "hetero"
    graph = load(setting["graph"], relations)
    seeds = torch.from_numpy(worker.batches(setting))
    fanouts = [torch.tensor([k] * relations) for k in setting["typed_fanouts"]]

    def hetero_sample(batch):
        nodes, blocks = {"node": batch}, []
        for fanout in fanouts:
            hop = graph.sample_neighbors(nodes, fanout)
            nodes, block = gb.unique_and_compact_csc_formats(hop.sampled_csc, nodes)
            blocks.insert(0, block)
        return nodes, blocks

    def fused_sample(batch):
        nodes, blocks = batch, []
        for fanout in fanouts:
            hop = graph._sample_neighbors(nodes, fanout)
            csc = gb.CSCFormatBase(indptr=hop.indptr, indices=hop.indices)
            nodes, block = gb.unique_and_compact_csc_formats(csc, nodes)
            blocks.insert(0, block)
        return {"node": nodes}, [{"all": block} for block in blocks]

    def size(found):
        nodes, blocks = found
        edges = sum(len(one.indices) for block in blocks for one in block.values())
        return len(nodes["node"]), edges

    return worker.measured(setting, hetero_sample if hetero else fused_sample, seeds, size)


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
