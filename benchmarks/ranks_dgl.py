"""One process of DistDGL's training: a server, or the trainer beside it on the same host.

The trainer is DistDGL's own example: the GraphSAGE of `step_dgl`, and `DistributedDataParallel`
over gloo. Its batches come straight from the sampler, so that the parts add up to the
iteration. The JSON task has a setting of `step_dgl` and `role`, `rank`, `hosts` (addresses),
`ip_config` (a file that lists them), `parts` (the partition's folder) and `warmup`.
"""

import os
import time

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import wire, worker
from benchmarks.parts_dgl import NAME
from benchmarks.step_dgl import SAGE

_PORT = 29543


def serve(task: dict) -> None:
    os.environ |= {"DGL_ROLE": "server", "DGL_SERVER_ID": str(task["rank"])}
    dgl.distributed.initialize(task["ip_config"])  # does not return


def train(task: dict) -> dict:
    rank, hosts = task["rank"], task["hosts"]
    dgl.distributed.initialize(task["ip_config"])
    torch.distributed.init_process_group(
        "gloo", f"tcp://{hosts[0]}:{_PORT}", rank=rank, world_size=len(hosts)
    )
    graph = dgl.distributed.DistGraph(NAME)
    book = graph.get_partition_book()
    assert book.partid == rank, f"rank {rank} is on the host of part {book.partid}"
    nodes = dgl.distributed.node_split(graph.ndata["train"], book, force_even=True)
    widths = [graph.ndata["features"].shape[1], *task["widths"]]
    model = SAGE(widths, task["dropout"])
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=task["lr"])
    sampler = dgl.dataloading.NeighborSampler(task["fanouts"][::-1])
    parts = {"sampling": [], "features": [], "computing": []}
    moved, size, seen = [], task["batch"], 0
    for step in range(task["warmup"] + task["iterations"]):
        if seen + size > len(nodes) or step == 0:
            nodes, seen = nodes[torch.randperm(len(nodes))], 0
        torch.distributed.barrier()
        before, clock = wire.num_bytes(), [time.perf_counter()]
        input_nodes, seeds, blocks = sampler.sample_blocks(graph, nodes[seen : seen + size])
        clock.append(time.perf_counter())
        x, y = graph.ndata["features"][input_nodes], graph.ndata["labels"][seeds].long()
        clock.append(time.perf_counter())
        loss = F.cross_entropy(model(blocks, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.append(time.perf_counter())
        torch.distributed.barrier()
        seen += size
        if step >= task["warmup"]:
            moved.append(wire.num_bytes() - before)
            for part, seconds in zip(parts.values(), np.diff(clock), strict=True):
                part.append(1e3 * seconds)
    assert torch.isfinite(loss)
    total = np.sum(list(parts.values()), axis=0)
    sizes = {"nodes": len(input_nodes), "edges": sum(b.num_edges() for b in blocks)}
    return {"ms": total.tolist(), "parts": parts, "bytes": moved} | sizes


def main() -> None:
    task = worker.task()
    os.environ |= {
        "DGL_DIST_MODE": "distributed",
        "DGL_IP_CONFIG": task["ip_config"],
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_CLIENT": str(len(task["hosts"])),
        "DGL_NUM_SAMPLER": "0",
        "DGL_CONF_PATH": f"{task['parts']}/{NAME}.json",
        "DGL_GRAPH_FORMAT": "csc",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
    }
    torch.set_num_threads(task["threads"])
    if task["role"] == "server":
        serve(task)
    worker.report([train(task)])


if __name__ == "__main__":
    main()
