"""Run by each rank (see ranks.py), or imported: what ranks draw for items.

Arguments: the folder of parts, and the folder to write what was drawn to.
"""

import pickle
import sys
from pathlib import Path

import jax
import numpy as np
from ranks import barrier, connect_here

from jgs import Graph
from jgs.data import Dataset
from jgs.dist import RankParts, open_parts, rank_loader
from jgs.partition.folder import write_parts
from jgs.sampling import Links, Neighbors

N, PARTS, BATCH, ITEMS = 240, 6, 12, 50
LINKS = Links(3, "degree", copies=8)
SAMPLER = Neighbors((3, -1, 2))


def write(folder, timed=False):
    """Parts of a random graph with hubs, where most edges have copies and reverses, and some
    nodes have no edges; with times of edges if it is `timed`."""
    rng = np.random.default_rng(0)
    src, dst = (rng.random((2, 700)) ** [[1], [2]] * (N - 20)).astype(int)
    ends = np.stack([np.append(src, dst[:400]), np.append(dst, src[:400])])
    ends = np.repeat(ends, rng.integers(1, 4, ends.shape[1]), axis=1)
    weight = rng.random(ends.shape[1]) * (rng.random(ends.shape[1]) > 0.2)
    time = rng.integers(-50, 50, ends.shape[1]) if timed else None
    data = Dataset(
        name="random",
        graph=Graph.from_edges(*ends, N, weight.astype(np.float32), edge_time=time),
        features=rng.standard_normal((N, 4)).astype(np.float32),
        labels=np.zeros(N, np.int32),
        num_classes=2,
        train_idx=np.arange(0, N, 5, dtype=np.int32),
        val_idx=np.arange(1, 4, dtype=np.int32),
        test_idx=np.arange(6, 9, dtype=np.int32),
    )
    owner = rng.integers(0, PARTS, N).astype(np.int32)
    write_parts(folder, data, owner, PARTS, method="random")
    return folder


def links_of(graph):
    """Edges to predict, of all parts: every so many of the graph."""
    dst = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    some = np.linspace(0, graph.num_edges - 1, ITEMS).astype(int)
    items = {"src": np.asarray(graph.indices)[some], "dst": dst[some], "label": some % 7}
    if graph.edge_time is not None:
        items["time"] = np.asarray(graph.edge_time)[some]
    return items


def loader(comm, folder, mode, sampler=SAMPLER, before=LINKS, items=None, **options):
    parts = open_parts(folder)
    items = links_of(parts.graph) if items is None else items
    return rank_loader(
        comm,
        RankParts(comm, parts),
        BATCH // comm.size,
        sampler,
        key=jax.random.key(3),
        mode=mode,
        items=items,
        before=before,
        **options,
    )


def drawn(comm, batches):
    """For each step what each local rank drew, without padding, and the rows of features."""
    steps = []
    for batch, x in batches:
        ranks = zip(comm.local(batch), comm.local(x), strict=True)
        steps.append([_real(one, rows) for one, rows in ranks])
    return steps


def _real(batch, rows):
    blocks = []
    for block in batch.blocks:
        targets, edges = int(block.num_targets), int(block.num_edges)
        arrays = np.asarray(block.indptr)[: targets + 1], np.asarray(block.indices)[:edges]
        blocks.append((*arrays, int(block.num_sources)))
    nodes = np.asarray(batch.nodes)
    real = nodes < N
    found = {"nodes": nodes[real], "rows": np.asarray(rows)[real], "blocks": blocks}
    if batch.cutoff is not None:
        found["cutoff"] = np.asarray(batch.cutoff)[real]
    return jax.device_get(found | {"seeds": batch.seeds, "items": batch.items})


def main() -> None:
    folder, out = sys.argv[1:]
    comm = connect_here()
    with loader(comm, folder, "vanilla") as batches:
        steps = drawn(comm, batches)
    Path(out, f"{comm.rank}.pickle").write_bytes(pickle.dumps(steps))
    barrier(comm)


if __name__ == "__main__":
    main()
