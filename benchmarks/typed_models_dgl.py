"""R-GCN, R-SAGE and HGT of DGL's layers, as DGL's examples put them together.

`Hetero` is for heterographs: `HeteroGraphConv` of `GraphConv` with `norm="right"` and a linear
map of the node itself for each type (`examples/pytorch/rgcn-hetero`), or of `SAGEConv`, and the
relations' sums. `RelGraph` is `RelGraphConv` on homogeneous graphs, with the mean over a node's
edges of a relation. `HGT` is `HGTConv` (`examples/pytorch/hgt`): features of each type
are mapped to the hidden width first, and the last layer's rows to the output.
"""

from __future__ import annotations

from itertools import pairwise

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv, HeteroGraphConv, HGTConv, RelGraphConv, SAGEConv
from torch import nn


class HeteroLayer(nn.Module):
    """One layer of `Hetero`. `widths` are those of the inputs, by node type."""

    def __init__(self, kind: str, relations: list, widths: dict[str, int], out: int):
        super().__init__()
        if kind == "rgcn":
            convs = {
                name: GraphConv(widths[source], out, norm="right", bias=False)
                for source, name, _ in relations
            }
            self.own = nn.ModuleDict({t: nn.Linear(width, out) for t, width in widths.items()})
        else:
            convs = {
                name: SAGEConv((widths[source], widths[target]), out, "mean")
                for source, name, target in relations
            }
            self.own = None
        self.conv = HeteroGraphConv(convs, aggregate="sum")

    def forward(self, block: dgl.DGLGraph, x: dict) -> dict:
        h = self.conv(block, x)
        if self.own is None:
            return h
        return {t: row + self.own[t](x[t][: block.num_dst_nodes(t)]) for t, row in h.items()}


class Hetero(nn.Module):
    """`kind` is rgcn or rsage. `forward` takes a graph or block a layer, and rows by type."""

    def __init__(
        self,
        kind: str,
        relations: list,
        widths: dict[str, int],
        hidden: int,
        out: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = dict.fromkeys(widths, hidden)
        self.layers = nn.ModuleList(
            [
                HeteroLayer(kind, relations, widths, hidden),
                HeteroLayer(kind, relations, inner, out),
            ]
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list, x: dict) -> dict:
        h = self.layers[0](blocks[0], x)
        h = {kind: self.dropout(F.relu(rows)) for kind, rows in h.items()}
        return self.layers[1](blocks[1], h)


class RelGraph(nn.Module):
    """R-GCN on homogeneous blocks with `etype`, without regularisation of the weights."""

    def __init__(self, num_relations: int, width: int, hidden: int, out: int):
        super().__init__()
        self.layers = nn.ModuleList(
            RelGraphConv(a, b, num_relations) for a, b in pairwise((width, hidden, out))
        )
        self.num_relations = num_relations

    def forward(self, blocks: list, h: torch.Tensor) -> torch.Tensor:
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            types = block.edata["etype"]
            stretch = block.edges()[1].long() * self.num_relations + types
            count = torch.bincount(stretch)
            h = layer(block, h, types, (1 / count[stretch]).unsqueeze(1))
            if i < len(self.layers) - 1:
                h = F.relu(h)
        return h


class HGT(nn.Module):
    """HGT on homogeneous graphs or blocks. `forward` takes the input rows by node type, which
    follow each other in the graph, or rows of one type. `kinds` int64 `[S]` are the nodes'
    types, and `types` int64 the types of each layer's edges."""

    def __init__(
        self,
        num_relations: int,
        widths: dict[str, int],
        hidden: int,
        out: int,
        heads: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.adapt = nn.ModuleDict({t: nn.Linear(w, hidden) for t, w in widths.items()})
        sizes = (hidden, hidden // heads, heads, len(widths), num_relations, dropout)
        self.layers = nn.ModuleList([HGTConv(*sizes), HGTConv(*sizes)])
        self.out = nn.Linear(hidden, out)

    def forward(
        self, blocks: list, x: dict, kinds: torch.Tensor, types: list, presorted: bool = False
    ) -> torch.Tensor:
        h = torch.cat([F.gelu(self.adapt[kind](rows)) for kind, rows in x.items()])
        for layer, block, of in zip(self.layers, blocks, types, strict=True):
            h = layer(block, h, kinds[: len(h)], of, presorted=presorted)
        return self.out(h)
