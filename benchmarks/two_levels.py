"""DistDGL's split in two levels: which edges and which seeds leave a machine.

    python -m benchmarks.two_levels [--parts 8] [--ranks-per-machine 4] [--only synthetic]

A graph is split by METIS, or another method, into one part for each rank. The first columns
are the shares of edges between machines: where each `T` parts in the method's own order are a
machine's, as in `dgl.distributed.partition_graph` with `num_trainers_per_machine`; where those
are that share the most edges, by `--ranks-per-machine`; and where the graph is split into
machines alone. The last columns are the shares of training nodes that another machine trains
on: where equal ranges of ids are dealt, as DistDGL does, and as jgs deals them. Training nodes
are those of the data set, or those of one class, which lie in few parts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import jgs
import jgs.data
from benchmarks.__main__ import command_line, say
from jgs.partition.balance import edge_cut, in_neighbors
from jgs.partition.folder import deal_seeds
from jgs.partition.nodes import METHODS, partition_nodes

GRAPHS = ("synthetic", "facebook")
_DATA = Path(__file__).parents[1].parent / "shared" / "data"


def by_ranges(owner: np.ndarray, num_parts: int) -> np.ndarray:
    """int `[T]`: the part of each seed, of ascending `owner`, where equal ranges are dealt."""
    return np.arange(owner.size) * num_parts // max(1, owner.size)


def measure(
    graph: jgs.Graph, seeds: np.ndarray, num_parts: int, size: int, method: str = "metis"
) -> list[float]:
    """The shares of the module's docstring, in its order."""
    adjacency = in_neighbors(graph)
    alone = partition_nodes(graph, num_parts, method, train_idx=seeds)
    grouped = partition_nodes(graph, num_parts, method, train_idx=seeds, ranks_per_machine=size)
    machines = partition_nodes(graph, num_parts // size, method, train_idx=seeds)
    cuts = [edge_cut(adjacency, p) for p in (alone // size, grouped // size, machines)]
    owner = np.sort(grouped[seeds])
    dealt = by_ranges(owner, num_parts), deal_seeds(owner, num_parts, size)
    return cuts + [float((owner // size != d // size).mean()) for d in dealt]


def main() -> int:
    parser = command_line("two_levels", __doc__)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--ranks-per-machine", type=int, default=4)
    parser.add_argument("--method", choices=METHODS, default="metis")
    parser.add_argument("--only", nargs="+", choices=GRAPHS, default=GRAPHS)
    given = parser.parse_args()
    num_parts, size = given.parts, given.ranks_per_machine
    print(
        f"| graph, {num_parts} parts on {num_parts // size} machines | its own order | grouped "
        "| into machines alone | seeds, by ranges | seeds, jgs |\n|---|---|---|---|---|---|"
    )
    for name in given.only:
        if name == "facebook" and not (_DATA / "facebook.npz").is_file():
            say(f"facebook.npz is not in {_DATA}")
            continue
        data = jgs.data.load(name, _DATA)
        every = np.asarray(data.train_idx)
        own = every[np.asarray(data.labels)[every] == 0]  # one class: uneven over the parts
        for what, seeds in ((name, every), (f"{name}, seeds of one class", own)):
            shares = measure(data.graph, seeds, num_parts, size, given.method)
            print(f"| {what} | " + " | ".join(f"{s:.1%}" for s in shares) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
