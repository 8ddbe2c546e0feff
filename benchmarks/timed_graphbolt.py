"""One process of the benchmark of draws under cutoffs: GraphBolt's `temporal_sample_neighbors`.

It samples and compacts hop by hop, as its `TemporalNeighborSampler` does.
"""

import dgl.graphbolt as gb
import numpy as np
import torch
from dgl.graphbolt.internal import compact_csc_format

from benchmarks import worker
from benchmarks.timed_graph import SPAN


def measure(setting: dict) -> dict:
    indptr, indices = (
        torch.from_numpy(worker.array(setting["graph"], name)) for name in ("indptr", "indices")
    )
    times = torch.from_numpy(np.load(setting["times"], mmap_mode="c"))
    graph = gb.fused_csc_sampling_graph(indptr, indices, edge_attributes={"timestamp": times})
    fanouts = [torch.tensor([k]) for k in setting["fanouts"]]
    batches, cutoffs = worker.batches(setting), worker.cutoffs(setting, SPAN)

    def sample(step, check=False):
        nodes, until = torch.from_numpy(batches[step]), torch.from_numpy(cutoffs[step])
        edges = 0
        for fanout in fanouts:
            hop = graph.temporal_sample_neighbors(
                nodes, until, fanout, edge_timestamp_attr_name="timestamp"
            )
            edges += len(hop.sampled_csc.indices)
            nodes, _, until = compact_csc_format(hop.sampled_csc, nodes, until)
        return len(nodes), edges

    steps = range(setting["iterations"])
    nodes, edges = np.mean([sample(step) for step in steps], axis=0)
    return {
        "name": setting["name"],
        "ms": worker.milliseconds(sample, steps),
        "nodes": nodes,
        "edges": edges,
    }


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    worker.report([measure(setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
