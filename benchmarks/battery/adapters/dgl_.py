"""DGL under trial, by its samplers of `dgl.dataloading` and walks of `dgl.sampling`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch
from dgl import dataloading

from benchmarks.battery.library import NotOffered


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        if disk:
            raise NotOffered("graphs are in memory")
        arrays = {file.stem: torch.from_numpy(np.load(file)) for file in folder.glob("*.npy")}
        if "time" in arrays:
            raise NotOffered("no cutoffs")
        self.indptr, self.indices = arrays["indptr"], arrays["indices"].long()
        num_nodes, self.kind = len(self.indptr) - 1, arrays.get("kind")
        if self.kind is None:
            csc = (self.indptr, self.indices, torch.arange(len(self.indices)))
            self.graph = dgl.graph(("csc", csc), num_nodes=num_nodes)
        else:
            target = torch.repeat_interleave(torch.arange(num_nodes), self.indptr.diff())
            self.ids = [torch.nonzero(self.kind == i)[:, 0] for i in range(3)]
            edges = {
                ("node", f"r{i}", "node"): (self.indices[ids], target[ids])
                for i, ids in enumerate(self.ids)
            }
            self.graph = dgl.heterograph(edges, num_nodes_dict={"node": num_nodes})
        if "weight" in arrays:
            self.graph.edata["weight"] = arrays["weight"]

    @staticmethod
    def versions() -> dict[str, str]:
        return {"DGL": dgl.__version__, "torch": torch.__version__}

    @staticmethod
    def seed(key: tuple[int, int]) -> None:
        if key[1] == 0:
            dgl.seed(key[0])
            torch.manual_seed(key[0])

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        if law not in ("uniform", "weight", "labor") or how.pop("padding", 0):
            raise NotOffered("")
        excluded = how.pop("excluded", None)
        excluded = None if excluded is None else torch.from_numpy(excluded)
        prob = "weight" if law == "weight" else None
        self.seed(key)
        if self.kind is not None:
            fanouts = [{("node", f"r{i}", "node"): n for i, n in enumerate(k)} for k in fanouts]
            if excluded is not None:
                position = torch.zeros(len(self.kind), dtype=torch.long)
                for ids in self.ids:
                    position[ids] = torch.arange(len(ids))
                kinds = self.kind[excluded]
                excluded = {
                    ("node", f"r{i}", "node"): position[excluded[kinds == i]] for i in range(3)
                }
        if law == "labor":
            sampler: Any = dataloading.LaborSampler(fanouts[::-1])
        else:
            sampler = dataloading.NeighborSampler(
                fanouts[::-1], prob=prob, replace=how.pop("replace", False)
            )
        seeds = torch.from_numpy(np.ascontiguousarray(seeds))
        blocks = sampler.sample_blocks(self.graph, seeds, excluded)[2]
        return [self.edges(block) for block in blocks[::-1]]

    def edges(self, block: Any) -> np.ndarray:
        if self.kind is None:
            return block.edata[dgl.EID].numpy()
        each = [ids[block.edges[f"r{i}"].data[dgl.EID]] for i, ids in enumerate(self.ids)]
        return torch.cat(each).numpy()

    def walk(self, key: Any, roots: Any, length: int, p: float = 1, q: float = 1) -> Any:
        self.seed(key)
        roots = torch.from_numpy(np.ascontiguousarray(roots))
        if p == q == 1:
            return dgl.sampling.random_walk(self.graph, roots, length=length)[0].numpy()
        return dgl.sampling.node2vec_random_walk(self.graph, roots, p, q, length).numpy()

    def negatives(self, key: Any, sources: Any, number: int) -> Any:
        """By `GlobalUniform`, which promises pairs without edges; their sources are drawn."""
        self.seed(key)
        sampler = dataloading.negative_sampler.GlobalUniform(number)
        edges = torch.arange(len(sources))
        return torch.stack(sampler(self.graph, edges), dim=1).numpy()

    def subgraph(self, key: Any, seeds: Any, fanouts: Any) -> Any:
        self.seed(key)
        seeds = torch.from_numpy(np.ascontiguousarray(seeds))
        found = dataloading.ShaDowKHopSampler(fanouts[::-1]).sample(self.graph, seeds)[2]
        return torch.stack([found.ndata[dgl.NID][ends] for ends in found.edges()], 1).numpy()
