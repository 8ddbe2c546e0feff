"""The typed graph as DGL wants it, and what samples it: CSC only, which its samplers read.

DGL has two ways. A heterograph is a graph for each relation. In a homogeneous graph the
edges' ids are sorted by relation, so that an id tells the relation: `to_homogeneous` makes
such ids.
"""

import dgl
import torch

from benchmarks import worker


def heterograph(folder: str, dtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """The graph in `folder`, one node type and the relations `r0`, `r1` and so on."""
    indptr, indices = (worker.array(f"{folder}-csc", name) for name in ("indptr", "indices"))
    relations, at = {}, 0
    for number, rows in enumerate(indptr):
        some = indices[at : at + int(rows[-1])]
        at += len(some)
        arrays = torch.from_numpy(rows).to(dtype), torch.from_numpy(some).to(dtype)
        no_edge_ids = torch.empty(0, dtype=dtype)
        relations["node", f"r{number}", "node"] = ("csc", (*arrays, no_edge_ids))
    graph = dgl.heterograph(relations, {"node": indptr.shape[1] - 1}, idtype=dtype)
    return graph.formats("csc")


class ByEdgeType:
    """`sample_etype_neighbors` on the homogeneous graph, hop by hop, with `to_block`.

    A block's `etype` int64 has the relation of each edge.
    """

    def __init__(self, folder: str, fanouts: list, dtype: torch.dtype = torch.int32):
        indptr, indices, types = (
            torch.from_numpy(worker.array(folder, name))
            for name in ("indptr", "indices", "edge_type")
        )
        order = torch.argsort(types, stable=True)
        edge_ids = torch.empty(len(order), dtype=dtype)
        edge_ids[order] = torch.arange(len(order), dtype=dtype)
        count = torch.bincount(types, minlength=len(fanouts[0]))
        self.offsets = torch.cat([torch.zeros(1, dtype=dtype), count.cumsum(0).to(dtype)])
        arrays = indptr.to(dtype), indices.to(dtype), edge_ids
        graph = dgl.graph(("csc", arrays), num_nodes=len(indptr) - 1, idtype=dtype)
        self.graph = graph.formats("csc")
        self.fanouts = [torch.tensor(of, dtype=torch.int64) for of in fanouts]

    def sample_blocks(self, seeds: torch.Tensor) -> tuple:
        nodes, blocks = seeds, []
        for fanout in self.fanouts:
            drawn = dgl.sampling.sample_etype_neighbors(
                self.graph, nodes, self.offsets.tolist(), fanout, etype_sorted=True
            )
            block = dgl.to_block(drawn, nodes)
            block.edata[dgl.EID] = drawn.edata[dgl.EID][block.edata[dgl.EID].long()]
            edge_ids = block.edata[dgl.EID]
            block.edata["etype"] = torch.bucketize(edge_ids, self.offsets, right=True) - 1
            nodes = block.srcdata[dgl.NID]
            blocks.insert(0, block)
        return nodes, seeds, blocks
