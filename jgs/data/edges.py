"""A `Graph` made of a stream of edges in bounded memory, by an external sort.

An edge is one 64-bit key with the target in the upper half and the source in the lower, so
sorted keys are a CSC graph. Runs of keys are sorted in memory and written to disk. The range of
keys is then divided into pieces of about the size of a run. Each piece is gathered from all
runs, sorted, and appended to `indices`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jgs.graph import Graph
from jgs.graph.checks import check_range
from jgs.graph.rows import row_offsets

_SAMPLE = 1 << 10  # the step between keys that are sampled to choose the pieces


def simple_symmetric_graph(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Graph:
    """The graph of the edges in both directions, each once, without self-loops, in memory."""
    keys = np.sort(_keys(src, dst, num_nodes, symmetric=True, what="the edges"))
    keys = _distinct(keys)
    return Graph(row_offsets(np.bincount(keys >> 32, minlength=num_nodes)), _sources(keys))


def build_graph(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    num_nodes: int,
    workspace: Path,
    *,
    symmetric: bool,
    what: str,
    run: int = 1 << 25,
) -> Graph:
    """The graph of a stream of edges, which may be larger than memory.

    Args:
      chunks: pairs of integer arrays, sources and targets, in `[0, num_nodes)`.
      workspace: an existing folder for the runs and for `indices`. The returned graph is
        memory-mapped there: save it, then remove the folder.
      symmetric: True adds every edge's reverse, keeps each edge once and drops self-loops.
        False keeps the edges as they are, with parallel edges and self-loops.
      what: the origin of the edges, for error messages.
      run: int, the number of keys that are sorted at once (8 bytes each, a few times over).

    The sources in each row are in increasing order. Raises `InputError` for ids out of range.
    """
    runs: list[np.ndarray] = []
    held: list[np.ndarray] = []

    def write_run() -> None:
        keys = np.sort(np.concatenate(held))
        held.clear()
        path = workspace / f"run{len(runs)}.npy"
        np.save(path, _distinct(keys) if symmetric else keys)
        runs.append(np.load(path, mmap_mode="r"))

    for src, dst in chunks:
        keys = _keys(src, dst, num_nodes, symmetric=symmetric, what=what)
        if keys.size:
            held.append(keys)
        if sum(k.size for k in held) >= run:
            write_run()
    if held:
        write_run()

    degree = np.zeros(num_nodes, np.int64)
    path = workspace / "indices.bin"
    with open(path, "wb") as file:
        for keys in _pieces(runs, run):
            keys = _distinct(keys) if symmetric else keys
            first = int(keys[0] >> 32)
            count = np.bincount((keys >> 32) - first)
            degree[first : first + count.size] += count
            _sources(keys).tofile(file)
    empty = path.stat().st_size == 0  # an empty file cannot be mapped
    indices = np.empty(0, np.int32) if empty else np.memmap(path, np.int32, "r")
    return Graph(row_offsets(degree), indices)


def save_graph(
    target: Path,
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    num_nodes: int,
    *,
    symmetric: bool,
    what: str,
) -> None:
    """Saves the graph of `build_graph` as `<target>/graph`."""
    workspace = target / "workspace"
    workspace.mkdir()
    graph = build_graph(chunks, num_nodes, workspace, symmetric=symmetric, what=what)
    graph.save(target / "graph")
    shutil.rmtree(workspace)


def _pieces(runs: list[np.ndarray], run: int) -> Iterable[np.ndarray]:
    """All keys, sorted, about `run` at a time; equal keys are always in one piece."""
    if not runs:
        return
    sample = np.sort(np.concatenate([keys[::_SAMPLE] for keys in runs]))
    cuts = sample[:: max(1, run // _SAMPLE)][1:]
    start = [0] * len(runs)
    for cut in [*np.unique(cuts), None]:
        stop = [k.size if cut is None else int(np.searchsorted(k, cut)) for k in runs]
        parts = [k[a:b] for k, a, b in zip(runs, start, stop, strict=True)]
        start = stop
        keys = np.sort(np.concatenate(parts))
        if keys.size:
            yield keys


def _keys(src, dst, num_nodes: int, *, symmetric: bool, what: str) -> np.ndarray:
    remedy = "Renumber the nodes from 0, or give every node its features and label."
    for ids in (src, dst):
        check_range(f"{what} must name nodes", ids, num_nodes, remedy)
    src, dst = src.astype(np.int64), dst.astype(np.int64)
    if not symmetric:
        return dst << 32 | src
    no_loop = src != dst
    src, dst = src[no_loop], dst[no_loop]
    return np.concatenate([dst << 32 | src, src << 32 | dst])


def _sources(keys: np.ndarray) -> np.ndarray:
    return (keys & 0xFFFFFFFF).astype(np.int32)


def _distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct keys of sorted `keys`."""
    new = np.ones(keys.size, bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys[new]
