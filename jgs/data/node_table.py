"""A table of the nodes of one type, and the features in it. One row is one node; its columns:

`id`: distinct integers or text (`jgs.NodeIds`). Row `i` is the `i`-th node of the type.
`label`: optional; integers from 0, or text; -1 or empty for none. Or numbers that are not all
  whole, of a regression; or columns `label:NAME` (`jgs.data.label_values`).
`split`: optional; `train`, `val` or `test`; empty for none.
`time`: optional; the node exists from then on. Whole numbers, or dates (`jgs.data.times`).
all other columns, in order: the features, float32, by the rule of `jgs.data.columns`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jgs.data.columns import ColumnRule, FeatureColumns, is_feature
from jgs.data.label_values import is_missing, with_label
from jgs.data.splits import SplitRule
from jgs.data.times import Clock
from jgs.errors import InputError
from jgs.graph import NodeIds
from jgs.graph.checks import refuse_where
from jgs.graph.formats.arrow import Reading, read_arrow
from jgs.graph.formats.tables import read_columns, require

DRAW = "--data-options split=0.6,0.2,0.2 draws train, val and test."


@dataclass(frozen=True)
class TableRules:
    """How tables are read; the options of a data set are those of these fields.

    Fields:
      columns: what the columns of nodes become, and those of edges that `encode` names.
      drawn: the split of nodes.
      clock: how times are counted.
      reading: how text is read.
    """

    columns: ColumnRule = field(default_factory=ColumnRule)
    drawn: SplitRule = field(default_factory=SplitRule)
    clock: Clock = field(default_factory=Clock)
    reading: Reading = field(default_factory=Reading)

    def of_type(self, node_type: str, types: Collection[str]) -> TableRules:
        """The rules for the table of one node type; see `ColumnRule.of_type`."""
        return replace(self, columns=self.columns.of_type(node_type, types))


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


def read_nodes(path: Path, rules: TableRules, labelled: bool = False) -> NodeTable:
    """The nodes of the table at `path`. Where they must be `labelled`, they must have a label,
    a split and features. Raises `InputError`."""
    types = dict.fromkeys(rules.columns.text(), "string")
    table = read_arrow(path, types, ids=["id"], reading=rules.reading)
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(
            f"{path} must have one column of each name",
            ", ".join(map(repr, table.column_names)),
            "Rename or remove the other one.",
        )
    return nodes_of(path, read_columns(table), rules, labelled)


def nodes_of(
    path: Path, columns: dict[str, np.ndarray], rules: TableRules, labelled: bool = False
) -> NodeTable:
    """The nodes of the table at `path` with these columns; see `read_nodes`."""
    found, label_names = with_label(str(path), columns)
    split = rules.drawn.column(found.get("label"), found.get("split"))
    if labelled:
        require(str(path), found, ("id", "label"))
        known = found if split is None else [*found, "split"]
        require(str(path), known, ["split"], f"Add it; {DRAW}")
        if not any(map(is_feature, found)):
            raise InputError(
                f"{path} must have columns of features beside id, label, split and time",
                "none",
                "Add them; a column of ones will do.",
            )
    require(str(path), found, ["id"])
    if not len(found["id"]):
        raise InputError(f"{path} must have nodes", "no row", "Write a row for each node.")
    ids = ids_of(path, found["id"])
    # The rows that the column `split` calls `train` are those for training.
    train = None if split is None else np.array([each == "train" for each in split], bool)
    became = FeatureColumns.fit(found, **asdict(rules.columns), train=train, name=str(path))
    rows = became.encode(found, str(path)) if became.columns else None
    label, time = found.get("label"), found.get("time")
    return NodeTable(path, ids, label, split, rows, became, time, label_names)


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
