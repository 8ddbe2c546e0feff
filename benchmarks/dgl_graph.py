"""The saved graph as DGL wants it: CSC only, which both of its samplers read."""

import dgl
import torch

from benchmarks import worker


def load(folder: str, dtype: torch.dtype, weighted: bool) -> dgl.DGLGraph:
    """The saved graph for DGL: `indptr` and `indices` in `dtype`, the weights as `weight`."""
    indptr = torch.from_numpy(worker.array(folder, "indptr")).to(dtype)
    indices = torch.from_numpy(worker.array(folder, "indices")).to(dtype)
    no_edge_ids = torch.empty(0, dtype=dtype)
    graph = dgl.graph(("csc", (indptr, indices, no_edge_ids)), num_nodes=len(indptr) - 1)
    graph = graph.formats("csc")
    if weighted:
        graph.edata["weight"] = torch.from_numpy(worker.array(folder, "edge_weight"))
    return graph


def size(found: tuple) -> tuple[int, int]:
    """The numbers of nodes and edges of what `sample_blocks` returns."""
    nodes, _, blocks = found
    return len(nodes), sum(block.num_edges() for block in blocks)
