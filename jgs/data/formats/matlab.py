"""MATLAB's `.mat` files of a network: BlogCatalog, PPI, Wikipedia's words and others, as
DeepWalk and node2vec have them.

A file has a square matrix `network`, sparse or dense, and perhaps `group` `[N, C]` of 0 and 1,
the labels, of which a node can have several. Other names are given by options. Entry `(i, j)`
is an edge from `i` to `j`: a network is directed or not as it is stored. Entries that are not
all 1 are the weights of edges. Files of version 7.3 are HDF5 and cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from jgs.data.dataset import Plain
from jgs.data.labelled import labelled_plain
from jgs.errors import InputError, refusing
from jgs.graph import Graph
from jgs.graph.formats.tables import require


def recognises(path: Path) -> bool:
    """Whether it is a file that ends in `.mat`."""
    return path.suffix == ".mat" and path.is_file()


def read(
    path: Path,
    *,
    network: str = "network",
    group: str | None = None,
    symmetric: bool = False,
    split: str | None = None,
    stratify: bool = False,
    split_seed: int = 0,
) -> Plain:
    """The graph of the file.

    Args:
      network, group: the names of the two matrices. Without `group` there are labels if the
        file has a matrix of this name.
      symmetric: whether to add every edge's reverse and keep each edge once.
      split, stratify, split_seed: as in `jgs.data.labelled.labelled_plain`.

    Raises `InputError`.
    """
    rule = f"{path} must be a whole MATLAB file of version 4 to 7.2"
    with refusing(Exception, rule, "Save it with -v7."):
        found = scipy.io.loadmat(path)
    found = {name: value for name, value in found.items() if not name.startswith("__")}
    remedy = "Name the matrix of edges, --data-options network=NAME, and of labels, group=NAME."
    require(str(path), found, [network, *([] if group is None else [group])], remedy)
    adjacency = _matrix(path, network, found[network]).tocoo()
    weighted = bool((adjacency.data != 1).any())
    graph = Graph.from_scipy(adjacency, weighted, symmetric=symmetric)
    marks = found.get(group or "group")
    if marks is None:
        return Plain(path.stem, graph, None, None, None)
    labels = _matrix(path, group or "group", marks)
    if labels.shape[0] != graph.num_nodes or not np.isin(labels.data, (0, 1)).all():
        raise InputError(
            f"{group or 'group'} in {path} must be 0 or 1, a row for each node",
            f"shape {list(labels.shape)} for {graph.num_nodes} nodes, and values to "
            f"{labels.data.max(initial=0)}",
            "Correct it, or name another matrix by group=NAME.",
        )
    return labelled_plain(
        *(path.stem, graph, None, labels.toarray().astype(np.float32)),
        split=0 if split is None else split,
        stratify=stratify,
        split_seed=split_seed,
    )


def _matrix(path: Path, name: str, value: Any) -> Any:
    if getattr(value, "ndim", 0) != 2 or value.dtype.kind not in "fiub":
        raise InputError(
            f"{name} in {path} must be a matrix of numbers",
            f"{getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', ())}",
            "Name another one.",
        )
    return scipy.sparse.csr_array(value)
