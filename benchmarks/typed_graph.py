"""The typed graph that typed sampling and training are measured on.

It is the graph of `graph.py` with one node type, `node`, and the relations `r0`, `r1`, ...
The relation of an edge is `relation_of(source, target)`, a hash of the two ids. So parallel
edges are of one relation, and nearly every node of high degree has edges of all relations. A
row is sorted by relation, then by source, as jgs, GraphBolt and DGL's `sample_etype_neighbors`
want it. DGL's heterographs have a CSC for each relation, written once for all its processes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks import graph, worker

_PART = 1 << 24  # edges handled at once, to bound the temporaries
# A key has the bits of a source and a relation, and of the row's number within its chunk.
_SOURCE_BITS, _RELATION_BITS = np.uint64(31), np.uint64(8)


def relation_of(source: np.ndarray, target: np.ndarray, num_relations: int) -> np.ndarray:
    """int16: `splitmix64(source * 2**32 + target) >> 33`, modulo the number of relations."""
    ends = source.astype(np.uint64) << np.uint64(32) | target.astype(np.uint64)
    return ((worker.mixed(ends) >> np.uint64(33)) % np.uint64(num_relations)).astype(np.int16)


def typed(
    indptr: np.ndarray, indices: np.ndarray, num_relations: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sources int32 `[E]` and relations int16 `[E]` of the edges, with each row sorted by
    both: by relation first."""
    sources = np.empty(indices.size, np.int32)
    types = np.empty(indices.size, np.int16)
    for first, last in chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[last])
        target = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        source = np.asarray(indices[begin:end])
        relation = relation_of(source, target, num_relations)
        key = (target - first).astype(np.uint64) << _RELATION_BITS | relation.astype(np.uint64)
        key = key << _SOURCE_BITS | source.astype(np.uint64)
        key.sort()
        sources[begin:end] = key & (np.uint64(1) << _SOURCE_BITS) - np.uint64(1)
        types[begin:end] = key >> _SOURCE_BITS & (np.uint64(1) << _RELATION_BITS) - np.uint64(1)
    return sources, types


def by_relation(
    indptr: np.ndarray, indices: np.ndarray, types: np.ndarray, num_relations: int
) -> tuple[np.ndarray, np.ndarray]:
    """A CSC for each relation: where its rows begin, int64 `[R, N + 1]`, in the sources int32
    `[E]`, which are sorted by relation, target and source. Positions count within a relation.
    """
    num_nodes = indptr.size - 1
    rows = np.zeros((num_relations, num_nodes + 1), np.int64)
    for first, last in chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[last])
        row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        key = types[begin:end].astype(np.int64) * (last - first) + row
        count = np.bincount(key, minlength=num_relations * (last - first))
        rows[:, first + 1 : last + 1] = count.reshape(num_relations, -1)
    np.cumsum(rows, axis=1, out=rows)
    sources = np.empty(indices.size, np.int32)
    at = np.concatenate([[0], np.cumsum(rows[:, -1])])[:-1]
    for begin in range(0, indices.size, _PART):
        some = types[begin : begin + _PART]
        order = np.argsort(some, kind="stable")
        count = np.bincount(some, minlength=num_relations)
        for relation, of in enumerate(np.split(order, np.cumsum(count)[:-1])):
            sources[at[relation] : at[relation] + of.size] = indices[begin + of]
        at = at + count
    return rows, sources


def chunks(indptr: np.ndarray, part: int | None = None) -> list[tuple[int, int]]:
    """Ranges of rows with about `part` edges each (None: `_PART`), or one row."""
    part = part or _PART
    bounds = np.searchsorted(indptr, np.arange(0, int(indptr[-1]), part), "right") - 1
    ends = np.unique([*bounds, indptr.size - 1])
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))


def cached(cache: Path, size: graph.Size, num_relations: int) -> Path:
    """The folder of this graph, written by `jgs.Graph.save` when missing. The folder beside it,
    `<name>-csc`, has the arrays of `by_relation`: `indptr.npy` and `indices.npy`."""
    folder = cache / f"{size.name}-typed-{num_relations}"
    beside = folder.with_name(f"{folder.name}-csc")
    if not (folder / "manifest.json").is_file():
        from jgs.graph import Graph, Schema  # the functions above need NumPy only

        plain = graph.cached(cache, size)
        indptr, indices = (
            np.load(plain / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")
        )
        sources, types = typed(indptr, indices, num_relations)
        relations = tuple(("node", f"r{i}", "node") for i in range(num_relations))
        schema = Schema((("node", indptr.size - 1),), relations)
        Graph(indptr, sources, edge_type=types, schema=schema).save(folder)
    if not (beside / "indices.npy").is_file():
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        arrays = (worker.array(str(folder), n) for n in ("indptr", "indices", "edge_type"))
        rows, sources = by_relation(*arrays, num_relations)
        np.save(beside / "indptr.npy", rows)
        np.save(beside / "indices.npy", sources)
    return folder
