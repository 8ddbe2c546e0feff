"""DGL's METIS, as `dgl.distributed.partition_graph` calls it, in the peers' environment."""

import json
import sys
import time

import dgl
import numpy as np
import torch


def main() -> None:
    task = json.loads(sys.argv[1])
    folder = task["folder"]
    indptr, indices, train = (
        torch.from_numpy(np.load(f"{folder}/{name}.npy"))
        for name in ("indptr", "indices", "train")
    )
    no_edge_ids = torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csc", (indptr, indices, no_edge_ids)), num_nodes=len(indptr) - 1)
    types = torch.zeros(graph.num_nodes(), dtype=torch.int64)
    types[train] = 1
    seconds = {}
    for num_parts in task["parts"]:
        began = time.perf_counter()
        parts = dgl.metis_partition_assignment(graph, num_parts, types, True)
        seconds[num_parts] = time.perf_counter() - began
        np.save(f"{folder}/parts-{num_parts}.npy", parts.numpy())
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
