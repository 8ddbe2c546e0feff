"""How even the partitions are and how many edges they cut, beside DGL's METIS.

    python -m benchmarks.partition [--no-peers] [--parts 2 4 8]

There are three graphs: RMAT of 2**18 nodes and 8 million directed edges; Facebook's pages; and
the planted partition that `synthetic` generates. A random 10 % of RMAT's nodes are for
training, as many for validation, and the rest for testing. DGL's call is that of
`dgl.distributed.partition_graph` with `balance_ntypes` (training nodes or not) and
`balance_edges`, without its writing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

_REPOSITORY = Path(__file__).parents[1]
_BY_DGL = "DGL's METIS"


def main() -> int:
    from benchmarks import peers
    from benchmarks.__main__ import CACHE, say

    arguments = _arguments()
    CACHE.mkdir(parents=True, exist_ok=True)
    print(
        "| graph | parts | method | edges cut | connected nodes | edges | train | val | test "
        "| seconds |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for name, (graph, splits) in _graphs(CACHE, arguments.facebook).items():
        say(f"{name}: {graph}")
        made = _by_jgs(graph, splits, arguments.parts)
        if not arguments.no_peers:
            try:
                made += _by_dgl(peers.python(CACHE), CACHE, graph, splits, arguments.parts)
            except peers.Missing as error:
                say(f"the peers could not be installed: {error}")
        for num_parts, method, parts, seconds in sorted(made, key=lambda row: row[0]):
            shares = _shares(graph, splits, parts, num_parts)
            cells = [name, str(num_parts), method, *shares, f"{seconds:.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    from benchmarks.__main__ import command_line

    parser = command_line("partition", __doc__)
    add = parser.add_argument
    add("--parts", type=int, nargs="+", default=[2, 4, 8])
    add("--no-peers", action="store_true", help="jgs alone")
    add(
        "--facebook",
        type=Path,
        default=_REPOSITORY.parent / "shared" / "data",
        help="folder with facebook.npz; left out where there is none (default: %(default)s)",
    )
    return parser.parse_args()


def _graphs(cache: Path, facebook: Path) -> dict:
    import jgs
    import jgs.data
    from benchmarks import graph

    rmat = jgs.Graph.open(graph.cached(cache, graph.QUICK), verify=False)
    order, tenth = np.random.default_rng(0).permutation(rmat.num_nodes), rmat.num_nodes // 10
    graphs = {"RMAT": (rmat, np.split(order, [tenth, 2 * tenth]))}
    wanted = ["synthetic"]
    if (facebook / "facebook.npz").is_file():
        wanted.insert(0, "facebook")
    for name in wanted:
        data = jgs.data.load(name, facebook)
        graphs[name] = (data.graph, [data.train_idx, data.val_idx, data.test_idx])
    return graphs


def _by_jgs(graph, splits, all_parts) -> list[tuple]:
    from jgs.partition.nodes import METHODS, partition_nodes

    made = []
    named = dict(zip(("train_idx", "val_idx", "test_idx"), splits, strict=True))
    for num_parts in all_parts:
        for method in METHODS:
            began = time.perf_counter()
            parts = partition_nodes(graph, num_parts, method, **named)
            made.append((num_parts, f"jgs, {method}", parts, time.perf_counter() - began))
    return made


def _by_dgl(python: Path, cache: Path, graph, splits, all_parts) -> list[tuple]:
    folder = cache / "partition"
    folder.mkdir(exist_ok=True)
    for name, array in (
        ("indptr", graph.indptr),
        ("indices", graph.indices),
        ("train", splits[0]),
    ):
        np.save(folder / f"{name}.npy", np.asarray(array, np.int64))
    task = json.dumps({"folder": str(folder), "parts": all_parts})
    # The packages on this interpreter's path are not meant for the peers.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "benchmarks.partition_dgl", task],
        cwd=_REPOSITORY,
        env=environment | {"DGLBACKEND": "pytorch"},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    seconds = json.loads(done.stdout.splitlines()[-1])
    return [
        (p, _BY_DGL, np.load(folder / f"parts-{p}.npy"), seconds[str(p)]) for p in all_parts
    ]


def _shares(graph, splits, parts: np.ndarray, num_parts: int) -> list[str]:
    from jgs.partition.balance import constraint_weights, edge_cut, in_neighbors, part_loads
    from jgs.partition.nodes import max_over_mean

    loads = part_loads(parts, constraint_weights(graph, *splits), num_parts)
    cut = edge_cut(in_neighbors(graph), parts)
    return [f"{cut:.1%}", *(f"{max_over_mean(load):.3f}" for load in loads.T)]


if __name__ == "__main__":
    sys.exit(main())
