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

DuckDB and SQLite files and PostgreSQL have keys in their catalogue. A manifest beside such a
file, called `<name>.yaml`, or one that is named, says the times, and the keys that are not
declared. A view that it names is a table.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jgs.errors import InputError, nearest, refusing

Columns = tuple[str, ...]

_TABLE_FIELDS = ("pkey", "time_col", "fkeys")

_log = logging.getLogger("jgs")


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


class Declared(NamedTuple):
    """A key that a database declares itself.

    Fields:
      table, columns: the columns of the table that are the key.
      target: the table that a foreign key names, or None for a primary key.
      named: the columns of `target` that it names, in the order of `columns`; () for its key.
    """

    table: str
    columns: Columns
    target: str | None = None
    named: Columns = ()


Tables = tuple[list[str], list[Declared]]
"""The tables of a database, and the keys that it declares."""


def of_declared(
    where: str, columns: Mapping[str, Iterable[str]], declared: Iterable[Declared]
) -> Catalogue:
    """The catalogue of the tables with these `columns` and their declared keys, whose letters
    may be upper or lower. A foreign key to a table that is not there, or to other columns than
    its key, or a second one of the same columns, is left out, which a log says."""
    tables = {name.lower(): name for name in columns} | {name: name for name in columns}
    exact = {table: {c.lower(): c for c in own} for table, own in columns.items()}
    found = {table: Keys((), None, {}) for table in columns}
    for table, own, target, named in sorted(declared, key=lambda each: each.target is not None):
        own = tuple(exact[table][c.lower()] for c in own)
        if target is None:
            found[table] = found[table]._replace(key=own)
            continue
        owner = tables.get(target, tables.get(target.lower(), ""))
        key = [c.lower() for c in found[owner].key] if owner else []
        ends = dict(zip([c.lower() for c in named] or key, own, strict=False))
        ordered = tuple(ends[c] for c in key) if key and ends.keys() == {*key} else ()
        if not ordered or ordered in found[table].references:
            said = ", ".join(own), table, ", ".join(named) or "the key", target
            _log.warning("%s: %s of %s, a key of %s in %s, makes no relation", where, *said)
            continue
        references = {**found[table].references, ordered: owner}
        found[table] = found[table]._replace(references=references)
    return Catalogue(found)


def with_keys(declared: Iterable[Declared], said: Mapping[str, Keys]) -> list[Declared]:
    """What is `declared`, with the primary keys that a manifest has `said` in place of a
    table's own. A foreign key goes on naming the columns that it was declared to name."""
    own = {key.table.lower(): key.columns for key in declared if key.target is None}
    found = [Declared(table, keys.key) for table, keys in said.items() if keys.key]
    other = {key.table for key in found}
    for key in declared:
        if key.target is not None:
            key = key._replace(named=key.named or own.get(key.target.lower(), ()))
        if key.target is not None or key.table not in other:
            found.append(key)
    return found


def of_manifest(where: str, manifest: Any) -> Catalogue:
    """The catalogue that a manifest says. Raises `InputError`."""
    tables = manifest.get("tables") if isinstance(manifest, Mapping) else None
    if not isinstance(tables, Mapping) or not tables:
        raise InputError(
            f"{where} must have the field tables, each with pkey, time_col and fkeys",
            "none" if tables is None else repr(tables)[:60],
            "Write it as jgs.data.database.catalogue says.",
        )
    val, test = (
        _moment(where, n, manifest.get(n)) for n in ("val_timestamp", "test_timestamp")
    )
    return Catalogue({str(n): _keys(where, n, t or {}) for n, t in tables.items()}, val, test)


def _moment(where: str, name: str, said: Any) -> str | None:
    """A number, or a date in ISO's form."""
    if said is None or is_number(str(said)):
        return None if said is None else str(said)
    rule = f"{name} in {where} must be a date, or a number where times are numbers"
    with refusing(ValueError, rule, "Write '2024-08-01'."):
        date = datetime.datetime.fromisoformat(str(said))
        if date.tzinfo is not None:
            raise ValueError(f"{said}, which has a time zone")
    return str(date)


def is_number(moment: str) -> bool:
    """Whether a catalogue's moment is a number, and no date."""
    return moment.removeprefix("-").isdecimal()


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
        str(each).strip() for each in (key if isinstance(key, list) else str(key).split(","))
    )


def merged(declared: Catalogue, said: Catalogue) -> Catalogue:
    """A file's own catalogue with what a manifest says of it, which counts where both say."""
    tables = dict(declared.tables)
    for name, keys in said.tables.items():
        own = tables.get(name, Keys())
        tables[name] = Keys(
            keys.key or own.key, keys.time or own.time, {**own.references, **keys.references}
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
