"""Makes the input of the aggregation benchmark: the first block of a real sample, unpadded.

It is written to `task["block"]` as `.npz`.
"""

import jax
import numpy as np

import jgs
from benchmarks import worker
from jgs.sampling import plan_capacity, sample_neighbors


def main() -> None:
    task = worker.task()
    (setting,) = task["settings"]
    graph = jgs.Graph.open(task["graph"], verify=False)
    seeds, fanouts = worker.batches(setting)[0], tuple(setting["fanouts"])
    capacity = plan_capacity(graph, setting["batch"], fanouts, seeds=seeds)
    batch = sample_neighbors(jax.random.key(0), graph, seeds, fanouts, capacity)
    assert not batch.overflow
    block = batch.blocks[0]
    num_targets, num_edges = int(block.num_targets), int(block.num_edges)
    np.savez(
        task["block"],
        indptr=np.asarray(block.indptr)[: num_targets + 1],
        indices=np.asarray(block.indices)[:num_edges],
        num_sources=np.asarray(block.num_sources),
    )
    sizes = {"targets": num_targets, "sources": int(block.num_sources), "edges": num_edges}
    worker.report([{"name": setting["name"]} | sizes])


if __name__ == "__main__":
    main()
