"""One process of the benchmark of links' quality: DGL's GraphSAGE on the splits of jgs.

The model, the sampler of edges and the loss are those of DGL's example of link prediction.
An epoch takes each link in one direction, at random, and `Negatives` replaces the target. So
either end of a link may be replaced, as jgs does by default. Each epoch is judged with all
neighbours.
"""

import time
from pathlib import Path

import dgl
import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv
from torch import nn

from benchmarks import worker


class SAGE(nn.Module):
    def __init__(self, features: torch.Tensor, setting: dict):
        super().__init__()
        self.features, learned, hidden = features, setting["learned"], setting["hidden"]
        num_nodes, width = features.shape
        self.table = nn.Embedding(num_nodes, learned) if learned else None
        if learned and setting["scaled"]:
            nn.init.normal_(self.table.weight, std=learned**-0.5)
        widths = (width + learned, hidden), (hidden, hidden)
        self.layers = nn.ModuleList(SAGEConv(a, b, "mean") for a, b in widths)

    def inputs(self, nodes: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            return self.features[nodes]
        return torch.cat([self.features[nodes], self.table(nodes)], dim=1)

    def forward(self, blocks: list, h: torch.Tensor) -> torch.Tensor:
        return self.layers[1](blocks[1], F.relu(self.layers[0](blocks[0], h)))


class Negatives:
    """A uniform node of the target's type in place of each edge's target. `bounds` are where
    the ids of each type begin, and the number of nodes."""

    def __init__(self, bounds: np.ndarray):
        self.bounds = torch.from_numpy(bounds)

    def __call__(self, graph: dgl.DGLGraph, edges: torch.Tensor) -> tuple:
        src, dst = graph.find_edges(edges)
        kind = torch.searchsorted(self.bounds, dst, right=True)
        first, last = self.bounds[kind - 1], self.bounds[kind]
        drawn = first + (torch.rand(len(dst), dtype=torch.float64) * (last - first)).long()
        return src, drawn


def train(setting: dict) -> dict:
    """Trains on the split in `setting["folder"]`, and writes the scores of each epoch there.
    Returns the seconds of each part of each epoch."""
    torch.manual_seed(setting["seed"])
    dgl.seed(setting["seed"])
    folder = Path(setting["folder"])
    split = dict(np.load(folder / "split.npz"))
    ids = {name: torch.from_numpy(a.astype(np.int64)) for name, a in split.items()}
    features = torch.from_numpy(scipy.sparse.load_npz(folder / "features.npz").toarray())
    graph = dgl.graph((ids["src"], ids["dst"]), num_nodes=len(features))
    there, back = (
        graph.edge_ids(ids[f"train_{a}"], ids[f"train_{b}"])
        for a, b in (("src", "dst"), ("dst", "src"))
    )
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler(setting["fanouts"][::-1]),
        exclude="reverse_id",
        reverse_eids=graph.edge_ids(ids["dst"], ids["src"]),
        negative_sampler=Negatives(split["bounds"]),
    )
    model = SAGE(features, setting)
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"])
    score = dgl.function.u_dot_v("h", "h", "score")
    parts = {name: [] for name in ("sampling", "features", "computing")}
    scores = {}
    for epoch in range(setting["epochs"]):
        spent = np.zeros(3)
        edges = torch.where(torch.rand(len(there)) < 0.5, there, back)
        for seeds in edges[torch.randperm(len(edges))].split(setting["batch_size"]):
            clock = [time.perf_counter()]
            nodes, links, others, blocks = sampler.sample(graph, seeds)
            clock.append(time.perf_counter())
            x = model.inputs(nodes)
            clock.append(time.perf_counter())
            h, found = model(blocks, x), []
            for pairs in (links, others):
                pairs.ndata["h"] = h
                pairs.apply_edges(score)
                found.append(pairs.edata["score"][:, 0])
            wanted = torch.cat([torch.ones_like(found[0]), torch.zeros_like(found[1])])
            loss = F.binary_cross_entropy_with_logits(torch.cat(found), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.append(time.perf_counter())
            spent += np.diff(clock)
        for name, seconds in zip(parts, spent, strict=True):
            parts[name].append(seconds)
        with torch.no_grad():
            h = model([graph, graph], model.inputs(graph.nodes()))
            for name in ("val", "test"):
                for kind in ("", "other_"):
                    src, dst = (h[ids[f"{name}_{kind}{end}"]] for end in ("src", "dst"))
                    scores[f"{epoch}_{name}_{kind}"] = (src * dst).sum(-1).numpy()
    np.savez(folder / "scores.npz", **scores)
    return {"name": setting["name"], "parts": parts}


if __name__ == "__main__":
    worker.main(lambda task: train, torch.set_num_threads)
