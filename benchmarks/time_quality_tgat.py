"""One process of the benchmark of models that see time: TGAT of TGL's layers.

The layers are TGL's `TransfomerAttentionLayer` and `EdgePredictor`, in the setting's folder
`source`. The neighbours are the latest before the cutoff. With `inherited` in the setting every
hop of a node's sample has the node's cutoff, as in jgs; otherwise the cutoff of the second hop
is the time of the first hop's edge, as in the paper and in TGL's own setting. Nodes have
learned rows. Batches come in the order of time, each event with a uniform target in place of
its own.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import time_quality_data, worker
from benchmarks.typed_quality_data import Best, mrr


class Model(nn.Module):
    def __init__(self, layers: Any, num_nodes: int, setting: dict):
        super().__init__()
        width = setting["hidden"]
        self.table = nn.Parameter(torch.randn(num_nodes, width) / width**0.5)
        options = (width, 0, setting["time_width"], setting["heads"])
        options += (setting["dropout"], setting["dropout"], width)
        self.layers = nn.ModuleList(
            [layers.TransfomerAttentionLayer(*options) for _ in setting["fanouts"]]
        )
        self.predict = layers.EdgePredictor(width)

    def forward(self, nodes: torch.Tensor, blocks: list, others: int) -> tuple:
        """The scores of `B` events `[B]` and of `others` nodes for each `[others * B]`. Roots
        are sources, targets, and the others, those of one number together."""
        h = self.table[nodes]
        for layer, block in zip(self.layers, blocks, strict=True):
            block.srcdata["h"] = h
            h = layer(block)
        positive, negative = self.predict(h, others)
        return positive[:, 0], negative[:, 0]


class Sampler:
    """The blocks of roots, the seeds' last, as TGL has them: every edge has its own source."""

    def __init__(self, data: dict, setting: dict):
        self.past = time_quality_data.Past(data["src"], data["dst"], data["time"])
        self.fanouts, self.inherited = setting["fanouts"], setting["inherited"]
        self.unit = np.float32(setting["time_unit"])

    def sample(self, nodes: np.ndarray, cutoff: np.ndarray) -> tuple[np.ndarray, list]:
        blocks = []
        for k in self.fanouts:
            row, edge = self.past.latest(nodes, cutoff, k)
            source = len(nodes) + np.arange(len(row))
            block = dgl.create_block(
                (torch.from_numpy(source), torch.from_numpy(row)),
                num_src_nodes=len(nodes) + len(row),
                num_dst_nodes=len(nodes),
            )
            when = self.past.time[edge]
            elapsed = (cutoff[row] - when).astype(np.float32) / self.unit
            block.edata["dt"] = torch.from_numpy(elapsed)
            nodes = np.concatenate([nodes, self.past.neighbor[edge]])
            cutoff = np.concatenate([cutoff, cutoff[row] if self.inherited else when])
            blocks.insert(0, block)
        return nodes, blocks


def train(setting: dict) -> dict:
    sys.path.insert(0, setting["source"])
    import layers

    torch.manual_seed(setting["seed"])
    with np.load(setting["data"]) as file:
        data = dict(file)
    sampler = Sampler(data, setting)
    model = Model(layers, int(data["num_nodes"]), setting)
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"])
    chance = np.random.default_rng(setting["seed"])

    def scores(places: np.ndarray, others: np.ndarray) -> tuple:
        """The scores of events, and of `others` `[n, k]` in place of their targets."""
        roots = np.concatenate([data["src"][places], data["dst"][places], others.T.ravel()])
        cutoff = np.tile(data["time"][places], 2 + others.shape[1])
        nodes, blocks = sampler.sample(roots, cutoff)
        return model(torch.from_numpy(nodes), blocks, others.shape[1])

    def reached(of: str) -> float:
        positive, negative, size = [], [], setting["eval_batch"]
        places, others = data[of], data[f"{of}_others"]
        model.eval()
        with torch.no_grad():
            for i in range(0, len(places), size):
                own, rest = scores(places[i : i + size], others[i : i + size])
                positive.append(own.numpy())
                negative.append(rest.reshape(others.shape[1], -1).T.numpy())
        return mrr(np.concatenate(positive), np.concatenate(negative))

    best, spent, end = Best(setting["patience"]), [], int(data["ends"][0])
    for epoch in range(setting["epochs"]):
        model.train()
        for begin in range(0, end, setting["batch_size"]):
            places = np.arange(begin, min(begin + setting["batch_size"], end))
            began = time.perf_counter()
            others = chance.integers(*data["targets"], (len(places), 1), dtype=np.int32)
            found = scores(places, others)
            wanted = [torch.ones_like(found[0]), torch.zeros_like(found[1])]
            loss = F.binary_cross_entropy_with_logits(torch.cat(found), torch.cat(wanted))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            spent.append(time.perf_counter() - began)
        val = reached("val")
        if not best.add(epoch, val, reached("test") if val > best.val else None):
            break
    found = {"mrr": best.test, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


if __name__ == "__main__":
    worker.main(lambda task: train, torch.set_num_threads)
