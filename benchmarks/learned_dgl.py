"""One process of the benchmark of learned samplers: AS-GCN and PASS with DGL's primitives.

DGL has neither, so both are written with its sparse matrices, as its example of LADIES is. The
formulas and the parameters are those of jgs's `ASGCN` and `PASS`. What depends on the features
is computed for every batch, because the parameters change from batch to batch in training, and
for the sources of the frontier's edges alone.
"""

from functools import partial

import dgl.sparse as dglsp
import torch

from benchmarks import layerwise_dgl, learned, worker


class AsGcn:
    def __init__(self, folder: str, features: torch.Tensor):
        self.matrix, self.features = layerwise_dgl.load(folder), features
        self.weight = torch.from_numpy(learned.asgcn(features.shape[1]))

    def probabilities(self, frontier: torch.Tensor) -> tuple:
        """The edges into the frontier from the rows that have any, these rows, and the
        probability of each."""
        sub, rows = self.matrix.index_select(1, frontier).compact(0)
        size = 1 + (self.features[rows] @ self.weight).abs()
        probs = size * (sub**2).sum(1).sqrt()
        return sub, rows, probs / probs.sum(0)

    def layer(self, frontier: torch.Tensor, size: int) -> tuple[torch.Tensor, int]:
        """The nodes known after a layer, and the number of its edges."""
        sub, rows, probs = self.probabilities(frontier)
        drawn = torch.multinomial(probs, min(size, len(rows)), replacement=False)
        drawn = drawn.sort().values
        sampled = sub.index_select(0, drawn)
        sampled = dglsp.sp_broadcast_v(sampled, probs[drawn].reshape(-1, 1), "truediv")
        return torch.cat((frontier, rows[drawn])).unique(), sampled.nnz


class Pass:
    def __init__(self, folder: str, features: torch.Tensor):
        self.matrix, self.features = layerwise_dgl.load(folder), features
        weight, attention = learned.pass_(features.shape[1])
        self.weight = torch.from_numpy(weight)
        self.share = torch.softmax(torch.from_numpy(attention), 0)

    def biased(self, frontier: torch.Tensor) -> tuple[dglsp.SparseMatrix, torch.Tensor]:
        """The edges into the frontier from the rows that have any, with the bias `b` of each;
        and these rows."""
        sub, rows = self.matrix.index_select(1, frontier).compact(0)
        ones = dglsp.val_like(sub, torch.ones(sub.nnz))
        bias = sub.val * self.share[2]  # 1 / n
        both = (self.features[nodes] @ self.weight for nodes in (rows, frontier))
        heads = zip(*(each.split(learned.WIDTH, dim=1) for each in both), strict=True)
        for share, (left, right) in zip(self.share, heads, strict=False):
            bias += share * dglsp.sddmm(ones, left, right.T).val
        return dglsp.val_like(sub, torch.relu(bias) + 1e-9), rows

    def layer(self, frontier: torch.Tensor, size: int) -> tuple[torch.Tensor, int]:
        """The nodes known after a layer, and the number of its edges."""
        biased, rows = self.biased(frontier)
        every = torch.arange(len(frontier))  # without it DGL 2.1 names a column too many
        drawn = biased.sample(1, size, every, replace=True, bias=True)
        return torch.cat((frontier, rows[drawn.row])).unique(), drawn.nnz


SAMPLERS = {"asgcn": AsGcn, "pass": Pass}


def measure(task: dict, setting: dict) -> dict:
    features = torch.from_numpy(worker.array(task["features"], "features"))
    sampler = SAMPLERS[setting["sampler"]](task["graph"], features)

    def sample(seeds):
        frontier, edges = seeds.sort().values, 0
        for size in setting["sizes"]:
            frontier, drawn = sampler.layer(frontier, size)
            edges += drawn
        return len(frontier), edges

    seeds = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    return worker.measured(setting, sample, seeds)


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, task), torch.set_num_threads)
