"""One process of the aggregation benchmark: DGL's `copy_u_mean` on the same block."""

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
    x, grad_out = (torch.from_numpy(rng.standard_normal(s, np.float32)) for s in shapes)

    def forward():
        with torch.no_grad():
            return (dgl.ops.copy_u_mean(block, x),)

    def with_derivative():
        leaf = x.detach().requires_grad_()
        out = dgl.ops.copy_u_mean(block, leaf)
        out.backward(grad_out)
        return out.detach(), leaf.grad

    run = with_derivative if setting["derivative"] else forward
    check = [float(a.abs().mean()) for a in run()]
    times = worker.milliseconds(lambda _: run(), range(setting["iterations"]))
    return {"name": setting["name"], "ms": times, "check": check}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    block = load(task["block"])
    worker.report([measure(block, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
