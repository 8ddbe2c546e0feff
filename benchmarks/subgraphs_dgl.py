"""One process of the subgraphs' benchmark: DGL's `SAINTSampler` and `ShaDowKHopSampler`.

The graph has all of DGL's formats, made before, so that each sampler takes its fastest one. DGL
draws SAINT's nodes by degree. It keeps its weights of nodes and edges from call to call.
"""

from functools import partial

import dgl
import torch

from benchmarks import worker


def load(folder: str) -> dgl.DGLGraph:
    """The saved graph. It has every edge both ways, so its in-edges serve as out-edges too."""
    indptr = torch.from_numpy(worker.array(folder, "indptr"))
    indices = torch.from_numpy(worker.array(folder, "indices")).to(torch.int64)
    arrays = indptr, indices, torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csr", arrays), num_nodes=len(indptr) - 1)
    graph.create_formats_()
    return graph


def measure(graph: dgl.DGLGraph, setting: dict) -> dict:
    seeds = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    if setting["sampler"] == "shadow":
        (fanouts,) = setting["fields"]
        shadow = dgl.dataloading.ShaDowKHopSampler(fanouts[::-1])

        def sample(batch):
            return shadow.sample(graph, batch)[2]
    else:
        mode, budget, *length = setting["fields"]
        mode = "node" if mode == "degree" else mode
        saint = dgl.dataloading.SAINTSampler(mode, (budget, *length) if length else budget)

        def sample(batch):
            return saint.sample(graph, batch)

    result = worker.measured(
        setting, sample, seeds, lambda found: (found.num_nodes(), found.num_edges())
    )
    first = sample(seeds[0])
    arrays = (array.numpy() for array in (first.ndata[dgl.NID], *first.edges()))
    return result | {"digest": worker.digest(*arrays)}


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, load(task["graph"])), torch.set_num_threads)
