"""One process of the typed sampling benchmark: DGL, in one of the ways that the task names.

`hetero` and `hetero, fused` are `NeighborSampler` on a heterograph; `homogeneous` is
`sample_etype_neighbors`. Fused sampling has int64 ids: with int32 it returns a fraction.
"""

import dgl
import numpy as np
import torch

from benchmarks import typed_graph_dgl, worker


def measure(folder: str, way: str, setting: dict) -> dict:
    dtype = torch.int64 if way == "hetero, fused" else torch.int32
    relations, fanouts = setting["relations"], setting["typed_fanouts"]
    if way == "homogeneous":
        of_relations = [[k] * relations for k in fanouts]
        sample = typed_graph_dgl.ByEdgeType(folder, of_relations, dtype).sample_blocks
    else:
        graph = typed_graph_dgl.heterograph(folder, dtype)
        fused = way == "hetero, fused"
        sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=fused)

        def sample(batch):
            return sampler.sample_blocks(graph, {"node": batch})

    seeds = torch.from_numpy(worker.batches(setting)).to(dtype)

    def counted(batch):
        nodes, _, blocks = sample(batch)
        return len(nodes), sum(block.num_edges() for block in blocks)

    nodes, edges = np.mean([counted(batch) for batch in seeds], axis=0)
    times = worker.milliseconds(sample, seeds)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    worker.report([measure(s["graph"], task["way"], s) for s in task["settings"]])


if __name__ == "__main__":
    main()
