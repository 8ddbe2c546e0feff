"""`LabelTable`: labels of nodes at moments, one a row, as RelBench has them; and `LinkTable`,
links at moments.

As a file it ends in `.parquet`, `.csv`, `.csv.gz`, `.tsv` or `.tsv.gz`. Its columns:
  `node`: the names of nodes, as in the tables of edges and nodes beside it.
  `time`: whole numbers in the unit of the edges' times, or dates (`jgs.data.column_values`).
  `label`: text and integers from 0 are classes; numbers with a point are numbers.
  `split`: optional; see `LabelTable.from_arrays`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from jgs.arrays import as_numpy, check_range, id_column, refuse_where, require_array
from jgs.data.label_values import NUMBERS, edge_labels
from jgs.data.text import files_named
from jgs.data.values import SPLITS, split_numbers
from jgs.errors import InputError, require_columns
from jgs.files.arrow import ENDINGS, read_arrow, read_columns
from jgs.graph import NodeIds
from jgs.graph.checks import MAX_ID

_log = logging.getLogger("jgs")

LABEL_ENDINGS = (*ENDINGS, ".tsv", ".tsv.gz")
"""How the names of files of labels end."""

_MADE = "jgs.data.LabelTable.from_arrays"
_COLUMNS = ("node", "time", "label", "split")
SHARES = (0.7, 0.85)
"""How much of the rows is before the moments at which validation and test begin."""


class LabelTable(NamedTuple):
    """Labels of nodes at moments: row `i` says that node `nodes[i]` has the label `labels[i]`
    at `time[i]`, which is to be predicted from what was before `time[i]`.

    Fields (`n` rows, in any order; a node may have several rows):
      nodes: NumPy int32 `[n]`, nodes of the graph.
      time: NumPy int64 `[n]`, in the unit of the graph's `edge_time`.
      labels: NumPy int32 `[n]`, classes from 0; or float64 or float32 `[n]`, finite numbers; or
        float32 `[n, C]` of 0 and 1 for several labels a row, NaN for those not known.
      split: NumPy int8 `[n]`: 0 train, 1 val, 2 test, and -1 for a row in no split.
    """

    nodes: np.ndarray
    time: np.ndarray
    labels: np.ndarray
    split: np.ndarray

    @classmethod
    def from_arrays(
        cls,
        nodes: Any,
        time: Any,
        labels: Any,
        split: Any = None,
        *,
        name: str = "labels",
        label_kind: str | None = None,
    ) -> Self:
        """The table of a user's own arrays `[n]`.

        Args:
          nodes: integers, nodes of the graph.
          time: integers.
          labels: classes, whole numbers from 0; or numbers, of which one has a fraction; or 0
            and 1 `[n, C]`, NaN for those not known.
          split: "train", "val", "test" or "" for each row; or 0, 1, 2 or -1. None: by time. The
            test rows are those from a moment on, and the validation rows those before it from
            another moment on. These moments are the times of the rows at 85 and 70 % of all
            rows in order of time, so rows of equal times are in one split.
          name: the name in messages.
          label_kind: "class" or "number", whatever the labels look like.

        Raises `InputError`.
        """
        given = {"nodes": as_numpy(nodes), "time": as_numpy(time), "labels": as_numpy(labels)}
        form, count = "[n], one for each of its nodes", given["nodes"].size
        several = given["labels"].ndim == 2
        for field, array in given.items():
            own = form.replace("[n]", "[n, C]") if several and field == "labels" else form
            require_array(f"{field} of {name}", array, own, "Give as many.", n=count)
        for field in ("nodes", "time"):
            array = given[field]
            if array.dtype.kind not in "iu" or array.dtype == np.uint64:
                raise InputError(
                    f"{field} of {name} must be integers of at most 64 bits",
                    array.dtype,
                    "Convert them; dates by .astype('datetime64[s]').astype(numpy.int64).",
                )
        check_range(f"nodes of {name} must be node ids", given["nodes"], MAX_ID + 1)
        names = None
        if several:
            values = given["labels"].astype(np.float32)
        else:
            values, names = edge_labels(name, given["labels"], label_kind, "row")
        if names is not None:
            raise InputError(
                f"labels of {name} must be numbers", "text", "Number the classes from 0."
            )
        time = given["time"].astype(np.int64)
        if split is None:
            numbers = splits_by_time(time, name)
        else:
            remedy = "Give as many, or none to split by time."
            require_array(f"split of {name}", as_numpy(split), form, remedy, n=count)
            rule = f"each split of {name} must be {', '.join(SPLITS)}, 0, 1, 2, or empty"
            numbers = split_numbers(split, "row", rule, numbered=True)
        return cls(given["nodes"].astype(np.int32), time, values, numbers).check(name)

    @property
    def num_classes(self) -> int:
        """The largest class + 1, or 1 where labels are numbers; or how many labels a row may
        have."""
        if self.several:
            return self.labels.shape[1]
        return 1 if self.numbers else int(self.labels.max(initial=0)) + 1

    @property
    def several(self) -> bool:
        """Whether a row may have several labels."""
        return self.labels.ndim == 2

    @property
    def numbers(self) -> bool:
        return self.labels.dtype.kind == "f" and not self.several

    def check(self, name: str, num_nodes: int = MAX_ID + 1) -> Self:
        """Returns this table, of the data set `name`, if every rule of the class holds for a
        graph of `num_nodes` nodes. Raises `InputError` otherwise."""
        form = f"{' or '.join(('int32', *map(str, NUMBERS)))} [n]"
        form = "float32 [n, C]" if self.several else form
        what = f"labels of the label table of {name}"
        require_array(what, self.labels, form, f"Make it with {_MADE}.", n=self.nodes.size)
        _check_rows(self, name, "label table", num_nodes, ("nodes",))
        rule = f"the label table of {name} must"
        if self.several:
            known = np.isnan(self.labels) | np.isin(self.labels, (0, 1))
            wrong, rule = ~known.all(axis=1), f"{rule} have labels 0, 1 or NaN"
        elif self.numbers:
            wrong, rule = ~np.isfinite(self.labels), f"{rule} have finite labels"
        else:
            wrong, rule = self.labels < 0, f"{rule} have classes from 0"
        refuse_where(wrong, self.labels, "row", rule, "Correct it, or remove rows without one.")
        return self


class LinkTable(NamedTuple):
    """Links to predict at moments: row `i` says that node `src[i]` is linked to node `dst[i]`
    after `time[i]`, which is to be predicted from what was before `time[i]`.

    Fields (`n` rows, in any order):
      src, dst: NumPy int32 `[n]`, nodes of the graph.
      time: NumPy int64 `[n]`, in the unit of the graph's `edge_time`.
      split: NumPy int8 `[n]`: 0 train, 1 val, 2 test, and -1 for a row in no split.
      k: NumPy int32 `[1]`, the length of the lists that are judged; 0: it is not said.
    """

    src: np.ndarray
    dst: np.ndarray
    time: np.ndarray
    split: np.ndarray
    k: np.ndarray

    def check(self, name: str, num_nodes: int = MAX_ID + 1) -> Self:
        """Returns this table, of the data set `name`, if every rule of the class holds for a
        graph of `num_nodes` nodes. Raises `InputError` otherwise."""
        _check_rows(self, name, "link table", num_nodes, ("src", "dst"))
        return self


def _check_rows(
    table: LabelTable | LinkTable, name: str, kind: str, num_nodes: int, nodes: tuple[str, ...]
) -> None:
    count = getattr(table, nodes[0]).size
    dtypes = {**dict.fromkeys(nodes, "int32"), "time": "int64", "split": "int8"}
    for field, dtype in dtypes.items():
        what, form = f"{field} of the {kind} of {name}", f"{dtype} [n]"
        require_array(what, getattr(table, field), form, f"Make it with {_MADE}.", n=count)
    if not count:
        raise InputError(
            f"the {kind} of {name} must have rows", "none", "Add them, or remove it."
        )
    for field in nodes:
        rule = f"the {kind} of {name} must name nodes"
        check_range(rule, getattr(table, field), num_nodes, "Correct its nodes.")
    wrong = (table.split < -1) | (table.split >= len(SPLITS))
    rule = f"the splits in the {kind} of {name} must be 0, 1, 2 or -1"
    refuse_where(wrong, table.split, "row", rule, "Correct them.")
    if not (table.split == 0).any():
        raise InputError(
            f"the {kind} of {name} must have rows to train on",
            f"no {SPLITS[0]} among {count} rows",
            "Say the split of each row in a column split.",
        )


def splits_by_time(time: np.ndarray, name: str) -> np.ndarray:
    """int8 `[n]`: the split of each row by its `time`; see `LabelTable.from_arrays`. Raises
    `InputError` where too few different times leave a split without rows."""
    if not time.size:
        return np.empty(0, np.int8)
    moments = np.sort(time)[[int(share * time.size) for share in SHARES]]
    found = np.searchsorted(moments, time, "right").astype(np.int8)
    counts = np.bincount(found, minlength=len(SPLITS)).tolist()
    if not all(counts):
        shown = ", ".join(f"{n} {split}" for n, split in zip(counts, SPLITS, strict=True))
        raise InputError(
            f"the times of {name} must differ enough to split rows at 70 and 85 %",
            f"{np.unique(time).size} different ones: {shown}",
            "Say the split of each row in a column split.",
        )
    return found


def read_label_table(
    path: Path, ids: NodeIds, label_kind: str | None, rules: Any
) -> tuple[LabelTable, tuple[str, ...] | None]:
    """The label table in a file, of the nodes `ids`; and the names of its classes, or None
    unless they are text. `label_kind` is "class", "number" or None, whatever the labels look
    like; `rules` are `TableRules`. Raises `InputError`."""
    types = {"node": "string"} if ids.values.dtype == object else {}
    found = read_columns(read_arrow(path, types, ids=["node"], **rules.reading.arguments))
    require_columns(str(path), found, _COLUMNS[:3])
    if other := [name for name in found if name not in _COLUMNS]:
        raise InputError(
            f"{path} must have the columns {', '.join(_COLUMNS)}",
            ", ".join(map(repr, found)),
            f"Remove {other[0]!r}: what nodes have belongs into the table of nodes.",
        )
    labels, names = edge_labels(str(path), found["label"], label_kind, "row")
    what = f"node in {path}"
    table = LabelTable.from_arrays(
        ids.nodes(id_column(what, found["node"], in_file=True), what),
        rules.clock.whole(str(path), found["time"], "row"),
        labels,
        found.get("split"),
        name=str(path),
        label_kind="number" if labels.dtype.kind == "f" else None,
    )
    return table, names


def label_files(folder: Path) -> list[Path]:
    """The files of labels in a folder."""
    return files_named(folder, ["labels"], LABEL_ENDINGS)


def name_unread(folder: Path, known: Collection[Path | None]) -> None:
    """Warns of the tables of a folder that are not `known`."""
    found = [p for p in sorted(folder.iterdir()) if p.name.endswith(LABEL_ENDINGS)]
    if unread := [path.name for path in found if path not in known]:
        _log.warning("%s has tables that are not read: %s", folder, ", ".join(unread))
