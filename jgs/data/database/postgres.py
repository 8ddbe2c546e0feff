"""PostgreSQL: the tables of a schema as they are in one snapshot, read by ADBC.

A URL is libpq's, as `postgresql://user@host:port/name?schema=public`; `schema` is our own. The
password is best in PGPASSWORD or `~/.pgpass`. One in the URL is known to this process alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from jgs.data.database.catalogue import Columns, Declared, Tables
from jgs.data.database.sql import optional, quoted, text
from jgs.errors import InputError, refusing

SCHEMES = ("postgresql://", "postgres://")

_PART = "(?:[^%:@/?#]|%(?!00)[0-9a-fA-F]{2})*"  # of a URL, as libpq takes it
_URL = re.compile(
    rf"postgres(?:ql)?://(?:{_PART}(?P<password>:{_PART})?@)?[^@/?#]*"
    rf"(?:/(?P<name>{_PART}))?(?:\?(?!.*password=)[^#]*)?"
)
_PATIENCE = (  # a URL's own come later, and count
    "connect_timeout=10&keepalives_idle=10&keepalives_interval=5&keepalives_count=3"
    "&tcp_user_timeout=30000"
)
_BEGIN = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SELECT set_config('lock_timeout', '10s', true), set_config('timezone', 'UTC', true), "
    # Rows without a key come in the same order again.
    "set_config('synchronize_seqscans', 'off', true), "
    "set_config('max_parallel_workers_per_gather', '0', true)",
)
_MOMENTS = ("date", "timestamp", "timestamptz")
_AS_IT_IS = re.compile(
    "_?(int[248]|float[48]|bool|text|varchar|uuid|jsonb?|bytea|time|interval|date|timestamp.*)"
)

_Ask = Callable[[str], Any]

_complete: dict[str, str] = {}  # URLs with their passwords, by those without
_log = logging.getLogger("jgs")


def without_password(url: str) -> str:
    """A URL without its password, which `read` knows in this process. Other names of data sets
    stay as they are. Raises `InputError`."""
    if "://" not in url:
        return url
    parts = _URL.fullmatch(url)
    if parts is None:
        raise InputError(
            "a database's URL must be of the form postgresql://user:password@host:port/name, "
            "with : / @ % within a part as %3A %2F %40 %25",
            "another form",
            "Correct it, or give the password by PGPASSWORD.",
        )
    begin, end = parts.span("password")
    public = url if begin < 0 else url[:begin] + url[end:]
    if public != url:
        _complete[public] = url
    return public


def name_of(url: str) -> str:
    """The name of the database of a URL without a password."""
    return unquote(re.findall(r"[^/]*//[^/?]*/?([^?]*)", url)[0]) or "postgresql"


def read(connection: Any, url: str, named: Collection[str]) -> Tables:
    """Makes the tables of the schema, and the views that are `named`, tables of a DuckDB
    connection. Raises `InputError`."""
    own = re.search(r"(?<=[?&])schema=([^&]*)&?", url)
    schema, (address, _, query) = own and own[1], _complete.get(url, url).partition("?")
    query = query.replace(own[0], "") if own else query
    schema = quoted(unquote(schema or "public"))
    with _asking(name_of(url), f"{address}?{_PATIENCE}&{query}".rstrip("&")) as (ask, fields):
        for statement in _BEGIN:
            ask(statement)
        found = ask(
            "SELECT relname::text AS table, has_table_privilege(oid, 'SELECT') AS may "
            f"FROM pg_class WHERE relnamespace = to_regnamespace({text(schema)}) "
            "AND relnatts > 0 AND (relkind IN ('r', 'p', 'f') AND NOT relispartition "
            "OR relkind IN ('v', 'm') AND relname::text = "
            f"ANY(ARRAY[{', '.join(map(text, named))}]::text[])) ORDER BY 1"
        ).to_pylist()
        tables = [row["table"] for row in found if row["may"]]
        if kept := [row["table"] for row in found if not row["may"]]:
            _log.warning("%s: this user may not read %s", name_of(url), ", ".join(kept))
        _check_letters(tables)
        declared = [each for each in _declared(ask, schema) if each.table in tables]
        keys = {each.table: each.columns for each in declared if each.target is None}
        for table in tables:
            where = f"{schema}.{quoted(table)}"
            rows = _rows(ask, where, fields(f"SELECT * FROM {where}"), keys.get(table, ()))
            connection.register(table, rows)
    return tables, declared


@contextmanager
def _asking(name: str, url: str) -> Iterator[tuple[_Ask, Callable[[str], Any]]]:
    with optional("adbc-driver-postgresql"):
        import adbc_driver_postgresql.dbapi as driver
    rule = f"the PostgreSQL database {name} must be there, and readable, until it is read"
    remedy = "Look after its server; a password may be in PGPASSWORD or ~/.pgpass."
    with (
        refusing(driver.Error, rule, remedy),
        driver.connect(url) as connection,
        connection.cursor() as cursor,
    ):
        yield lambda sql: cursor.execute(sql).fetch_arrow_table(), cursor.adbc_execute_schema


def _check_letters(names: list[str]) -> None:
    """DuckDB does not tell upper letters from lower ones."""
    lower = [name.lower() for name in names]
    if twice := [name for name in names if lower.count(name.lower()) > 1]:
        rule = "names in a database must differ in more than upper and lower letters"
        raise InputError(rule, ", ".join(twice), "Rename one, or name a view without it.")


def _declared(ask: _Ask, schema: str) -> list[Declared]:
    """The keys of a schema. Those of partitions are those of their table."""
    columns = (
        "ARRAY(SELECT attname::text FROM unnest({0}) WITH ORDINALITY AS u(n, i) "
        "JOIN pg_attribute ON attrelid = {1} AND attnum = n ORDER BY i)"
    )
    rows = ask(
        "SELECT o.relname::text AS table, CASE WHEN contype = 'f' THEN CASE t.relnamespace "
        "WHEN o.relnamespace THEN t.relname ELSE confrelid::regclass::text END END AS target, "
        f"{columns.format('conkey', 'conrelid')} AS own, "
        f"{columns.format('confkey', 'confrelid')} AS named "
        "FROM pg_constraint JOIN pg_class o ON o.oid = conrelid "
        "LEFT JOIN pg_class t ON t.oid = confrelid "
        f"WHERE o.relnamespace = to_regnamespace({text(schema)}) "
        "AND contype IN ('p', 'f') AND conparentid = 0 ORDER BY o.relname, conkey, conname"
    ).to_pylist()
    return [Declared(r["table"], tuple(r["own"]), r["target"], tuple(r["named"])) for r in rows]


def _rows(ask: _Ask, where: str, fields: Any, key: Columns) -> Any:
    """The Arrow table of a table, in the order of its key, infinite moments missing."""
    import pyarrow

    _check_letters([f"{where}.{field.name}" for field in fields])
    values, infinite, decimals = [], ["false"], {}
    for at, field in enumerate(fields):
        kind, own = field.metadata[b"POSTGRESQL:type"].decode(), quoted(field.name)
        array, value = "[]" if kind[0] == "_" else "", own
        digits = int(field.metadata.get(b"POSTGRESQL:typmod", -1)) - 4
        if kind == "numeric" and 0 <= digits & 2047 <= digits >> 16 <= 38:
            decimals[at] = pyarrow.decimal128(digits >> 16, digits & 2047)
            value = f"nullif({own}, 'NaN')::text"
        elif kind.endswith(("numeric", "money")):
            value = f"{own}::numeric{array}::float8{array}"
        elif kind in _MOMENTS:
            infinite.append(f"NOT isfinite({own})")
            value = f"CASE WHEN isfinite({own}) THEN {own} END"
        elif not _AS_IT_IS.fullmatch(kind):
            value = f"{own}::text{array}"
        values.append(f"{value} AS {own}")
    lost = ask(f"SELECT count(*) FROM {where} WHERE {' OR '.join(infinite)}")[0][0].as_py()
    if lost:
        _log.warning("%s: infinite moments of %d rows are missing", where, lost)
    order = f" ORDER BY {', '.join(map(quoted, key))}" if key else ""
    rows = ask(f"SELECT {', '.join(values)} FROM {where}{order}")
    for at, kind in decimals.items():
        rows = rows.set_column(at, fields[at].name, rows.column(at).cast(kind))
    return rows
