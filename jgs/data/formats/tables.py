"""A folder with two tables: `edges` and `nodes`, each `.parquet`, `.csv` or `.csv.gz`.

`edges` has one edge a row, with the columns `src` and `dst` and, optionally, `edge_weight`. Its
other columns become edge columns. `nodes` has one node a row:
  `id`: distinct integers or text, as in `src` and `dst`. Row `i` is node `i` of the graph.
      Where one table has text and the other integers, they are compared as text (`NodeIds`).
  `label`: integers from 0, or text; -1 or empty for none.
  `split`: `train`, `val` or `test`; empty for none.
  all other columns, in order: the features; numbers, or equally long lists of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.data.dataset import Dataset
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds
from jgs.graph.checks import refuse_words
from jgs.graph.formats.tables import ENDINGS, read_columns, require

_SPECIAL = ("id", "label", "split")  # columns of `nodes` that are not features


def is_tables(folder: Path) -> bool:
    """Whether `folder` has at least one of the two tables."""
    return any((folder / f"{name}{e}").exists() for name in ("edges", "nodes") for e in ENDINGS)


def load_folder(
    folder: Path, *, symmetric: bool = False, normalize_features: bool = False
) -> Dataset:
    """The data set of the tables in `folder`. It has `node_ids`, and `class_names` if labels
    are text.

    `symmetric` adds every edge's reverse and keeps each edge once. `normalize_features` makes
    the rows of the features sum to 1. Raises `InputError`.
    """
    path, edges = _table(folder, "nodes"), _table(folder, "edges")
    nodes = read_columns(path)
    require(str(path), nodes, _SPECIAL)
    ids = NodeIds(nodes["id"])
    return Dataset.from_arrays(
        Graph.from_table(edges, ids=ids, symmetric=symmetric),
        _features(path, {name: nodes[name] for name in nodes if name not in _SPECIAL}),
        nodes["label"],
        nodes["split"],
        name=folder.resolve().name,
        node_ids=ids,
        normalize_features=normalize_features,
    )


def _table(folder: Path, name: str) -> Path:
    found = [folder / f"{name}{end}" for end in ENDINGS if (folder / f"{name}{end}").is_file()]
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one table {name}.parquet or {name}.csv",
            f"{len(found)} of them",
            "Put it there, or remove those too many.",
        )
    return found[0]


def _features(path: Path, columns: dict[str, np.ndarray]) -> np.ndarray:
    if not columns:
        raise InputError(
            f"{path} must have columns of features beside {', '.join(_SPECIAL)}",
            "none",
            "Add them; a column of ones will do.",
        )
    for name, column in columns.items():
        refuse_words(
            f"the feature column {name!r} in {path}",
            column,
            "Delete it, or write numbers in its place: for words a column of 0 and 1 for each, "
            "as pandas.get_dummies does.",
        )
        if column.dtype.kind not in "fiub" or column.ndim > 2:
            raise InputError(
                f"the feature column {name!r} in {path} must be numbers",
                f"{column.dtype}{list(column.shape)}",
                "Convert or remove it.",
            )
    return np.column_stack([column.astype(np.float32) for column in columns.values()])
