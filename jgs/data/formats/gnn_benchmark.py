"""The `.npz` archives of Shchur et al. (2018): Amazon's products, co-authors and citations.

An archive has a CSR matrix of the edges, `adj_data`, `adj_indices`, `adj_indptr` and
`adj_shape`, and one of the features, `attr_data` and so on; and `labels` `[N]`, which may be
missing as the features may. Or the names begin with `adj_matrix.` and `attr_matrix.`. Other
arrays, such as names, are not read. Entry `(i, j)` is an edge from `i` to `j`. Archives list
many edges in one direction only, although the graphs are undirected. They have no splits:
`split=` draws one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.array_files import csr
from jgs.data.dataset import Plain
from jgs.data.splits import SplitRule
from jgs.errors import InputError
from jgs.files.storage import open_npz
from jgs.graph import Graph

_PARTS = ("data", "indices", "indptr", "shape")
_PREFIXES = ("{}_", "{}_matrix.")


def recognises(path: Path) -> bool:
    """Whether it is an archive with such a matrix of edges."""
    if path.suffix != ".npz" or not path.is_file():
        return False
    with open_npz(path) as archive:
        return _prefix("adj", archive) is not None


def read(
    path: Path, *, drawn: SplitRule, symmetric: bool = True, normalize_features: bool = False
) -> Plain:
    """The graph of the archive. `symmetric` adds every edge's reverse and keeps each edge once.
    `normalize_features` makes the rows of the features sum to 1. Raises `InputError`."""
    matrices: dict[str, Any] = {}
    with open_npz(path) as archive:
        for what in ("adj", "attr"):
            prefix = _prefix(what, archive)
            matrices[what] = prefix and [archive[prefix + part] for part in _PARTS]
        labels = archive.get("labels")
    assert matrices["adj"] is not None
    adjacency = csr(f"the edges of {path}", *matrices["adj"])
    weighted = bool((adjacency.data != 1).any())
    graph = Graph.from_scipy(adjacency, weighted, symmetric=symmetric)
    features = matrices["attr"] and csr(f"the features of {path}", *matrices["attr"])
    for what, count in (
        ("rows of features", graph.num_nodes if features is None else features.shape[0]),
        ("labels", graph.num_nodes if labels is None else len(np.atleast_1d(labels))),
    ):
        if count != graph.num_nodes:
            raise InputError(
                f"{path} must have as many {what} as nodes",
                f"{count} for {graph.num_nodes}",
                "Fetch it again.",
            )
    if labels is None:
        return Plain(path.stem, graph)
    splits = drawn.chosen(path.stem, labels)
    return Plain.of_arrays(
        path.stem, graph, features, labels, splits, normalize_features=normalize_features
    )


def _prefix(what: str, archive: Collection[str]) -> str | None:
    prefixes = (prefix.format(what) for prefix in _PREFIXES)
    return next((p for p in prefixes if all(p + part in archive for part in _PARTS)), None)
