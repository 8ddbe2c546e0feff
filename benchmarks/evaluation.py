"""Exact evaluation of all nodes from features on disk, in a tenth of the rows' memory.

    python -m benchmarks.evaluation [--model sage] [--scale 21 --edges 62000000] [--share 0.1]
        [--folder DIR]

Three layers of 128 units, then 32 classes, on an RMAT graph with 128 float32 features. The rows
of all layers lie in files that do not fit into the memory; they are read past the page cache.
Prints, for each file, how often each of its rows was read, and the seconds beside those in
which this disk reads the same bytes one after the other. Then the same evaluation with
memory-mapped rows, which all lie in the page cache here; both results are compared.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import graph, inputs
from benchmarks.disk import speeds

WIDTH, CLASSES = 128, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", choices=("sage", "gcn", "gat"), default="sage")
    add("--scale", type=int, default=21, help="2**scale nodes")
    add("--edges", type=int, default=62_000_000, help="undirected ones")
    add("--share", type=float, default=0.1, help="of the rows' bytes, which is the memory")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()) / "jgs-evaluation")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    size = graph.Size(given.scale, given.edges)
    folder = graph.cached(given.folder, size)
    path = inputs.features(given.folder, size, WIDTH, CLASSES) / "features.npy"
    rate, _ = speeds(path)
    read = counted_reads()
    memory = int(given.share * path.stat().st_size)
    print(f"{given.model}, {graph.describe(folder)}, {memory >> 20} MiB of memory")
    rows, seconds = evaluated(given, folder, path, memory, mapped=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [(f["shape"][1], round(f["rows"] / f["shape"][0], 1)) for f in read]
    for (columns, each), parts in itertools.groupby(times):
        print(f"  {len(list(parts))} x {columns} columns: each row read {each} times")
    total, requests = (sum(file[what] for file in read) for what in ("bytes", "requests"))
    print(
        f"{total / 1e9:.1f} GB in {requests:,} requests, "
        f"{total / path.stat().st_size:.1f} times the features; {seconds:.1f} s, of which "
        f"{total / rate:.1f} s are the reading in order at {rate / 1e9:.2f} GB/s; "
        f"peak {peak / 1e6:.2f} GB"
    )
    mapped, seconds = evaluated(given, folder, path, memory, mapped=True)
    print(f"memory-mapped, in the page cache: {seconds:.1f} s; the largest difference is "
          f"{np.abs(rows - mapped).max():.1e} of {np.abs(rows).max():.1e}")  # fmt: skip


def counted_reads() -> list[dict[str, Any]]:
    """A list that from now on has a record for each file, or part of one: its shape, and how
    many rows were asked for, in how many requests and bytes. Records keep no files open."""
    from jgs.files.row_file import RowFiles

    plain, found = RowFiles.read, []

    def counting(self: Any, rows: np.ndarray, out: np.ndarray) -> None:
        if not hasattr(self, "record"):
            self.record = {"shape": self.shape, "rows": 0}
            found.append(self.record)
        plain(self, rows, out)
        self.record["rows"] += len(rows)
        self.record |= {"requests": self.requests, "bytes": self.bytes}

    RowFiles.read = counting  # type: ignore[method-assign]
    return found


def evaluated(
    given: argparse.Namespace, folder: Path, path: Path, memory: int, mapped: bool
) -> tuple[np.ndarray, float]:
    """The outputs of all nodes, and the seconds, with compiling. `mapped`: whether files are
    memory-mapped."""
    from flax import nnx

    import jgs
    from jgs.models import GAT, GCN, GraphSAGE
    from jgs.train import exact_inference
    from jgs.train.evaluation import exact

    exact.mapped_at_most = lambda memory: 1 << 60 if mapped else memory
    own = jgs.Graph.open(folder, verify=False).unweighted()
    kind = {"sage": GraphSAGE, "gcn": GCN, "gat": GAT}[given.model]
    model = kind(WIDTH, WIDTH, CLASSES, 3, rngs=nnx.Rngs(0))
    features = np.load(path, mmap_mode="r")
    infer = exact_inference(model, own, features, memory, given.folder)
    begun = time.perf_counter()
    rows = infer(nnx.state(model), np.arange(own.num_nodes))
    return rows, time.perf_counter() - begun


if __name__ == "__main__":
    main()
