"""`load_plain`: a graph, for which features, labels and a split are optional."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.data import LOADERS, load, path_of
from jgs.data.edges import simple_symmetric_graph
from jgs.data.formats.snap import is_edge_list, read_edges
from jgs.data.formats.typed import is_typed
from jgs.data.values import as_labels
from jgs.errors import InputError
from jgs.files import storage
from jgs.graph import Graph, NodeIds


class Plain(NamedTuple):
    """A graph with optional labels, split and features.

    Fields:
      name: the name in messages and run folders.
      graph: `Graph` of `N` nodes.
      labels: NumPy int32 `[N]`, -1 for none, or float32 `[N, C]` of 0 and 1; or None.
      train_idx, test_idx: NumPy int32, disjoint sets of nodes with labels; or None.
      features: `[N, F]` as those of a `jgs.data.Dataset`, or None.
      node_ids: the names of the nodes, as in a `jgs.data.Dataset`, or None.
    """

    name: str
    graph: Graph
    labels: np.ndarray | None
    train_idx: np.ndarray | None
    test_idx: np.ndarray | None
    features: Any = None
    node_ids: NodeIds | None = None


def load_plain(name: str | os.PathLike, root: str | os.PathLike, **options: Any) -> Plain:
    """The graph of the data set `name`, with its labels and its split if it has them.

    It may be any data set of `jgs.data.load`. Here it may also be an `.npz` archive as in
    `jgs.data.formats.npz` without features or without a split, or an edge list without arrays
    beside it, whose edges then all go both ways, once. Raises `InputError`.
    """
    path = None if os.fspath(name) in LOADERS else path_of(os.fspath(name), Path(root))
    if path is not None and not options:
        if path.suffix == ".npz" and path.is_file() and not is_typed(path):
            with storage.open_npz(path) as archive:
                complete = {"train_idx", "test_idx", "val_idx", "labels"} <= set(archive)
                labels = archive["labels"] if "labels" in archive and not complete else None
            if not complete:
                graph = Graph.from_npz(path)
                return Plain(path.stem, graph, _labels(path, labels, graph), None, None)
        elif is_edge_list(path) and not (path.parent / "labels.npy").exists():
            name = path.name.removeprefix("out.").partition(".")[0]
            return Plain(name, _edge_list(path), None, None, None)
    data = load(name, root, **options)
    split = data.train_idx, data.test_idx
    return Plain(data.name, data.graph, data.labels, *split, data.features, data.node_ids)


def _labels(path: Path, labels: np.ndarray | None, graph: Graph) -> np.ndarray | None:
    if labels is None:
        return None
    labels = as_labels(path.stem, labels)
    if len(labels) != graph.num_nodes:
        raise InputError(
            f"{path} must have a label for every node",
            f"{len(labels)} labels for {graph.num_nodes} nodes",
            "Correct it, or leave the labels out.",
        )
    if labels.ndim == 2 and not ((labels == 0) | (labels == 1)).all():
        raise InputError(
            f"labels [N, C] in {path} must be 0 or 1", "another value", "Correct them."
        )
    return labels


def _edge_list(path: Path) -> Graph:
    rows = [*read_edges(path)]
    edges = np.concatenate(rows) if rows else np.empty((0, 2), np.int64)
    if edges.size == 0 or edges.min() < 0 or edges.max() >= 2**31 - 1:
        raise InputError(
            f"{path} must have edges between nodes numbered from 0",
            "no edge" if edges.size == 0 else f"{edges.min()} to {edges.max()}",
            "Renumber the nodes.",
        )
    return simple_symmetric_graph(edges[:, 0], edges[:, 1], int(edges.max()) + 1)
