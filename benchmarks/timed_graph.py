"""The times of the edges of the benchmarks' graph, and the cutoffs of its seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import graph, worker

SPAN = 10**9  # times are uniform below it


def cached(cache: Path, size: graph.Size) -> Path:
    """A file with int64 `[E]`, the times of the edges, ascending in each row."""
    path = cache / f"{size.name}-times.npy"
    if not path.is_file():
        indptr = np.load(graph.cached(cache, size) / "indptr.npy", mmap_mode="r")
        row = np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
        times = worker.mixed(np.arange(row.size, dtype=np.uint64)) % np.uint64(SPAN)
        key = row * SPAN + times.astype(np.int64)
        key.sort()
        np.save(path, key - row * SPAN)
    return path
