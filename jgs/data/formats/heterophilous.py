"""The heterophilous graphs in `.npz` archives: Roman-empire, Amazon-ratings, Minesweeper,
Tolokers and Questions (Platonov et al., 2023).

An archive has `edges` integer `[E, 2]`, `node_features` `[N, F]`, `node_labels` `[N]`, and
`train_masks`, `val_masks` and `test_masks` `[S, N]`, which are `S` splits. The graphs are
undirected, and an archive lists each edge once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.arrays import require_array
from jgs.data.dataset import Plain
from jgs.data.splits import SplitChoice
from jgs.data.values import SPLITS
from jgs.errors import InputError
from jgs.files.storage import open_npz
from jgs.graph import Graph

_ARRAYS = ("edges", "node_features", "node_labels")
_MASKS = tuple(f"{split}_masks" for split in SPLITS)


def recognises(path: Path) -> bool:
    """Whether it is an archive with these arrays."""
    if path.suffix != ".npz" or not path.is_file():
        return False
    with open_npz(path) as archive:
        return set(_ARRAYS) <= set(archive)


def read(
    path: Path, *, drawn: SplitChoice, symmetric: bool = True, normalize_features: bool = False
) -> Plain:
    """The graph of the archive. `symmetric` adds every edge's reverse and keeps each edge once.
    `normalize_features` makes the rows of the features sum to 1. Raises `InputError`."""
    with open_npz(path) as archive:
        edges, features, labels = (archive[name] for name in _ARRAYS)
        labels = np.atleast_1d(labels)
        masks = [archive[name] for name in _MASKS] if set(_MASKS) <= set(archive) else []
    require_array(f"edges in {path}", edges, "[E, 2]", "Transpose it.")
    shapes = {mask.shape for mask in masks}
    if len(shapes) > 1 or any(len(s) != 2 or s[1] != len(labels) for s in shapes):
        raise InputError(
            f"the masks in {path} must be [S, N], of the same number of splits each",
            f"{', '.join(str(list(s)) for s in sorted(shapes))} for {len(labels)} nodes",
            "Fetch the archive again.",
        )
    splits = [dict(zip(SPLITS, each, strict=True)) for each in zip(*masks, strict=True)]
    graph = Graph.from_edges(
        np.ascontiguousarray(edges[:, 0]),
        np.ascontiguousarray(edges[:, 1]),
        len(labels),
        symmetric=symmetric,
    )
    chosen = drawn.chosen(path.stem, labels, splits)
    return Plain.of_arrays(
        path.stem, graph, features, labels, chosen, normalize_features=normalize_features
    )
