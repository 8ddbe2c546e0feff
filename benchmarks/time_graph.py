"""The graph with times that sampling under cutoffs is measured on, and its seeds' cutoffs.

It is the graph of `graph.py`, each of whose edges has a random time from 0 to `SPAN - 1`, with
rows sorted by time. The times are small enough to be exact as the float32 of TGL. The functions
need NumPy only, so that peers use them too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import graph, typed_graph, worker

SPAN = 1 << 24  # an edge's time is below
_BATCH = 256  # how long a batch lasts whose cutoffs are in order: about 1,900 of all edges
_PART = 1 << 22  # edges sorted at once: the rows of so many fit into what a key leaves for them
_TIME_BITS, _SOURCE_BITS = np.uint64(24), np.uint64(21)


def by_time(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sources int32 `[E]` and times int64 `[E]` of the edges, each row sorted by time."""
    rng = np.random.default_rng(3)
    sources, times = np.empty(indices.size, np.int32), np.empty(indices.size, np.int64)
    low = [np.uint64((1 << int(bits)) - 1) for bits in (_TIME_BITS, _SOURCE_BITS)]
    for first, last in typed_graph.chunks(indptr, _PART):
        begin, end = int(indptr[first]), int(indptr[last])
        row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        time = rng.integers(0, SPAN, end - begin, dtype=np.uint64)
        key = (row.astype(np.uint64) << _TIME_BITS | time) << _SOURCE_BITS
        key |= np.asarray(indices[begin:end]).astype(np.uint64)
        key.sort()
        sources[begin:end] = key & low[1]
        times[begin:end] = key >> _SOURCE_BITS & low[0]
    return sources, times


def cached(cache: Path, size: graph.Size) -> Path:
    """The folder of this graph, written by `jgs.Graph.save` when missing."""
    folder = cache / f"{size.name}-times"
    if not (folder / "manifest.json").is_file():
        from jgs.graph import Graph

        plain = str(graph.cached(cache, size))
        indptr = worker.array(plain, "indptr")
        sources, times = by_time(indptr, worker.array(plain, "indices"))
        Graph(indptr, sources, edge_time=times).save(folder)
    return folder


def cutoffs(setting: dict) -> np.ndarray:
    """int64 `[iterations, batch]`: the cutoffs of the seeds of each batch.

    `order` in the setting says which: `random` ones; those of events `in order`, from the
    middle of the span, so that a batch's are near each other and before those of the next; or
    `after` all edges.
    """
    shape = setting["iterations"], setting["batch"]
    rng = np.random.default_rng(7)
    if setting["order"] == "random":
        return rng.integers(0, SPAN, shape)
    if setting["order"] == "in order":
        begins = SPAN // 2 + _BATCH * np.arange(shape[0])
        return begins[:, None] + np.sort(rng.integers(0, _BATCH, shape), axis=1)
    return np.full(shape, SPAN)


def eligible(folder: str, seeds: np.ndarray, until: np.ndarray) -> np.ndarray:
    """int64, the shape of `seeds`: how many edges of each row are before its cutoff."""
    indptr, times = (worker.array(folder, name) for name in ("indptr", "edge_time"))
    ends = zip(indptr[seeds.ravel()], indptr[seeds.ravel() + 1], until.ravel(), strict=True)
    return np.array([np.searchsorted(times[a:b], t) for a, b, t in ends]).reshape(seeds.shape)


def late(
    setting: dict, edges: np.ndarray, target: np.ndarray, until: np.ndarray, since: int = SPAN
) -> int:
    """How many of the edges, given by their positions in the graph, break the law.

    An edge must be of its target's row, before its target's cutoff, and not more than `since`
    before it.
    """
    indptr, times = (worker.array(setting["graph"], name) for name in ("indptr", "edge_time"))
    row = (indptr[target] <= edges) & (edges < indptr[target + 1])
    kept = (times[edges] < until) & (times[edges] >= until - since)
    return int((~(row & kept)).sum())


def result(setting: dict, ms: list[float], found: list[tuple[list[int], int, int]]) -> dict:
    """A setting's result. `found` has of each draw the edges of its hops, its nodes, and how
    many of its edges are late."""
    hops, nodes, late = zip(*found, strict=True)
    return {
        "name": setting["name"],
        "ms": ms,
        "hops": np.mean(hops, axis=0).tolist(),
        "nodes": float(np.mean(nodes)),
        "late": sum(late),
    }
