"""Folders of Geom-GCN (Pei et al., 2020): Texas, Cornell, Wisconsin, Chameleon, Squirrel,
Actor.

`out1_node_feature_label.txt` has a title and then a line for each node: its id, its features
and its label, with tabs between. Features are a number for each column, with commas between;
or, in Actor (`film`), the columns that are 1. `out1_graph_edges.txt` has a title and then an
edge a line. `*_split_*_<number>.npz`, in the folder or in `splits/` below it, have
`train_mask`, `val_mask` and `test_mask`. The graph is directed as it is listed. Ids are `0` to
`N - 1`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.splits import SplitChoice
from jgs.data.text import read_lines, read_table
from jgs.data.values import SPLITS
from jgs.errors import InputError, check_choice, refusing
from jgs.files.storage import open_npz
from jgs.graph import Graph

_NODES, _EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
_SPLIT = re.compile(r".*_split_.*?(\d+)\.npz")


def recognises(path: Path) -> bool:
    """Whether it is a folder with both files."""
    return (path / _NODES).is_file() and (path / _EDGES).is_file()


def read(
    path: Path,
    *,
    features: str | None = None,
    drawn: SplitChoice,
    symmetric: bool = False,
    normalize_features: bool = False,
) -> Plain:
    """The graph of the files in the folder.

    Args:
      features: "values" of all columns, or the "columns" that are 1; None: values where lines
        have equally many of them and all are 0 or 1 or one has a point, columns where they have
        not. Other files are refused without it.
      symmetric: whether to add every edge's reverse and keep each edge once.
      drawn: the split of nodes.
      normalize_features: whether to make the rows of the features sum to 1.

    Raises `InputError`.
    """
    file = path / _NODES
    lines = [line.split("\t") for line in read_lines(file)[1:]]
    wrong = next((i for i, line in enumerate(lines) if len(line) != 3), None)
    if wrong is not None or not lines:
        raise InputError(
            f"every line of {file} must be an id, features and a label, with tabs between",
            "no line" if wrong is None else f"{len(lines[wrong])} columns in row {wrong}",
            "Fetch it again.",
        )
    ids = _numbers(file, [line[0] for line in lines], int)
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise InputError(
            f"the ids in {file} must be 0 to {len(ids) - 1}, each once",
            f"{ids.min()} to {ids.max()}",
            "Fetch it again.",
        )
    order = np.argsort(ids)
    rows = _features(file, [lines[i][1].split(",") for i in order], features)
    labels = _numbers(file, [lines[i][2] for i in order], int)
    edges = read_table(path / _EDGES, np.int64, delimiter=None, columns=2, skip=1)
    src, dst = np.ascontiguousarray(edges.T)
    graph = Graph.from_edges(src, dst, len(ids), symmetric=symmetric)
    name = path.resolve().name
    splits = drawn.chosen(name, labels, _splits(path))
    return Plain.of_arrays(
        name, graph, rows, labels, splits, normalize_features=normalize_features
    )


def _numbers(file: Path, texts: list[str], dtype: type) -> np.ndarray:
    errors = ValueError, OverflowError
    with refusing(errors, f"{file} must have numbers", "Fetch it again."):
        return np.array([dtype(text) for text in texts], dtype)


def _features(file: Path, fields: list[list[str]], kind: str | None) -> np.ndarray:
    widths = {len(row) for row in fields}
    flat = _numbers(file, [text for row in fields for text in row], float)
    if kind is None:
        values = np.isin(flat, (0, 1)).all() or (flat != np.floor(flat)).any()
        kind = "columns" if len(widths) > 1 else "values" if values else None
    if kind is None:
        raise InputError(
            f"{file} must say whether features are values, or the columns that are 1",
            f"{', '.join(fields[0][:4])} in the first row",
            "Give --data-options features=values or features=columns.",
        )
    check_choice("the option features", kind, ("values", "columns"))
    if kind == "values":
        if len(widths) > 1:
            raise InputError(
                f"the rows of {file} must have equally many features",
                f"{min(widths)} and {max(widths)}",
                "Give features=columns, or fetch it again.",
            )
        return flat.reshape(len(fields), -1).astype(np.float32)
    if flat.min() < 0 or flat.max() >= 1 << 24 or (flat != np.floor(flat)).any():
        raise InputError(
            f"the columns in {file} must be whole numbers from 0",
            f"{flat.min():g} to {flat.max():g}",
            "Give features=values, or fetch it again.",
        )
    at = np.repeat(np.arange(len(fields)), [len(row) for row in fields])
    rows = np.zeros((len(fields), int(flat.max()) + 1), np.float32)
    rows[at, flat.astype(int)] = 1
    return rows


def _splits(path: Path) -> list[dict[str, np.ndarray]]:
    found = {}
    for folder in (path, path / "splits"):
        for file in folder.glob("*_split_*.npz") if folder.is_dir() else ():
            match = _SPLIT.fullmatch(file.name)
            if match:
                found[int(match.group(1))] = file
    splits = []
    for _, file in sorted(found.items()):
        with open_npz(file) as masks:
            splits.append({part: masks[f"{part}_mask"] for part in SPLITS})
    return splits
