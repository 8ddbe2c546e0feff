"""One process of the attention benchmark: DGL's `edge_softmax` and `u_mul_e_sum`."""

from functools import partial

import dgl
import torch

from benchmarks import aggregate_dgl, worker


def measure(block: dgl.DGLGraph, setting: dict) -> dict:
    arrays = worker.attention_arrays(
        setting, block.num_edges(), block.num_src_nodes(), block.num_dst_nodes()
    )

    def attention(logits, x):
        return dgl.ops.u_mul_e_sum(block, x, dgl.ops.edge_softmax(block, logits))

    return aggregate_dgl.timed(setting, attention, [torch.from_numpy(a) for a in arrays])


if __name__ == "__main__":
    worker.main(
        lambda task: partial(measure, aggregate_dgl.load(task["block"])), torch.set_num_threads
    )
