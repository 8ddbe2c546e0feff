"""A `Graph` made of edges whose rows are sorted by source: in memory, or of a stream of edges
in bounded memory. Formats that are parsed once have such graphs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from jgs.arrays import check_range
from jgs.data.building.plan import graph_files
from jgs.data.building.shards import open_shards
from jgs.data.building.spreading import Relation, layout_of
from jgs.data.building.table_pieces import Columns
from jgs.data.building.work import Work
from jgs.files.npy import map_npy
from jgs.graph import Graph
from jgs.graph.rows import row_offsets

_MEMORY = 1536  # MiB, as `jgs.data.build` counts it

Edges = Iterable[tuple[np.ndarray, np.ndarray]]


def simple_symmetric_graph(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Graph:
    """The graph of the edges in both directions, each once, without self-loops, in memory."""
    ((src, dst),) = _checked([(src, dst)], num_nodes, "the edges", loops=False)
    src, dst = src.astype(np.int64), dst.astype(np.int64)
    keys = np.sort(np.concatenate([dst << 32 | src, src << 32 | dst]))
    new = np.ones(keys.size, bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    keys = keys[new]
    indptr = row_offsets(np.bincount(keys >> 32, minlength=num_nodes))
    return Graph(indptr, (keys & 0xFFFFFFFF).astype(np.int32))


def build_graph(
    chunks: Edges, num_nodes: int, workspace: Path, *, symmetric: bool, what: str
) -> Graph:
    """The graph of a stream of edges, which may be larger than memory.

    Args:
      chunks: pairs of integer arrays, sources and targets, in `[0, num_nodes)`.
      workspace: an existing folder for files. The returned graph is memory-mapped there: save
        it, then remove the folder.
      symmetric: True adds every edge's reverse, keeps each edge once and drops self-loops.
        False keeps the edges as they are, with parallel edges and self-loops.
      what: the origin of the edges, for error messages.

    The sources in each row are in increasing order. Raises `InputError` for ids out of range.
    """
    work = Work(workspace)
    work.begin({})
    shards = open_shards(_checked(chunks, num_nodes, what, not symmetric), Columns(), None)
    nodes = range(num_nodes)
    relations = [Relation("", None, nodes, nodes, shards)]
    layout = layout_of(relations, edge_order=False, node_time=None)
    files = graph_files(work, relations, layout, num_nodes, _MEMORY, symmetric, sort_rows=True)
    return Graph(*(map_npy(files[name].path) for name in ("indptr", "indices")))


def save_graph(
    target: Path, chunks: Edges, num_nodes: int, *, symmetric: bool, what: str
) -> None:
    """Saves the graph of `build_graph` as `<target>/graph`."""
    workspace = target / "workspace"
    workspace.mkdir()
    graph = build_graph(chunks, num_nodes, workspace, symmetric=symmetric, what=what)
    graph.save(target / "graph")
    shutil.rmtree(workspace)


def _checked(
    chunks: Edges, num_nodes: int, what: str, loops: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    remedy = "Renumber the nodes from 0, or give every node its features and label."
    for src, dst in chunks:
        for ids in (src, dst):
            check_range(f"{what} must name nodes", ids, num_nodes, remedy)
        if not loops:
            kept = src != dst
            src, dst = src[kept], dst[kept]
        yield src, dst
