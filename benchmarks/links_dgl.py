"""One process of the benchmark of links: DGL's samplers of edges, or GraphBolt's functions.

Both leave the edges and their reverses out after drawing, so their fanouts fall short.
"""

from functools import partial

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch

from benchmarks import sampling_graphbolt, worker


def of_dgl(folder: str, setting: dict):
    """A function of a batch's number, and its batches."""
    indptr, indices = (worker.array(folder, name) for name in ("indptr", "indices"))
    csc = (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), torch.empty(0))
    graph = dgl.graph(("csc", (*csc[:2], csc[2].long())), num_nodes=indptr.size - 1)
    edges = worker.link_edges(indices.size, setting)
    target = np.repeat(np.arange(indptr.size - 1, dtype=np.int32), np.diff(indptr))
    # The i-th edge by (source, target) is the reverse of the i-th by (target, source).
    reverse = torch.from_numpy(
        np.argsort(indices.astype(np.int64) << 21 | target, kind="stable")
    )
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler(setting["fanouts"][::-1]),
        exclude="reverse_id",
        reverse_eids=reverse,
        negative_sampler=dgl.dataloading.negative_sampler.Uniform(1),
    )
    # DGL numbers edges as they were given, which is the order of `indices`.
    return lambda ids: sampler.sample(graph, torch.from_numpy(ids)), edges


def of_graphbolt(folder: str, setting: dict):
    graph = sampling_graphbolt.load(folder, False)
    fanouts = [torch.tensor([k]) for k in setting["fanouts"]]
    indptr, indices = (worker.array(folder, name) for name in ("indptr", "indices"))
    src, dst = worker.links(indptr, indices, setting)
    num_nodes = indptr.size - 1

    def sample(i: int):
        u, v = (torch.from_numpy(a[i].astype(np.int32)) for a in (src, dst))
        fake = torch.randint(0, num_nodes, u.shape, dtype=u.dtype)
        nodes = gb.unique_and_compact([u, v, fake])[0]
        pairs = torch.stack([torch.cat([u, v]), torch.cat([v, u])], dim=1)
        blocks = []
        for fanout in fanouts:
            hop = graph.sample_neighbors(nodes, fanout)
            nodes_before = nodes
            nodes, csc = gb.unique_and_compact_csc_formats(hop.sampled_csc, nodes)
            block = gb.SampledSubgraphImpl(
                sampled_csc=csc,
                original_column_node_ids=nodes_before,
                original_row_node_ids=nodes,
                original_edge_ids=hop.original_edge_ids,
            )
            blocks.insert(0, block.exclude_edges((pairs[:, 0], pairs[:, 1])))
        return nodes, blocks

    return sample, range(setting["iterations"])


def measure(task: dict, setting: dict) -> dict:
    sample, batches = (of_dgl if task["dgl"] else of_graphbolt)(task["graph"], setting)
    nodes, blocks = (found := sample(next(iter(batches))))[0], found[-1]
    edges = sum(
        block.num_edges() if task["dgl"] else len(block.sampled_csc.indices) for block in blocks
    )
    times = worker.milliseconds(sample, batches)
    return {"name": setting["name"], "ms": times, "nodes": len(nodes), "edges": edges}


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
