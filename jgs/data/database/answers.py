"""What is to be predicted of a database's graph: labels or links of its nodes at moments."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.database.questions import SPLIT, Question
from jgs.data.database.stored_tables import StoredTables, quoted
from jgs.data.dataset import Plain
from jgs.data.label_table import LabelTable, LinkTable
from jgs.data.label_values import edge_labels
from jgs.errors import InputError, refusing
from jgs.files.arrow import read_columns

_FLOATS = {"float": "FLOAT", "double": "DOUBLE"}  # of Arrow, as DuckDB names them

_log = logging.getLogger("jgs")


def column_of(table: Any, name: str) -> np.ndarray:
    return read_columns(table.select([name]))[name]


def labelled(base: StoredTables, plain: Plain, asked: Question, clock: Clock) -> Plain:
    """The graph with the table that a question asks for. Raises `InputError`."""
    rows = asked.rows
    if asked.target is not None:
        rows = _one_a_row(base, asked)
    nodes, known = _nodes(base, plain, asked, asked.table, rows, asked.key)
    time = clock.whole(asked.what, column_of(rows, asked.time), "row") + int(asked.at_its_time)
    split = column_of(rows, SPLIT).astype(np.int8)
    if asked.target is not None:
        ends, found = _nodes(base, plain, asked, asked.target, rows, (asked.label,))
        some, k = np.lexsort((ends, nodes, time, split)), np.array([asked.k], np.int32)
        some = some[(known & found)[some]]  # in an order that no list of DuckDB's decides
        links = LinkTable(nodes[some], ends[some], time[some], split[some], k)
        return replace(plain, link_table=links.check(asked.what))
    if is_list(rows, asked.label):
        labels, names = _several(asked.what, rows.column(asked.label)), None
    elif asked.label_kind == "several":
        kind = rows.schema.field(asked.label).type
        raise InputError(f"{asked.what} must have lists of 0 and 1", kind, "Write lists.")
    else:
        _check_label(asked, rows.column(asked.label).filter(known))
        found = column_of(rows, asked.label)
        labels, names = edge_labels(asked.what, found, asked.label_kind, "row")
        if asked.label_kind is None and names is None and labels.dtype.kind == "i":
            _check_whole(asked, labels)
    table = LabelTable.from_arrays(
        nodes[known],
        time[known],
        labels[known],
        split[known],
        name=asked.what,
        label_kind="number" if labels.dtype.kind == "f" and labels.ndim == 1 else None,
    )
    return replace(plain, label_table=table, class_names=names)


def _check_label(asked: Question, column: Any) -> None:
    """Raises `InputError` unless the labels are of a type that is learned, and none lacks."""
    from pyarrow import types

    kind = column.type
    learned = (
        *(types.is_boolean, types.is_integer, types.is_floating, types.is_decimal),
        *(types.is_string, types.is_large_string, types.is_dictionary, types.is_null),
    )
    if not any(is_kind(kind) for is_kind in learned):
        rule = f"labels in {asked.what} must be true or false, numbers, text or lists"
        raise InputError(rule, f"the type {kind}", "Convert them in the query.")
    if column.null_count:
        rule = f"each row of {asked.what} must have a label"
        seen = f"{column.null_count:,} of {len(column):,} without"
        raise InputError(rule, seen, f"Leave these out: WHERE {asked.label} IS NOT NULL.")


def _check_whole(asked: Question, labels: np.ndarray) -> None:
    """Warns of whole numbers that are more than two classes. Raises `InputError` where they are
    of a type with fractions."""
    from pyarrow.types import is_integer

    kind, number = asked.rows.schema.field(asked.label).type, np.unique(labels).size
    if labels.max(initial=0) < 2:
        return
    seen = f"{number:,} different ones of type {kind}, up to {labels.max():,}"
    remedy = "Give --data-options label_kind=number, or label_kind=class."
    if not is_integer(kind):
        rule = f"whole labels in {asked.what} must be said to be numbers or classes"
        raise InputError(rule, seen, remedy)
    _log.warning(
        "labels in %s are classes: %s; label_kind=number learns them", asked.what, seen
    )


def _one_a_row(base: StoredTables, asked: Question) -> Any:
    """The rows of a question about links, whose label is then one target, not a list."""
    own = [quoted(name) for name in (*asked.key, asked.time, SPLIT)]
    label = quoted(asked.label)
    each = f"unnest({label})" if is_list(asked.rows, asked.label) else label
    query = f"SELECT {', '.join(own)}, {each} AS {label} FROM asked_rows"
    return base.sql(query, asked_rows=asked.rows)


def _several(what: str, column: Any) -> np.ndarray:
    """float32 `[n, C]`: the labels of each row, lists of 0 and 1. Raises `InputError`."""
    found = [
        [np.nan if one is None else one for one in row or ()] for row in column.to_pylist()
    ]
    sizes = {len(row) for row in found}
    with refusing((TypeError, ValueError), f"{what} must be of 0 and 1", "Correct it."):
        if len(sizes) == 1 and sizes != {0}:
            return np.array(found, np.float32)
    raise InputError(
        f"several labels of a row in {what} must be lists of one length, of 0 and 1",
        f"lists of {min(sizes, default=0)} to {max(sizes, default=0)}",
        "Write one number for each label; give target for keys of rows to recommend.",
    )


def is_list(rows: Any, name: str) -> bool:
    import pyarrow

    kind, types = rows.schema.field(name).type, pyarrow.types
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list
    return any(is_kind(kind) for is_kind in lists)


def _nodes(
    base: StoredTables,
    plain: Plain,
    asked: Question,
    table: str,
    rows: Any,
    key: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """int32 `[n]`, the nodes that rows name by `key`; and bool `[n]`, whether there is one."""
    assert plain.graph.schema is not None
    query = "SELECT * FROM asked_rows"
    for own, named in zip(key, base.catalogue.tables[table].key, strict=False):
        kind = _FLOATS.get(str(rows.schema.field(own).type), "")
        if kind != base.columns[table][named]:
            base.check_digits(f"{own} of {asked.what}", kind, query, own, asked_rows=rows)
    found = base.found(table, query, key, asked_rows=rows)
    known = found >= 0
    if lost := int((~known).sum()):
        _log.warning(
            "%s: %d labels of rows that %s lacks are left out", asked.what, lost, table
        )
    return found + np.int32(plain.graph.schema.nodes(table).start), known
