"""One process of the layer-wise benchmark: DGL's LADIES example, with its sparse matrices.

The steps are those of `examples/sparse/sampling/ladies.py`. FastGCN draws by the norms of all
rows instead. Both sides sample the matrix of means, `1 / d_v` for an edge into `v`, without
self-loops. The example adds the frontier's nodes to the rows, and jgs's blocks have them too.
"""

from functools import partial

import dgl.sparse as dglsp
import torch

from benchmarks import worker


def load(folder: str) -> dglsp.SparseMatrix:
    indptr = torch.from_numpy(worker.array(folder, "indptr"))
    indices = torch.from_numpy(worker.array(folder, "indices")).to(torch.int64)
    degree = torch.diff(indptr)
    value = torch.repeat_interleave(1 / degree.clamp(min=1).float(), degree)
    num = len(indptr) - 1
    return dglsp.from_csc(indptr, indices, value, (num, num))


def measure(matrix: dglsp.SparseMatrix, setting: dict) -> dict:
    of_all = (matrix**2).sum(1) if setting["sampler"] == "fastgcn" else None

    def sample(seeds):
        frontier, edges = seeds, 0
        for size in setting["sizes"]:
            sub = matrix.index_select(1, frontier)
            probs = (sub**2).sum(1) if of_all is None else of_all
            probs = probs / probs.sum(0)
            rows = torch.multinomial(probs, size, replacement=False)
            rows = torch.cat((rows, frontier), 0).unique()
            sampled = sub.index_select(0, rows)
            divided = dglsp.sp_broadcast_v(sampled, probs[rows].reshape(-1, 1), "truediv")
            if of_all is None:
                divided = dglsp.sp_broadcast_v(divided, divided.sum(0), "truediv")
            frontier, edges = rows, edges + divided.nnz
        return len(frontier), edges

    seeds = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    return worker.measured(setting, sample, seeds)


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, load(task["graph"])), torch.set_num_threads)
