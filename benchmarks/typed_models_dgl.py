"""R-GCN, R-SAGE and HGT of DGL's layers, as DGL's examples put them together.

`Hetero` is for heterographs: `HeteroGraphConv` of `GraphConv` with `norm="right"` and a linear
map of the node itself for each type (`examples/pytorch/rgcn-hetero`), or of `SAGEConv`, and the
relations' sums. `RelGraph` is `RelGraphConv` on homogeneous graphs, with the mean over a node's
edges of a relation. `HGT` is `HGTConv` (`examples/pytorch/hgt`), and a linear map at the end.
All map the features of each type to the hidden width first, as jgs's models do.
"""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv, HeteroGraphConv, HGTConv, RelGraphConv, SAGEConv
from torch import nn


class Inputs(nn.Module):
    """Rows of the hidden width: features are mapped, and learned rows stay.

    Args:
      widths: by node type; 0 where rows are learned, which have the hidden width.
    """

    def __init__(self, widths: dict[str, int], hidden: int):
        super().__init__()
        self.maps = nn.ModuleDict({t: nn.Linear(w, hidden) for t, w in widths.items() if w})

    def forward(self, x: dict) -> dict:
        return {t: self.maps[t](rows) if t in self.maps else rows for t, rows in x.items()}


class HeteroLayer(nn.Module):
    """One layer of `Hetero`, from a width to another."""

    def __init__(self, kind: str, relations: list, types: list, width: int, out: int):
        super().__init__()
        names = [name for _, name, _ in relations]
        if kind == "rgcn":
            convs = {r: GraphConv(width, out, norm="right", bias=False) for r in names}
            self.own = nn.ModuleDict({t: nn.Linear(width, out) for t in types})
        else:
            convs = {r: SAGEConv(width, out, "mean") for r in names}
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
        self.inputs = Inputs(widths, hidden)
        self.layers = nn.ModuleList(
            HeteroLayer(kind, relations, list(widths), hidden, width) for width in (hidden, out)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list, x: dict) -> dict:
        h = self.layers[0](blocks[0], self.inputs(x))
        h = {kind: self.dropout(F.relu(rows)) for kind, rows in h.items()}
        return self.layers[1](blocks[1], h)


class RelGraph(nn.Module):
    """R-GCN on homogeneous blocks with `etype`, without regularisation of the weights."""

    def __init__(self, num_relations: int, width: int, hidden: int, out: int):
        super().__init__()
        self.inputs = nn.Linear(width, hidden)
        self.layers = nn.ModuleList(
            RelGraphConv(hidden, width, num_relations) for width in (hidden, out)
        )
        self.num_relations = num_relations

    def forward(self, blocks: list, h: torch.Tensor) -> torch.Tensor:
        h = self.inputs(h)
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
        self.inputs = Inputs(widths, hidden)
        sizes = (hidden, hidden // heads, heads, len(widths), num_relations, dropout)
        self.layers = nn.ModuleList([HGTConv(*sizes), HGTConv(*sizes)])
        self.out = nn.Linear(hidden, out)

    def forward(
        self, blocks: list, x: dict, kinds: torch.Tensor, types: list, presorted: bool = False
    ) -> torch.Tensor:
        h = F.gelu(torch.cat(list(self.inputs(x).values())))
        for layer, block, of in zip(self.layers, blocks, types, strict=True):
            h = layer(block, h, kinds[: len(h)], of, presorted=presorted)
        return self.out(h)
