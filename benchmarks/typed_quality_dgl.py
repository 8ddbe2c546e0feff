"""One process of the benchmark of typed graphs' quality: DGL's layers on `acm`.

Papers have their features. Authors and subjects have learned rows of the hidden width: as
DGL's examples of R-GCN make them or, with `scaled` in the setting, as jgs does. Nodes are
classified with the whole graph in each step. Links are predicted from batches: a uniform
author in place of each link's, and the batch's links and their reverses are no messages, as
in DGL's guide.
"""

from __future__ import annotations

import time

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import typed_quality_data as quality
from benchmarks import worker
from benchmarks.typed_models_dgl import HGT, Hetero

_FEATURED = "paper"


def heterograph(data: quality.Acm) -> dgl.DGLGraph:
    """The graph with the reverse of each relation. An edge and its reverse have the same id."""
    edges = {}
    for (a, name, b), (src, dst) in data.edges.items():
        src, dst = (torch.from_numpy(ids.astype(np.int64)) for ids in (src, dst))
        edges[a, name, b], edges[b, f"rev_{name}", a] = (src, dst), (dst, src)
    return dgl.heterograph(edges, data.num_nodes)


class Rows(nn.Module):
    """The input rows of nodes: features, or learned rows."""

    def __init__(self, data: quality.Acm, hidden: int, scaled: bool):
        super().__init__()
        self.features = torch.from_numpy(data.features.toarray())
        self.tables = nn.ParameterDict()
        for kind, count in data.num_nodes.items():
            if kind != _FEATURED:
                table = nn.Parameter(torch.empty(count, hidden))
                if scaled:
                    nn.init.normal_(table, std=hidden**-0.5)
                else:
                    nn.init.xavier_uniform_(table, gain=nn.init.calculate_gain("relu"))
                self.tables[kind] = table
        self.widths = dict.fromkeys(data.num_nodes, 0) | {_FEATURED: self.features.shape[1]}

    def forward(self, nodes: dict | None = None) -> dict:
        tables = {_FEATURED: self.features, **self.tables}
        return tables if nodes is None else {kind: tables[kind][nodes[kind]] for kind in nodes}


class WholeHGT(nn.Module):
    """HGT with the interface of `Hetero`, for the whole graph."""

    def __init__(self, graph: dgl.DGLGraph, widths: dict, setting: dict, out: int):
        super().__init__()
        self.whole, self.kinds = dgl.to_homogeneous(graph), graph.ntypes
        self.model = HGT(
            len(graph.canonical_etypes),
            {kind: widths[kind] for kind in graph.ntypes},
            setting["hidden"],
            out,
            setting["heads"],
            setting["dropout"],
        )
        ends = np.cumsum([0, *(graph.num_nodes(kind) for kind in graph.ntypes)])
        self.ranges = {kind: slice(*ends[i : i + 2]) for i, kind in enumerate(graph.ntypes)}

    def forward(self, blocks: list, x: dict) -> dict:
        whole = self.whole
        nodes, edges = whole.ndata[dgl.NTYPE], whole.edata[dgl.ETYPE]
        x = {kind: x[kind] for kind in self.kinds}
        rows = self.model([whole, whole], x, nodes, [edges, edges], presorted=True)
        return {kind: rows[some] for kind, some in self.ranges.items()}


def make(kind: str, graph: dgl.DGLGraph, widths: dict, setting: dict, out: int) -> nn.Module:
    if kind == "hgt":
        return WholeHGT(graph, widths, setting, out)
    relations = graph.canonical_etypes
    return Hetero(kind, relations, widths, setting["hidden"], out, setting["dropout"])


def classify(setting: dict) -> dict:
    torch.manual_seed(setting["seed"])
    data = quality.read(setting["root"])
    graph, rows = heterograph(data), Rows(data, setting["hidden"], setting["scaled"])
    model = make(setting["model"], graph, rows.widths, setting, int(data.labels.max()) + 1)
    labels = torch.from_numpy(data.labels.astype(np.int64))
    splits = {name: torch.from_numpy(ids.astype(np.int64)) for name, ids in data.splits.items()}
    optimizer = torch.optim.Adam(
        [*model.parameters(), *rows.parameters()],
        lr=setting["lr"],
        weight_decay=setting["weight_decay"],
    )
    best, spent = quality.Best(setting["patience"]), []
    for epoch in range(setting["epochs"]):
        began = time.perf_counter()
        model.train()
        found = model([graph, graph], rows())[_FEATURED][splits["train"]]
        loss = F.cross_entropy(found, labels[splits["train"]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spent.append(time.perf_counter() - began)
        model.eval()
        with torch.no_grad():
            classes = model([graph, graph], rows())[_FEATURED].argmax(1).numpy()
        val, test = (
            quality.f1(classes[data.splits[name]], data.labels[data.splits[name]])
            for name in ("val", "test")
        )
        if not best.add(epoch, val[0], test):
            break
    macro, micro = best.test
    found = {"macro": macro, "micro": micro, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


class Decoder(nn.Module):
    """The dot product, or DistMult: with a learned weight of each of its terms."""

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.weight = None
        if kind == "distmult":
            self.weight = nn.Parameter(torch.empty(1, width))
            nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        return (src * dst if self.weight is None else src * self.weight * dst).sum(-1)


def link(setting: dict) -> dict:
    torch.manual_seed(setting["seed"])
    dgl.seed(setting["seed"])
    data, split = quality.read(setting["root"]), dict(np.load(setting["split"]))
    data.edges[quality.RELATION] = split["train_src"], split["train_dst"]
    graph, rows = heterograph(data), Rows(data, setting["hidden"], setting["scaled"])
    model = make(setting["model"], graph, rows.widths, setting, setting["hidden"])
    decoder = Decoder(setting["decoder"], setting["hidden"])
    parameters = [*model.parameters(), *rows.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=setting["lr"])
    reverse = {name: f"rev_{name}" for _, name, _ in data.edges}
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler(setting["fanouts"][::-1]),
        exclude="reverse_types",
        reverse_etypes=reverse | {back: name for name, back in reverse.items()},
        negative_sampler=dgl.dataloading.negative_sampler.Uniform(1),
    )
    source, name, target = quality.RELATION
    best, spent = quality.Best(), []
    for epoch in range(setting["epochs"]):
        model.train()
        for edges in torch.randperm(len(split["train_src"])).split(setting["batch_size"]):
            began = time.perf_counter()
            nodes, links, others, blocks = sampler.sample(graph, {quality.RELATION: edges})
            h, found = model(blocks, rows(nodes)), []
            for pairs in (links, others):
                src, dst = pairs.edges(etype=name)
                found.append(decoder(h[source][src], h[target][dst]))
            wanted = torch.cat([torch.ones_like(found[0]), torch.zeros_like(found[1])])
            loss = F.binary_cross_entropy_with_logits(torch.cat(found), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            spent.append(time.perf_counter() - began)
        model.eval()
        with torch.no_grad():
            h = model([graph, graph], rows())
            reached = []
            for of in ("val", "test"):
                src, dst, other = (
                    torch.from_numpy(split[f"{of}_{end}"].astype(np.int64))
                    for end in ("src", "dst", "others")
                )
                positive = decoder(h[source][src], h[target][dst])
                negative = decoder(h[source][src][:, None], h[target][other])
                reached.append(quality.mrr(positive.numpy(), negative.numpy()))
        best.add(epoch, *reached)
    found = {"mrr": best.test, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


def measure(setting: dict) -> dict:
    return {"nodes": classify, "links": link}[setting["part"]](setting)


if __name__ == "__main__":
    worker.main(lambda task: measure, torch.set_num_threads)
