"""SQLite: the tables of a file, as they are in one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from jgs.data.database.catalogue import Declared, Tables
from jgs.data.database.sql import quoted
from jgs.errors import refusing

_WAL = 18  # the byte of a file's header that is 2 where a log of changes lies beside it
WAIT = 5.0
"""Seconds for which a file that is written is waited for."""
_HIDDEN = 1  # a column of a virtual table's own


def read(connection: Any, file: Path, named: Collection[str]) -> Tables:
    """Makes the tables of an SQLite file, and the views that are `named`, tables of a DuckDB
    connection. Raises `InputError`."""
    rule = f"{file} must be a whole SQLite file"
    with (
        refusing(sqlite3.Error, rule, "Mend it, or wait until nobody writes it."),
        closing(sqlite3.connect(_address(file), WAIT, uri=True)) as source,
    ):
        source.execute("BEGIN")
        inner = {row[1] for row in source.execute("PRAGMA table_list") if row[2] == "shadow"}
        found = source.execute(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall()
        tables = [t for t, kind in found if t in named or (kind == "table" and t not in inner)]
        for table in tables:
            connection.register(table, _rows(source, table, file))
        return tables, [key for table in tables for key in _declared(source, table)]


def _address(file: Path) -> str:
    """The URI that reads a file and writes nothing. SQLite would make files beside one that
    has a log of changes, unless nobody has it open and the file alone has all."""
    with file.open("rb") as opened:
        logged = opened.read(_WAL + 1)[_WAL:] == b"\2"
    alone = logged and not file.with_name(f"{file.name}-wal").exists()
    return f"{file.resolve().as_uri()}?{'immutable=1' if alone else 'mode=ro'}"


def _declared(source: sqlite3.Connection, table: str) -> list[Declared]:
    about = source.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    key = tuple(name for _, name, *_, at in sorted(about, key=lambda c: c[-1]) if at)
    found = {-1: Declared(table, key)} if key else {}
    for number, _, target, own, other, *_ in source.execute(
        f"PRAGMA foreign_key_list({quoted(table)})"
    ):
        before = found.get(number, Declared(table, (), target))
        named = before.named if other is None else (*before.named, other)
        found[number] = Declared(table, (*before.columns, own), target, named)
    return list(found.values())


def _rows(source: sqlite3.Connection, table: str, file: Path) -> Any:
    import pyarrow

    about = source.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    kinds = {name: kind for _, name, kind, *_, hidden in about if hidden != _HIDDEN}
    select = ", ".join(map(quoted, kinds))
    rows = source.execute(f"SELECT {select} FROM {quoted(table)}").fetchall()
    columns = zip(*rows, strict=True) if rows else [[] for _ in kinds]
    arrays = {}
    for (name, kind), values in zip(kinds.items(), columns, strict=True):
        rule = f"{name} of {table} in {file} must have values of one type, {kind or 'any'}"
        with refusing(pyarrow.ArrowException, rule, "Correct them, or cast them in a view."):
            arrays[name] = _dated(pyarrow.array(list(values)), kind)
    return pyarrow.table(arrays)


def _dated(column: Any, declared: str) -> Any:
    """A column of SQLite as what it was declared: dates are text there, or stay numbers."""
    import pyarrow

    dates = {"DATE": "date32", "DATETIME": "timestamp[us]", "TIMESTAMP": "timestamp[us]"}
    name = declared.partition("(")[0].strip().upper()
    kind = dates.get(name) if str(column.type) in ("string", "null") else None
    kind = "bool" if name == "BOOLEAN" else kind
    if kind not in dates.values():
        return column if kind is None else column.cast(kind)
    # Those of another form too.
    every = kind, "timestamp[us]", pyarrow.timestamp("us", "UTC"), "timestamp[ns]"
    for own in every:
        with suppress(pyarrow.ArrowInvalid):
            return column.cast(own)
    return column.cast(kind)
