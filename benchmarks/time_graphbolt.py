"""One process of the benchmark of cutoffs: GraphBolt, without its data pipes.

It samples and compacts hop by hop, as its `TemporalNeighborSampler` does. GraphBolt joins no
nodes: every drawn edge has a source of its own, which draws for itself in the next hop.
"""

import dgl.graphbolt as gb
import numpy as np
import torch
from dgl.graphbolt.internal import compact_csc_format

from benchmarks import time_graph, worker


def load(folder: str, ids: bool = False) -> gb.FusedCSCSamplingGraph:
    """The graph. With `ids` a sample has the positions of its edges, and takes more time."""
    indptr, indices, times = (
        torch.from_numpy(worker.array(folder, name))
        for name in ("indptr", "indices", "edge_time")
    )
    columns = {"time": times}
    if ids:
        columns[gb.ORIGINAL_EDGE_ID] = torch.arange(len(indices))
    return gb.fused_csc_sampling_graph(indptr, indices, edge_attributes=columns)


def measure(setting: dict) -> dict:
    seeds = torch.from_numpy(worker.batches(setting))
    cutoffs = torch.from_numpy(time_graph.cutoffs(setting))
    fanouts = [torch.tensor([k]) for k in setting["fanouts"]]

    def sample(step, graph):
        nodes, until, hops = seeds[step], cutoffs[step], []
        for fanout in fanouts:
            hop = graph.temporal_sample_neighbors(
                nodes, until, fanout, edge_timestamp_attr_name="time"
            )
            sources, block, times = compact_csc_format(hop.sampled_csc, nodes, until)
            hops.append((nodes, until, block, hop.original_edge_ids))
            nodes, until = sources, times
        return nodes, hops

    def found(step, graph):
        nodes, hops = sample(step, graph)
        late = 0
        for target, until, block, edges in hops:
            rows = np.repeat(np.arange(len(target)), np.diff(block.indptr.numpy()))
            ends = (target.numpy()[rows], until.numpy()[rows])
            late += time_graph.late(setting, edges.numpy(), *ends)
        return [len(block.indices) for _, _, block, _ in hops], len(nodes), late

    steps = range(setting["iterations"])
    whole = load(setting["graph"], ids=True)
    counted = [found(step, whole) for step in steps]
    del whole
    graph = load(setting["graph"])
    ms = worker.milliseconds(lambda step: sample(step, graph), steps)
    return time_graph.result(setting, ms, counted)


if __name__ == "__main__":
    worker.main(lambda task: measure, torch.set_num_threads)
