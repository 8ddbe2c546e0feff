"""PyG under trial, with torch-sparse and torch-cluster, which PyPI has; pyg-lib it has not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_cluster
import torch_geometric
import torch_sparse
from torch_geometric.data import Data
from torch_geometric.loader import ShaDowKHopSampler
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput
from torch_geometric.utils import negative_sampling

from benchmarks.battery.library import NotOffered


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        arrays = {file.stem: torch.from_numpy(np.load(file)) for file in folder.glob("*.npy")}
        if disk or "time" in arrays or "kind" in arrays:
            raise NotOffered("" if disk else "cutoffs need pyg-lib")
        indptr, num_nodes = arrays["indptr"], len(arrays["indptr"]) - 1
        target = torch.repeat_interleave(torch.arange(num_nodes), indptr.diff())
        edges = torch.stack([arrays["indices"].long(), target])
        self.data = Data(edge_index=edges, num_nodes=num_nodes, n=torch.arange(num_nodes))
        self.sampler = cache(lambda k, more: NeighborSampler(self.data, [*k], replace=more))

    @staticmethod
    def versions() -> dict[str, str]:
        modules = {"PyG": torch_geometric, "torch-sparse": torch_sparse}
        modules |= {"torch-cluster": torch_cluster, "torch": torch}
        return {name: module.__version__ for name, module in modules.items()}

    @staticmethod
    def seed(key: tuple[int, int]) -> None:
        if key[1] == 0:
            torch_geometric.seed_everything(key[0])

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        if law != "uniform" or how.pop("padding", 0) or "excluded" in how:
            raise NotOffered("weights need pyg-lib" if law == "weight" else "")
        self.seed(key)
        sampler = self.sampler(tuple(fanouts), how.get("replace", False))
        seeds = torch.from_numpy(np.ascontiguousarray(seeds))
        found = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        edges = found.edge if sampler.perm is None else sampler.perm[found.edge]
        # A node draws in the hop after the one that found it: the seeds in the first.
        first = found.col < len(seeds)
        return [edges[first].numpy(), edges[~first].numpy()][: len(fanouts)]

    def walk(self, key: Any, roots: Any, length: int, p: float = 1, q: float = 1) -> Any:
        self.seed(key)
        roots, (row, col) = torch.from_numpy(roots.copy()), self.data.edge_index
        nodes = torch_cluster.random_walk(
            row, col, roots, length, p, q, num_nodes=self.data.num_nodes
        )
        return nodes.numpy()

    def negatives(self, key: Any, sources: Any, number: int) -> Any:
        """By `negative_sampling`, which draws both ends."""
        self.seed(key)
        edges, nodes = self.data.edge_index, self.data.num_nodes
        return negative_sampling(edges, nodes, number * len(sources)).T.numpy()

    def subgraph(self, key: Any, seeds: Any, fanouts: Any) -> Any:
        self.seed(key)
        seeds = torch.from_numpy(np.ascontiguousarray(seeds))
        loader = ShaDowKHopSampler(
            self.data, len(fanouts), fanouts[0], seeds, batch_size=len(seeds)
        )
        batch = next(iter(loader))
        return batch.n[batch.edge_index].T.numpy()
