"""One process of the attention benchmark: DGL's `edge_softmax` and `u_mul_e_sum`."""

import dgl
import torch

from benchmarks import aggregate_dgl, worker


def measure(block: dgl.DGLGraph, setting: dict) -> dict:
    arrays = worker.attention_arrays(
        setting, block.num_edges(), block.num_src_nodes(), block.num_dst_nodes()
    )
    logits, x, grad_out = (torch.from_numpy(a) for a in arrays)

    def attention(logits, x):
        return dgl.ops.u_mul_e_sum(block, x, dgl.ops.edge_softmax(block, logits))

    def forward():
        with torch.no_grad():
            return (attention(logits, x),)

    def with_derivative():
        leaves = [a.detach().requires_grad_() for a in (logits, x)]
        out = attention(*leaves)
        out.backward(grad_out)
        return out.detach(), *(leaf.grad for leaf in leaves)

    run = with_derivative if setting["derivative"] else forward
    check = [float(a.abs().mean()) for a in run()]
    times = worker.milliseconds(lambda _: run(), range(setting["iterations"]))
    return {"name": setting["name"], "ms": times, "check": check}


def main() -> None:
    task = worker.task()
    torch.set_num_threads(task["threads"])
    block = aggregate_dgl.load(task["block"])
    worker.report([measure(block, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
