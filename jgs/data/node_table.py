"""A table of the nodes of one type, and the features in it. One row is one node; its columns:

  `id`: distinct integers or text (`jgs.NodeIds`). Row `i` is the `i`-th node of the type.
  `label`: optional; integers from 0, or text; -1 or empty for none.
  `split`: optional; `train`, `val` or `test`; empty for none.
  `time`: optional; the node exists from then on. Whole numbers, or dates (`jgs.data.times`).
  all other columns, in order: the features, float32.

A column of numbers, or of equally long lists of numbers, is taken as it is; true is 1 and false
is 0. A column of text has categories: it becomes a column of 0 and 1 for each text in it, in
alphabetical order. A column with more than `max_categories` different texts is refused.

The rule for what is missing (empty, null or NaN) is one for all: it becomes 0, in numbers and
in every category, and one more column, behind those of the column itself, is 1 where it was
missing and 0 elsewhere. A linear layer thereby learns what a missing value stands for. Only a
column with something missing has this one more. Lists must be whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.data.values import is_missing
from jgs.errors import InputError
from jgs.graph import NodeIds
from jgs.graph.checks import refuse_where, refuse_words
from jgs.graph.formats.tables import read_arrow, read_columns, require

SPECIAL = ("id", "label", "split", "time")
_REMEDY = "Delete it, or write numbers in its place."


class NodeTable(NamedTuple):
    """The nodes of a table.

    Fields (`n` nodes):
      path: the table's file.
      ids: their names.
      label, split, time: these columns `[n]`, or None.
      features: float32 `[n, F]`, or None if there are no columns for them.
      filled: how many values were missing, by the name of the column that lacked some.
    """

    path: Path
    ids: NodeIds
    label: np.ndarray | None
    split: np.ndarray | None
    features: np.ndarray | None
    filled: dict[str, int]
    time: np.ndarray | None = None


def read_nodes(path: Path, max_categories: int) -> NodeTable:
    """The nodes of the table at `path`. Raises `InputError`."""
    table = read_arrow(path, {})
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(
            f"{path} must have one column of each name",
            ", ".join(map(repr, table.column_names)),
            "Rename or remove the other one.",
        )
    found = read_columns(table)
    require(str(path), found, ["id"])
    if not len(found["id"]):
        raise InputError(f"{path} must have nodes", "no row", "Write a row for each node.")
    ids = _ids(path, found["id"])
    features: list[np.ndarray] = []
    filled: dict[str, int] = {}
    for name, values in found.items():
        if name in SPECIAL:
            continue
        what = f"the feature column {name!r} in {path}"
        rows, missing = _numbers(what, values, max_categories)
        features.append(rows)
        if missing.any():
            filled[name] = int(missing.sum())
            features.append(missing[:, None].astype(np.float32))
    joined = np.concatenate(features, axis=1) if features else None
    label, split, time = (found.get(name) for name in SPECIAL[1:])
    return NodeTable(path, ids, label, split, joined, filled, time)


def _ids(path: Path, column: np.ndarray) -> NodeIds:
    if column.dtype.kind in "fO":  # integers have none missing
        unnamed = np.array([is_missing(each) for each in column.tolist()], bool)
        rule = f"every node in {path} must have an id"
        refuse_where(unnamed, np.full(unnamed.size, "none"), "row", rule, "Name it.")
    try:
        return NodeIds(column)
    except InputError as error:
        raise InputError(f"{path}: {error.rule}", error.value, error.remedy) from None


def _numbers(
    what: str, values: np.ndarray, max_categories: int
) -> tuple[np.ndarray, np.ndarray]:
    """The features of a column, float32 `[n, k]`, and which of its rows `[n]` were missing."""
    if values.ndim == 2 and values.dtype.kind in "fiub":
        rows = _float32(what, values)
        wrong = ~np.isfinite(rows).all(axis=1)
        refuse_where(wrong, values, "row", f"{what} must have whole lists", "Correct them.")
        return rows, np.zeros(len(rows), bool)
    nested = values.dtype == object and any(map(_is_nested, values.tolist()))
    if nested or values.ndim != 1 or values.dtype.kind not in "fiubOU":
        raise InputError(
            f"{what} must be numbers, text, or equally long lists of numbers",
            "lists of unequal lengths, or records" if nested else values.dtype,
            _REMEDY,
        )
    if values.dtype.kind in "OU":
        missing = np.array([is_missing(each) for each in values.tolist()], bool)
    else:
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if missing.all():
        raise InputError(f"{what} must have a value somewhere", "none", "Delete the column.")
    if values.dtype.kind in "OU":
        known = values[~missing].tolist()
        if all(isinstance(each, str) for each in known):
            return _categories(what, values, missing, max_categories), missing
        refuse_words(what, values[~missing], _REMEDY)  # booleans, some of them missing
        values = np.where(missing, 0, values).astype(np.float64)
    rows = np.where(missing, np.float32(0), _float32(what, values))
    refuse_where(~np.isfinite(rows), values, "row", f"{what} must be finite", "Correct it.")
    return rows[:, None], missing


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | dict | np.ndarray)


def _categories(what: str, values: np.ndarray, missing: np.ndarray, most: int) -> np.ndarray:
    """float32 `[n, k]`: a column for each text in `values`, in alphabetical order."""
    texts = sorted(set(values[~missing].tolist()))
    if len(texts) > most:
        raise InputError(
            f"{what} must be numbers, or text of at most {most} different categories",
            f"{len(texts)} different texts, such as {' '.join(texts[0].split())[:60]!r}",
            "Delete it, write numbers in its place, or raise the option max_categories.",
        )
    number = {text: i for i, text in enumerate(texts)}
    at = np.flatnonzero(~missing)
    rows = np.zeros((len(values), len(texts)), np.float32)
    rows[at, [number[text] for text in values[at].tolist()]] = 1
    return rows


def _float32(what: str, values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # the check for infinity names the row
        return values.astype(np.float32)
