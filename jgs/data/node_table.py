"""A table of the nodes of one type, and the features in it. One row is one node; its columns:

`id`: distinct integers or text (`jgs.NodeIds`). Row `i` is the `i`-th node of the type.
`label`: optional; integers from 0, or text; -1 or empty for none. Or numbers that are not all
  whole, of a regression; or columns `label:NAME` (`jgs.data.label_columns`).
`split`: optional; `train`, `val` or `test`; empty for none.
`time`: optional; the node exists from then on. Whole numbers, or dates (`jgs.data.times`).
all other columns, in order: the features, float32, by the rule of `jgs.data.columns`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jgs.data.column_rule import ColumnRule
from jgs.data.columns import SPECIAL, FeatureColumns
from jgs.data.label_columns import with_label
from jgs.data.random_split import SplitRule
from jgs.data.values import is_missing
from jgs.errors import InputError
from jgs.graph import NodeIds
from jgs.graph.checks import refuse_where
from jgs.graph.formats.arrow import Reading, read_arrow
from jgs.graph.formats.tables import read_columns, require


class NodeTable(NamedTuple):
    """The nodes of a table.

    Fields (`n` nodes):
      path: the table's file.
      ids: their names.
      label, split, time: these columns `[n]`, or None; `label` may be `[n, C]`.
      features: float32 `[n, F]`, or None if there are no columns for them.
      columns: what each of their columns became.
      label_names: the names of `C` labels of which a node can have several, or None.
    """

    path: Path
    ids: NodeIds
    label: np.ndarray | None
    split: np.ndarray | None
    features: np.ndarray | None
    columns: FeatureColumns
    time: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None


def read_nodes(
    path: Path,
    rule: ColumnRule,
    drawn: SplitRule | None = None,
    reading: Reading = Reading(),  # noqa: B008
) -> NodeTable:
    """The nodes of the table at `path`, with a split of labelled ones as `drawn` asks. Raises
    `InputError`."""
    return nodes_of(path, columns_of_nodes(path, rule, reading), rule, drawn)


def columns_of_nodes(path: Path, rule: ColumnRule, reading: Reading) -> dict[str, np.ndarray]:
    """The columns of the table of nodes at `path`. Raises `InputError`."""
    text = dict.fromkeys(rule.text(), "string")
    table = read_arrow(path, text, ids=["id"], reading=reading)
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(
            f"{path} must have one column of each name",
            ", ".join(map(repr, table.column_names)),
            "Rename or remove the other one.",
        )
    return read_columns(table)


def nodes_of(
    path: Path, columns: dict[str, np.ndarray], rule: ColumnRule, drawn: SplitRule | None
) -> NodeTable:
    """The nodes of the table at `path` with these columns; see `read_nodes`."""
    found, label_names = with_label(str(path), columns)
    require(str(path), found, ["id"])
    if not len(found["id"]):
        raise InputError(f"{path} must have nodes", "no row", "Write a row for each node.")
    ids = ids_of(path, found["id"])
    label, split, time = (found.get(name) for name in SPECIAL[1:])
    split = split if drawn is None else drawn.column(label, split)
    rows, became = features_of(path, found, split, rule)
    own = rows if became.columns else None
    return NodeTable(path, ids, label, split, own, became, time, label_names)


def features_of(
    path: Path, nodes: dict[str, np.ndarray], split: np.ndarray | None, rule: ColumnRule
) -> tuple[np.ndarray, FeatureColumns]:
    """The features float32 `[n, F]` in the columns `nodes` of the table at `path`, and what
    each became. The rows that the column `split` calls `train` are those for training. Raises
    `InputError`."""
    name = str(path)
    train = None if split is None else np.array([each == "train" for each in split], bool)
    fitted = FeatureColumns.fit(nodes, **rule._asdict(), train=train, name=name)
    if not fitted.columns:
        return np.empty((len(nodes["id"]), 0), np.float32), fitted
    return fitted.encode(nodes, name), fitted


def ids_of(path: Path, column: np.ndarray) -> NodeIds:
    """The names of the nodes in a table at `path`. Raises `InputError`."""
    if column.dtype.kind in "fO":  # integers have none missing
        unnamed = np.array([is_missing(each) for each in column.tolist()], bool)
        rule = f"every node in {path} must have an id"
        refuse_where(unnamed, np.full(unnamed.size, "none"), "row", rule, "Name it.")
    try:
        return NodeIds(column)
    except InputError as error:
        raise InputError(f"{path}: {error.rule}", error.value, error.remedy) from None
