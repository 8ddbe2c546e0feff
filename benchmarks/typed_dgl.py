"""One process of the typed sampling benchmark: DGL, in one of the ways that the task names.

`hetero` and `hetero, fused` are `NeighborSampler` on a heterograph; `homogeneous` is
`sample_etype_neighbors`. Fused sampling has int64 ids: with int32 it returns a fraction.
"""

from functools import partial

import dgl
import torch

from benchmarks import dgl_graph, typed_graph_dgl, worker


def measure(task: dict, setting: dict) -> dict:
    folder, way = setting["graph"], task["way"]
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
    return worker.measured(setting, sample, seeds, dgl_graph.size)


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
