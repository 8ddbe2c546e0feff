"""One process of the aggregation benchmark: DGL's `copy_u_mean` on the same block."""

from collections.abc import Callable, Sequence
from functools import partial

import dgl
import numpy as np
import torch

from benchmarks import worker


def load(path: str) -> dgl.DGLGraph:
    with np.load(path) as saved:
        indptr, indices = (torch.from_numpy(saved[name]) for name in ("indptr", "indices"))
        num_sources = int(saved["num_sources"])
    no_edge_ids = torch.empty(0, dtype=indptr.dtype)
    return dgl.create_block(
        ("csc", (indptr, indices, no_edge_ids)),
        num_src_nodes=num_sources,
        num_dst_nodes=len(indptr) - 1,
    )


def measure(block: dgl.DGLGraph, setting: dict) -> dict:
    rng = np.random.default_rng(0)
    shapes = (
        (block.num_src_nodes(), setting["features"]),
        (block.num_dst_nodes(), setting["features"]),
    )
    arrays = [torch.from_numpy(rng.standard_normal(s, np.float32)) for s in shapes]
    return timed(setting, partial(dgl.ops.copy_u_mean, block), arrays)


def timed(setting: dict, function: Callable, arrays: Sequence[torch.Tensor]) -> dict:
    """A setting's result, of a function of all arrays but the last, which is the gradient of
    what it returns."""
    *given, grad_out = arrays

    def forward():
        with torch.no_grad():
            return (function(*given),)

    def with_derivative():
        leaves = [a.detach().requires_grad_() for a in given]
        out = function(*leaves)
        out.backward(grad_out)
        return out.detach(), *(leaf.grad for leaf in leaves)

    run = with_derivative if setting["derivative"] else forward
    check = [float(a.abs().mean()) for a in run()]
    times = worker.milliseconds(lambda _: run(), range(setting["iterations"]))
    return {"name": setting["name"], "ms": times, "check": check}


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, load(task["block"])), torch.set_num_threads)
