"""What the tables of a database are: their keys, the tables that these name, and their times.

A manifest, `manifest.yaml`, says it for a folder of tables, in RelBench's form:

    val_timestamp: '2024-08-01'      # training ends here; a number where times are numbers
    test_timestamp: '2024-10-01'
    tables:
      users: {pkey: user_id}
      events:
        pkey: event_id               # a list of columns for a key of several; null for none
        time_col: time
        fkeys: {user_id: users}      # "shop, item": items for a key of several columns

DuckDB and SQLite files have keys in their catalogue. A manifest beside such a file, called
`<name>.yaml`, says the times, and the keys that the file does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jgs.errors import InputError, nearest

Columns = tuple[str, ...]

_TABLE_FIELDS = ("pkey", "time_col", "fkeys")


class Keys(NamedTuple):
    """The keys and the time of one table.

    Fields:
      key: the columns that name a row, or () for none.
      time: the column that says from when on a row is there, or None.
      references: the table that each foreign key, some columns, names a row of.
    """

    key: Columns = ()
    time: str | None = None
    references: Mapping[Columns, str] = {}


class Catalogue(NamedTuple):
    """What is known of a database beside its rows.

    Fields:
      tables: the keys of each table, in the order of tables.
      val_time, test_time: the moments at which validation and test begin, as text; or None.
    """

    tables: dict[str, Keys]
    val_time: str | None = None
    test_time: str | None = None


def of_manifest(where: str, manifest: Any) -> Catalogue:
    """The catalogue that a manifest says. Raises `InputError`."""
    tables = manifest.get("tables") if isinstance(manifest, Mapping) else None
    if not isinstance(tables, Mapping) or not tables:
        raise InputError(
            f"{where} must have the field tables, each with pkey, time_col and fkeys",
            "none" if tables is None else repr(tables)[:60],
            "Write it as jgs.data.database.catalogue says.",
        )
    moments = (manifest.get(name) for name in ("val_timestamp", "test_timestamp"))
    val, test = (None if each is None else str(each) for each in moments)
    return Catalogue({str(n): _keys(where, n, t or {}) for n, t in tables.items()}, val, test)


def _keys(where: str, name: Any, fields: Any) -> Keys:
    if not isinstance(fields, Mapping):
        rule = f"the table {name} in {where} must have the fields {', '.join(_TABLE_FIELDS)}"
        raise InputError(rule, repr(fields)[:60], "Write it as a mapping.")
    named = fields.get("fkeys") or {}
    if not isinstance(named, Mapping):
        raise InputError(
            f"fkeys of the table {name} in {where} must map columns to tables",
            repr(named)[:60],
            "Write fkeys: {user_id: users}.",
        )
    time = fields.get("time_col")
    references = {columns_of(key): str(table) for key, table in named.items()}
    key = fields.get("pkey")
    return Keys(
        () if key is None else columns_of(key), None if time is None else str(time), references
    )


def columns_of(key: Any) -> Columns:
    """The columns of a key: a list of them, or text with commas between."""
    return tuple(
        each.strip() for each in (key if isinstance(key, list) else str(key).split(","))
    )


def merged(declared: Catalogue, said: Catalogue) -> Catalogue:
    """A file's own catalogue with what a manifest says of it, which counts where both say."""
    tables = dict(declared.tables)
    for name, keys in said.tables.items():
        own = tables.get(name, Keys())
        tables[name] = Keys(
            keys.key or own.key,
            keys.time or own.time,
            {**own.references, **keys.references},
        )
    return Catalogue(tables, said.val_time, said.test_time)


def check(where: str, catalogue: Catalogue, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Raises `InputError` unless each table of the catalogue is there and has the columns that
    it names. `columns` are the types of the columns of the tables that are there."""
    for name, keys in catalogue.tables.items():
        if name not in columns:
            raise InputError(
                f"{where} must have the table {name} that its manifest names",
                f"tables {', '.join(columns) or 'none'}",
                nearest(name, columns) or "Add it, or correct the manifest.",
            )
        times = () if keys.time is None else (keys.time,)
        for column in (*keys.key, *times, *(c for key in keys.references for c in key)):
            if column not in columns[name]:
                raise InputError(
                    f"the table {name} in {where} must have the column {column!r} that its "
                    "manifest names",
                    f"columns {', '.join(columns[name])}",
                    nearest(column, columns[name]) or "Correct the manifest.",
                )
        for key, table in keys.references.items():
            _check_reference(where, catalogue, name, key, table)


def _check_reference(
    where: str, catalogue: Catalogue, name: str, key: Columns, table: str
) -> None:
    what = f"the foreign key {', '.join(key)} of {name} in {where}"
    if table not in catalogue.tables:
        raise InputError(
            f"{what} must name a table",
            f"{table!r} and tables {', '.join(catalogue.tables)}",
            nearest(table, catalogue.tables) or "Correct it.",
        )
    named = catalogue.tables[table].key
    if len(named) != len(key):
        raise InputError(
            f"{what} must have as many columns as the key of {table}",
            f"{len(key)} and {', '.join(named) or 'no key'}",
            f"Say the key of {table} by pkey." if not named else "Correct one.",
        )
