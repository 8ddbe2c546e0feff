"""Partitioning a graph of 100 million nodes: what it takes, beside what the command predicts.

    python -m benchmarks.partition_large --folder DIR [--nodes N] [--methods ldg kaminpar]

Makes an RMAT graph with 8 columns of float32 features in pieces, and keeps it in DIR. Its
arrays are memory-mapped. They take about 6 GB of disk, 4 GB more while they are made, and 9 GB
more for the parts, which are removed. Then `python -m jgs.partition` runs on the graph, a
process of its own for each method. The peak is that of private memory, with that of child
processes, read from /proc twenty times a second. Pages of mapped files are shown apart, because
the system can take them back at any time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.__main__ import command_line
from benchmarks.graph import rmat_edges

COLUMNS, CLASSES, CHUNK = 8, 16, 1 << 20
_REPOSITORY = Path(__file__).parents[1]


def main() -> int:
    given = _arguments()
    folder = given.folder / f"rmat-{given.nodes}-{given.edges}"
    if not (folder / "graph" / "manifest.json").is_file():
        make(folder, given.nodes, given.edges)
    print(
        "| method | parts | edges cut | predicted GB | peak GB | peak / predicted "
        "| mapped GB | seconds: partitioning | writing |\n|---|---|---|---|---|---|---|---|---|"
    )
    for method in given.methods:
        result, private, mapped = measured(folder, method, given.parts)
        predicted, seconds = result["memory"]["predicted"], result["seconds"]
        print(
            f"| {method} | {given.parts} | {result['edge_cut']:.1%} | {predicted / 1e9:.2f} "
            f"| {private / 1e9:.2f} | {private / predicted:.2f} | {mapped / 1e9:.2f} "
            f"| {seconds['partitioning']:.0f} | {seconds['writing']:.0f} |",
            flush=True,
        )
    return 0


def _arguments() -> argparse.Namespace:
    parser = command_line("partition_large", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True)
    add("--nodes", type=int, default=100_000_000)
    add("--edges", type=int, default=180_000_000, help="undirected ones, drawn")
    add("--parts", type=int, default=4)
    add("--methods", nargs="+", default=["ldg", "kaminpar"])
    return parser.parse_args()


# -- the graph ---------------------------------------------------------------------------------


def make(folder: Path, num_nodes: int, num_edges: int) -> None:
    """Writes `graph/`, features, labels and splits to `folder`, a piece at a time."""
    from jgs.data.edge_stream import build_graph

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as workspace:
        graph = build_graph(
            edges(num_nodes, num_edges), num_nodes, Path(workspace), symmetric=True, what="RMAT"
        )
        for name, shape, dtype in (
            ("features", (num_nodes, COLUMNS), np.float32),
            ("labels", (num_nodes,), np.int32),
        ):
            array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
            for first in range(0, num_nodes, CHUNK):
                rng = np.random.default_rng([1, first])
                some = array[first : first + CHUNK]
                labels = rng.integers(0, CLASSES, len(some), np.int32)
                some[...] = rng.random(some.shape, np.float32) if some.ndim == 2 else labels
            array.flush()
        # Each split has a hundredth of the nodes: a random one, since the ids are shuffled.
        for at, name in enumerate(("train", "val", "test")):
            ids = np.arange(at, num_nodes, 100, dtype=np.int32)
            np.save(folder / f"{name}_idx.npy", ids)
        graph.save(folder / "graph")


def edges(num_nodes: int, num_edges: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """About `num_edges` undirected edges, in pieces.

    They are the edges between `num_nodes` nodes of an RMAT graph with shuffled ids. The number
    of that graph's nodes is the next power of two.
    """
    scale = int(num_nodes - 1).bit_length()
    kept, number = 0, 0
    while kept < num_edges:
        a, b = (_shuffled(ids, scale) for ids in rmat_edges(scale, CHUNK, [0, number]))
        inside = (a < num_nodes) & (b < num_nodes)
        kept, number = kept + int(np.count_nonzero(inside)), number + 1
        yield a[inside].astype(np.int64), b[inside].astype(np.int64)


def _shuffled(ids: np.ndarray, scale: int) -> np.ndarray:
    """A permutation of the ids below `2**scale`, without a table of them."""
    mask = np.uint64((1 << scale) - 1)
    mixed = ids.astype(np.uint64)
    for odd, shift in ((0x9E3779B1, 13), (0x85EBCA6B, 11), (0xC2B2AE35, 15)):
        mixed = mixed * np.uint64(odd) & mask
        mixed ^= mixed >> np.uint64(min(shift, scale - 1))
    return mixed


# -- the command, in a process of its own ------------------------------------------------------


def measured(folder: Path, method: str, num_parts: int) -> tuple[dict, int, int]:
    """The command's result, and its processes' largest private and mapped memory in bytes."""
    out = folder / f"parts-{method}"
    command = [sys.executable, "-m", "benchmarks.partition_large_run", folder, method]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    private = mapped = 0
    try:
        with subprocess.Popen(
            [*map(str, command), str(num_parts), str(out)],
            cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            while process.poll() is None:
                now = _memory(process.pid)
                private, mapped = max(private, now[0]), max(mapped, now[1])
                time.sleep(0.05)
            assert process.stdout is not None
            said = process.stdout.read()
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if process.returncode:
        raise SystemExit(f"{method}: exit status {process.returncode}")
    return json.loads(said.splitlines()[-1]), private, mapped


def _memory(pid: int) -> tuple[int, int]:
    """The bytes of private and of mapped memory of a process and its children."""
    private = mapped = 0
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        sizes = {
            key: value.split() for key, _, value in (line.partition(":") for line in lines)
        }
        private, mapped = (1024 * int(sizes[k][0]) for k in ("RssAnon", "RssFile"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, KeyError):  # the process has just ended
        return private, mapped
    for child in children:
        more = _memory(int(child))
        private, mapped = private + more[0], mapped + more[1]
    return private, mapped


if __name__ == "__main__":
    sys.exit(main())
