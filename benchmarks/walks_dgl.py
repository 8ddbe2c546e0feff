"""One process of the walks' benchmark: DGL's `random_walk` and `node2vec_random_walk`.

DGL walks along out-edges, and jgs along in-edges. The graph has every edge both ways, so its
rows are given to DGL as those of the out-edges. DGL's graph for metapaths has only the two
relations that the metapaths use, which join the lower and the upper half of the ids.
"""

import dgl
import numpy as np
import torch

from benchmarks import worker


def load(folder: str) -> dgl.DGLGraph:
    indptr = torch.from_numpy(worker.array(folder, "indptr"))
    indices = torch.from_numpy(worker.array(folder, "indices")).to(torch.int64)
    arrays = indptr, indices, torch.empty(0, dtype=torch.int64)
    return dgl.graph(("csr", arrays), num_nodes=len(indptr) - 1).formats("csr")


def load_typed(folder: str, edge_types: str) -> dgl.DGLGraph:
    indptr, indices = worker.array(folder, "indptr"), worker.array(folder, "indices")
    kind, half = np.load(edge_types, mmap_mode="r"), (len(indptr) - 1) // 2

    def between(first: int, wanted: int) -> tuple[str, tuple[torch.Tensor, ...]]:
        """Edges of the wanted kind from the nodes `first` to `first + half - 1`, in CSR."""
        begin = int(indptr[first])
        ours = kind[begin : indptr[first + half]] == wanted
        before = np.concatenate([[0], np.cumsum(ours)])
        ends = torch.from_numpy(indices[begin : indptr[first + half]][ours] - (half - first))
        offsets = torch.from_numpy(before[indptr[first : first + half + 1] - begin])
        return "csr", (offsets, ends.to(torch.int64), torch.empty(0, dtype=torch.int64))

    edges = {
        ("low", "high-low", "high"): between(0, 2),
        ("high", "low-high", "low"): between(half, 1),
    }
    return dgl.heterograph(edges, {"low": half, "high": half}).formats("csr")


def measure(graph: dgl.DGLGraph, setting: dict) -> dict:
    length, options = setting["length"], setting["options"]

    def walks(roots):
        if setting["walker"] == "node2vec":
            p, q = options["p"], options["q"]
            return dgl.sampling.node2vec_random_walk(graph, roots, p, q, length)
        if setting["walker"] == "metapath":
            path = [options["relations"][i % 2] for i in range(length)]
            return dgl.sampling.random_walk(graph, roots, metapath=path)[0]
        stop = options.get("stop")
        return dgl.sampling.random_walk(graph, roots, length=length, restart_prob=stop)[0]

    if setting["walker"] == "metapath":
        setting |= {"below": graph.num_nodes("low")}
    roots = torch.from_numpy(worker.batches(setting)).to(torch.int64)
    times = worker.milliseconds(walks, roots)
    taken = np.mean([int((walks(some)[:, 1:] >= 0).sum()) for some in roots])
    return {"name": setting["name"], "ms": times, "steps": float(taken)}


def prepare(task: dict):
    plain = load(task["graph"])

    def of(setting):
        typed = setting["walker"] == "metapath"
        graph = load_typed(task["graph"], task["edge_types"]) if typed else plain
        return measure(graph, setting)

    return of


if __name__ == "__main__":
    worker.main(prepare, torch.set_num_threads)
