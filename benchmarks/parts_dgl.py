"""Partitions the graph for DistDGL, with its balance options, in the peers' environment.

The JSON task has `graph` and `features`, folders; `train`, a file of training nodes; `parts`,
the number of parts; and `out`, the folder to write.
"""

import dgl
import numpy as np
import torch

from benchmarks import dgl_graph, worker

NAME = "rmat"


def main() -> None:
    task = worker.task()
    graph = dgl_graph.load(task["graph"], torch.int64, weighted=False).formats(["csc", "coo"])
    for name in ("features", "labels"):
        graph.ndata[name] = torch.from_numpy(worker.array(task["features"], name))
    train = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    train[torch.from_numpy(np.load(task["train"])).long()] = True
    graph.ndata["train"] = train
    dgl.distributed.partition_graph(
        graph,
        NAME,
        task["parts"],
        task["out"],
        balance_ntypes=train.long(),
        balance_edges=True,
    )


if __name__ == "__main__":
    main()
