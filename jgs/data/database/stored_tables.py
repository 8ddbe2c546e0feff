"""`StoredTables`: tables with keys and moments, which DuckDB reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np

from jgs.data.database import catalogue, postgres, sqlite
from jgs.data.database.catalogue import Catalogue, Columns, Declared, Tables, of_declared
from jgs.data.database.csv_tables import source_of
from jgs.data.database.sql import optional, quoted, text
from jgs.errors import InputError, refusing
from jgs.graph.grouping import threads

TABLES = (".parquet", ".csv", ".csv.gz")
FILES = (".duckdb", ".db", ".sqlite", ".sqlite3")

_ASKING, _NAMED = '"jgs rows that ask"', '"jgs rows that are named"'  # no user's tables
WHOLE: tuple[str, ...] = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
WHOLE += tuple(f"U{each}" for each in WHOLE)
NUMBERS = (*WHOLE, "FLOAT", "DOUBLE")
_NUMBERS = (*NUMBERS, "DECIMAL")
_AT_ONCE = 4  # queries, each with memory of its own
_VIEWS = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' "
    "AND table_catalog NOT IN ('source', 'system')"
)
_EXACT = {"FLOAT": 2**24, "DOUBLE": 2**53}  # below it they have all whole numbers

Hidden = frozenset[tuple[str, str]]
"""Columns, as (table, column)."""

_MADE_ONCE = ("collect", "to_arrow_table", "read_all", "to_table")
"""What makes a table of lazy frames, relations, readers and Arrow's data sets, whose rows may
have another order each time, or be there once."""

_log = logging.getLogger("jgs")


class StoredTables:
    """Tables with keys and moments. They are only read.

    Attributes:
      name: the name in messages.
      catalogue: the keys, the references and the times of the tables.
      columns: the types of the columns, as DuckDB names them, by table and column.
      folder: the folder with RelBench's tasks, or None.

    `open` reads a file or a folder, and `from_tables` takes tables in memory. Needs the extra
    `jgs[database]`.
    """

    def __init__(
        self, name: str, connection: Any, known: Catalogue, folder: Path | None = None
    ):
        self.name, self.folder, self._connection = name, folder, connection
        self.catalogue = known
        views = self.sql(_VIEWS).column(0).to_pylist()
        self.columns = {table: self._described(table) for table in views}
        catalogue.check(name, known, self.columns)
        if not known.tables:
            raise InputError(f"{name} must have tables", "none", "Name another, or a schema.")

    @classmethod
    def open(cls, path: str | os.PathLike, manifest: str | os.PathLike | None = None) -> Self:
        """The database in a folder with `manifest.yaml` and tables, in it or in its folder `db`
        (Parquet or CSV); in a DuckDB or SQLite file; or of a PostgreSQL server, by its URL, see
        `jgs.data.database.postgres`. The file `manifest` stands for the one that is beside the
        tables, see `jgs.data.database.catalogue`. Raises `InputError`."""
        said = None if manifest is None else Path(manifest)
        if "://" in str(path):
            url = postgres.without_password(str(path))
            return cls._read(postgres.name_of(url), postgres.read, url, said)
        path = Path(path)
        if not path.exists():
            raise InputError("a database must exist", path, "Correct the path.")
        return (cls._of_folder if path.is_dir() else cls._of_file)(path, said)

    @classmethod
    def from_tables(
        cls, tables: Mapping[str, Any], manifest: Any, name: str = "tables"
    ) -> Self:
        """The database of tables in memory.

        Args:
          tables: Arrow tables, or data frames of pandas or Polars, by name; also lazy ones.
          manifest: a mapping with the fields of a manifest, see `jgs.data.database.catalogue`.
          name: the name in messages.

        Raises `InputError`.
        """
        return cls(name, _registered(tables), catalogue.of_manifest(name, manifest))

    def with_tables(self, tables: Mapping[str, Any]) -> Self:
        """The database with these Arrow tables in place of its own, by name."""
        return type(self)(self.name, _registered(tables), self.catalogue, self.folder)

    @classmethod
    def _of_folder(cls, folder: Path, said: Path | None) -> Self:
        file = said or folder / "manifest.yaml"
        known = catalogue.of_manifest(str(file), manifest_of(file))
        connection = _connected()
        place = folder / "db" if (folder / "db").is_dir() else folder
        for table in known.tables:
            files = [at for end in TABLES if (at := place / f"{table}{end}").is_file()]
            if len(files) != 1:
                raise InputError(
                    f"{place} must have one file of the table {table}",
                    ", ".join(at.name for at in files) or "none",
                    f"Its name is {table}.parquet or {table}.csv.",
                )
            rule = f"{files[0]} must be a whole table"
            with refusing((_duckdb_module().Error, OSError), rule, "Write it again."):
                source = f"read_parquet({text(files[0])})"
                if files[0].suffix != ".parquet":
                    source = source_of(connection, files[0])
            _view(connection, table, source, files[0])
        return cls(folder.resolve().name, connection, known, folder)

    @classmethod
    def _of_file(cls, file: Path, said: Path | None) -> Self:
        with (
            refusing(OSError, f"{file} must be readable", "Mend it."),
            file.open("rb") as begin,
        ):
            lite = begin.read(16).startswith(b"SQLite format 3")
        beside = file.with_suffix(".yaml")
        said = said or (beside if beside.is_file() else None)
        return cls._read(file.stem, sqlite.read if lite else _duckdb, file, said)

    @classmethod
    def _read(
        cls, name: str, read: Callable[..., Tables], source: Any, said: Path | None
    ) -> Self:
        known = None if said is None else catalogue.of_manifest(str(said), manifest_of(said))
        connection = _connected()
        tables, keys = read(connection, source, () if known is None else known.tables)
        columns = {table: connection.table(quoted(table)).columns for table in tables}
        if known is not None:
            tables_said = known.tables.items()
            there = {t: k for t, k in tables_said if {*k.key} <= {*columns.get(t, ())}}
            keys = catalogue.with_keys(keys, there)
        declared = of_declared(name, columns, keys)
        return cls(name, connection, catalogue.merged(declared, known) if known else declared)

    def without(self, hidden: Hidden) -> tuple[Self, Hidden]:
        """The database without the foreign keys that have a column which is `hidden`; and
        `hidden` with the other columns of these keys."""
        tables, found, asked = dict(self.catalogue.tables), copy(self), hidden
        for table, keys in self.catalogue.tables.items():
            own = {key: {(table, column) for column in key} for key in keys.references}
            lost = {key: columns for key, columns in own.items() if columns & asked}
            hidden = hidden.union(*lost.values())
            kept = {key: to for key, to in keys.references.items() if key not in lost}
            tables[table] = keys._replace(references=kept)
        found.catalogue = self.catalogue._replace(tables=tables)
        return found, hidden

    def sql(self, query: str, **registered: Any) -> Any:
        """The Arrow table that a query gives. `registered` are Arrow tables by name, which the
        query may read. Raises `InputError` where a table is damaged."""
        rule = f"the tables of {self.name} must be whole"
        with refusing(_duckdb_module().Error, rule, "Correct them, or write them again."):
            return self._read_by(query, registered)

    def _read_by(self, query: str, registered: Mapping[str, Any], alike: bool = False) -> Any:
        known = {name.lower() for name in self.catalogue.tables}  # as DuckDB tells them apart
        for name, table in registered.items():
            if name in known:
                raise InputError(
                    f"no table of {self.name} may have the name {name}, which labels need",
                    name,
                    "Rename it.",
                )
            self._connection.register(name, table)
        try:
            return _rows(self._connection, query, alike)
        finally:
            for name in registered:
                self._connection.unregister(name)

    def ask(self, query: str, what: str, **registered: Any) -> Any:
        """As `sql`, for a query of the user's own, which messages call `what`. It must be one
        query that reads. Raises `InputError`."""
        duckdb = _duckdb_module()
        with refusing(duckdb.Error, f"{what} must be SQL that DuckDB takes", "Correct it."):
            statements = duckdb.extract_statements(query)
            kinds = [str(each.type).rpartition(".")[2] for each in statements]
            if kinds != ["SELECT"]:
                raise InputError(
                    f"{what} must be one query, which reads",
                    ", ".join(kinds).lower() or "nothing",
                    "Write SELECT.",
                )
            return self._read_by(query, registered, alike=True)

    def at_once(self, work: Callable[[Self, Any], Any], entries: Collection[Any]) -> list[Any]:
        """`work(tables, entry)` for each of the entries, in order, `tables` being these. Some
        are worked on at once, each by a connection of its own, where all tables are in files:
        DuckDB numbers the rows of a query on one core."""

        def alone(entry: Any) -> Any:
            own = copy(self)
            own._connection = self._connection.cursor()
            return work(own, entry)

        seen = {name for (name,) in self._connection.cursor().sql(_VIEWS).fetchall()}
        if not self.columns.keys() <= seen:  # tables in memory are of their connection alone
            return [work(self, entry) for entry in entries]
        with threads(min(len(entries), _AT_ONCE)) as run:
            return [*run(alone, entries)]

    def release(self) -> None:
        """Gives back the memory in which DuckDB keeps what it has read."""
        with suppress(_duckdb_module().Error):  # some cannot be given back
            self._connection.execute("SET memory_limit = '16MB'")
        self._connection.execute("RESET memory_limit")

    def rows(self, table: str) -> str:
        """SQL of the rows of a table that are nodes: all, or those with a time where the table
        has times. The position of a row among them is its node."""
        time = self.catalogue.tables[table].time
        return f"SELECT * FROM {quoted(table)}" + (
            "" if time is None else f" WHERE {quoted(time)} IS NOT NULL"
        )

    def found(self, table: str, query: str, columns: Columns, **registered: Any) -> np.ndarray:
        """int32 `[n]`: for each row of a query the row of `table` whose key its `columns` are,
        in the order of its rows; -1 for none."""
        key = self.catalogue.tables[table].key
        own, other = (
            ", ".join(f"{value} AS k{i}" for i, value in enumerate(values))
            for values in (map(quoted, key), map(quoted, columns))
        )
        on = " AND ".join(f"{_ASKING}.k{i} = {_NAMED}.k{i}" for i in range(len(key)))
        place = "CAST(row_number() OVER () - 1 AS INTEGER)"
        query = (
            f"WITH {_ASKING} AS (SELECT {place} AS n, {other} FROM ({query})), "
            f"{_NAMED} AS (SELECT {place} AS n, {own} FROM ({self.rows(table)})) "
            f"SELECT {_ASKING}.n AS asking, coalesce({_NAMED}.n, -1) AS named "
            f"FROM {_ASKING} LEFT JOIN {_NAMED} ON {on}"
        )
        if registered:  # a user's own rows
            rule = f"{', '.join(columns)} must be of the type of the key of {table}"
            with refusing(_duckdb_module().Error, rule, "Convert it, or name the key first."):
                joined = self._read_by(query, registered)
        else:
            joined = self.sql(query)
        asking, named = (joined.column(name).to_numpy() for name in ("asking", "named"))
        if asking.size and int(asking.max()) + 1 < asking.size:  # floats that are not exact
            raise InputError(
                f"a value of {', '.join(columns)} must name one row of {table} in {self.name}",
                "one that is equal to several keys",
                "Write it in the type of the key.",
            )
        found = np.empty(asking.size, np.int32)
        found[asking] = named
        return found

    def given(self, table: str, columns: Columns) -> str:
        """SQL of whether a row has values in all of these columns. NaN is none."""
        kinds = self.columns[table]
        every = (f"{quoted(c)} IS NOT NULL" for c in columns)
        numbers = (f"NOT isnan({quoted(c)})" for c in columns if kinds[c] in _EXACT)
        return " AND ".join([*every, *numbers])

    def check_key(self, table: str) -> None:
        """Raises `InputError` unless each row of a table has a key of its own."""
        key = self.catalogue.tables[table].key
        if not key:
            return
        own, kinds = ", ".join(map(quoted, key)), self.columns[table]
        rows, given = self.rows(table), self.given(table, key)
        remedy = "Correct the rows, or the key."
        lacking = self.sql(f"SELECT count(*) AS n FROM ({rows}) WHERE NOT ({given})")
        if number := lacking.column(0)[0].as_py():
            rule = f"each row of {table} in {self.name} must have a key {', '.join(key)}"
            raise InputError(rule, f"{number} rows without", remedy)
        for column in key:
            self.check_digits(f"the key {column} of {table}", kinds[column], rows, column)
        # Equal keys have equal hashes. To sort these is quicker than to group keys.
        hashes = self.sql(f"SELECT hash({own}) AS h FROM ({rows})").column("h").to_numpy()
        hashes = np.sort(hashes)
        if not (hashes[1:] == hashes[:-1]).any():
            return
        twice = self.sql(
            f"SELECT {own}, count(*) FROM ({rows}) GROUP BY {own} HAVING count(*) > 1 "
            f"ORDER BY {own} LIMIT 1"
        )
        if twice.num_rows:
            *values, number = twice.to_pylist()[0].values()
            rule = f"the key {', '.join(key)} of {table} in {self.name} must name one row"
            raise InputError(rule, f"{number} rows of {', '.join(map(str, values))}", remedy)

    def check_types(self, table: str, columns: Columns, target: str) -> None:
        """Raises `InputError` unless a foreign key has the types of the key that it names."""
        key = self.catalogue.tables[target].key
        for own, named in zip(columns, key, strict=True):
            kinds = self.columns[table][own], self.columns[target][named]
            numbers = all(kind.startswith(_NUMBERS) for kind in kinds)
            if kinds[0] != kinds[1] and numbers:
                what = f"the foreign key {own} of {table}"
                self.check_digits(what, kinds[0], f"SELECT * FROM {quoted(table)}", own)
            if kinds[0] == kinds[1] or numbers:
                continue
            values = self.sql(
                f"SELECT (SELECT count({quoted(own)}) FROM {quoted(table)}) AS own, "
                f"(SELECT count({quoted(named)}) FROM {quoted(target)}) AS named"
            )
            if all(values.to_pylist()[0].values()):  # else no value has a type
                raise InputError(
                    f"the foreign key {own} of {table} in {self.name} must be of the type of "
                    f"the key {named} of {target}",
                    f"{kinds[0]} and {kinds[1]}",
                    "Convert one.",
                )

    def check_digits(
        self, what: str, kind: str, query: str, column: str, **registered: Any
    ) -> None:
        """Raises `InputError` where a column of a query, of floats as its type `kind` says, has
        numbers so large that they may have been others. `registered` are as in `sql`."""
        if kind not in _EXACT:
            return
        largest = f"SELECT max(abs({quoted(column)})) AS n FROM ({query}) "
        largest += f"WHERE NOT isnan({quoted(column)})"
        most = self.sql(largest, **registered).column(0)[0].as_py() or 0
        if most >= _EXACT[kind]:
            raise InputError(
                f"{what} in {self.name} must keep its digits",
                f"{most:.0f} of type {kind}",
                "Write it as whole numbers, also where some are missing.",
            )

    def _described(self, table: str) -> dict[str, str]:
        found = self.sql(f"DESCRIBE SELECT * FROM {quoted(table)}").to_pylist()
        return {each["column_name"]: each["column_type"] for each in found}


def manifest_of(file: Path) -> Any:
    """What a YAML file says. Raises `InputError`."""
    with optional("pyyaml"):
        import yaml
    if not file.is_file():
        raise InputError(f"{file} must exist", "no such file", "Write it.")
    with refusing((yaml.YAMLError, OSError, UnicodeError), f"{file} must be YAML", "Mend it."):
        return yaml.safe_load(file.read_text("utf-8"))


def _duckdb_module() -> Any:
    with optional("duckdb"):
        import duckdb  # optional, and a slow import
        import pyarrow  # noqa: F401
    return duckdb


def _connected() -> Any:
    connection = _duckdb_module().connect(":memory:")
    # No variables as tables. Global, so that other connections have it too.
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def _rows(connection: Any, query: str, alike: bool) -> Any:
    """The rows of a query; with the same bits each time where they are to be `alike`: threads
    add fractions in an order of their own."""
    if not alike:
        return connection.sql(query).to_arrow_table()
    connection.execute("SET threads = 1")
    try:
        return connection.sql(query).to_arrow_table()
    finally:
        connection.execute("RESET threads")


def _registered(tables: Mapping[str, Any]) -> Any:
    connection = _connected()
    for table, rows in tables.items():
        with refusing(Exception, f"the table {table} must be readable", "Convert it."):
            methods = (getattr(rows, name, None) for name in _MADE_ONCE)
            make = next(filter(callable, methods), lambda own=rows: own)
            connection.register(table, make())
    return connection


def _view(connection: Any, table: str, source: str, file: Path, once: bool = False) -> None:
    """Makes a table of a source. It is read `once` where its rows may have another order each
    time."""
    errors = _duckdb_module().Error
    with refusing(errors, f"{file} must be a whole table", "Write it again."):
        if once:
            connection.register(table, _rows(connection, f"SELECT * FROM {source}", True))
        else:
            connection.execute(f"CREATE VIEW {quoted(table)} AS SELECT * FROM {source}")


def _duckdb(connection: Any, file: Path, named: Collection[str]) -> Tables:
    rule = f"{file} must be a DuckDB or SQLite file that no other process writes"
    remedy = "Name the right one, or close the other process."
    with refusing(_duckdb_module().Error, rule, remedy):
        connection.execute(f"ATTACH {text(file)} AS source (READ_ONLY)")
    own = "database_name = 'source' AND schema_name = 'main'"
    names = connection.execute(
        f"SELECT table_name, FALSE FROM duckdb_tables() WHERE {own} UNION ALL SELECT "
        f"view_name, TRUE FROM duckdb_views() WHERE {own} AND list_contains($1, view_name)",
        [list(named)],
    ).fetchall()
    others = connection.execute(
        "SELECT DISTINCT schema_name FROM duckdb_tables() WHERE database_name = 'source' "
        "AND schema_name <> 'main' ORDER BY ALL"
    ).fetchall()
    if others:
        left = ", ".join(name for (name,) in others)
        _log.warning("%s: tables of other schemas than main are left out: %s", file, left)
    for table, view in names:
        _view(connection, table, f"source.main.{quoted(table)}", file, view)
    declared = connection.execute(
        "SELECT table_name, constraint_column_names, referenced_table, referenced_column_names "
        f"FROM duckdb_constraints() WHERE {own} "
        "AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')"
    ).fetchall()
    keys = [Declared(t, tuple(own), target, tuple(to or ())) for t, own, target, to in declared]
    return [table for table, _ in names], keys
