"""What `jgs data describe` says of a database: its tables and keys, in words and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from jgs.data.column_values import UNITS
from jgs.data.database.catalogue import Columns
from jgs.data.database.sql import quoted
from jgs.data.database.stored_tables import StoredTables
from jgs.errors import InputError

_YEARS = 11_323, 47_482  # 2001 and 2100, in days since 1970
_PER_DAY = (1, *(86_400 * 1000**power for power in range(4)))  # of `UNITS`
_LINE, _WIDTH, _ACROSS = 18, 230, 320  # pixels: of a line, a box, a box and the gap beside it
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-size="12">
<style>rect{{fill:#fff}}rect,path{{stroke:#456}}path{{fill:none}}</style>
<marker id="to" refX="8" refY="4" markerWidth="9" markerHeight="9" orient="auto">
<path d="M0 0L8 4L0 8"/></marker>
{}
</svg>
"""


def schema_of(base: StoredTables, unit: str | None = None) -> dict[str, Any]:
    """The facts of a database, whose numbers count times in `unit`, as JSON can hold them.

    `tables` are dicts with `table`, `rows`, `key`, `time`, its `first` and `last` moment, and
    `missing`, the rows without each column. `keys` are dicts of the foreign keys, with `key`,
    `names`, `missing`, and `lost`, the rows whose key names no row. `warnings` are as in
    `jgs.data.described.facts`: what people often get wrong.
    """
    found: dict[str, Any] = {"tables": [], "keys": [], "warnings": []}
    tables = base.catalogue.tables
    for table, own in tables.items():
        says = list(_refusals(base.check_key, table))
        found["tables"].append(facts := _table(base, table))
        says += _of_times(base, facts, unit)
        for key, target in own.references.items():
            if refused := list(_refusals(base.check_types, table, key, target)):
                says += refused
                continue
            found["keys"].append(facts := _reference(base, table, key, target))
            if lost := facts["lost"]:
                says.append(f"{lost:,} values of {facts['key']} name no row of {target}")
            if tables[target].time and not own.time:
                said = f"{table} has no time, but names rows of {target}, which have one"
                says.append(f"{said}: it is seen from then on, however late it came")
        found["warnings"] += [{"kind": "database", "says": each} for each in says]
    return found


def _refusals(check: Callable[..., None], *of: Any) -> Iterator[str]:
    try:
        check(*of)
    except InputError as error:
        yield str(error)


def _table(base: StoredTables, table: str) -> dict[str, Any]:
    keys, columns = base.catalogue.tables[table], base.columns[table]
    time = quoted(keys.time) if keys.time else "NULL"
    ends = [f"CAST({end}({time}) AS VARCHAR)" for end in ("min", "max")]
    counts = ", ".join(["count(*)", *ends, *(f"count({quoted(column)})" for column in columns)])
    found = base.sql(f"SELECT {counts} FROM {quoted(table)}").columns
    rows, first, last, *known = (column[0].as_py() for column in found)
    missing = {c: rows - n for c, n in zip(columns, known, strict=True) if n < rows}
    facts = {"table": table, "rows": rows, "key": ", ".join(keys.key), "time": keys.time or ""}
    return facts | {"first": first or "", "last": last or "", "missing": missing}


def _reference(base: StoredTables, table: str, key: Columns, target: str) -> dict[str, Any]:
    named, of = base.catalogue.tables[target].key, f"FROM {quoted(table)} a"
    on = [f"a.{quoted(c)} = b.{quoted(k)}" for c, k in zip(key, named, strict=True)]
    gone = f"NOT ({base.given(table, key)})"
    found = base.sql(
        f"SELECT count(*) FILTER (WHERE {gone}), "
        f"(SELECT count(*) {of} ANTI JOIN {quoted(target)} b ON {' AND '.join(on)}) {of}"
    )
    missing, without = (column[0].as_py() for column in found.columns)
    facts = {"key": f"{table}.{', '.join(key)}", "names": target}
    return facts | {"missing": missing, "lost": without - missing}


def _of_times(base: StoredTables, facts: dict[str, Any], unit: str | None) -> Iterator[str]:
    table, time, last = facts["table"], facts["time"], facts["last"]
    what = f"{time} of {table}"
    if last and base.columns[table][time].startswith(("DATE", "TIMESTAMP")):
        value = f"CAST(CAST({quoted(time)} AS TIMESTAMP) AS TIMESTAMPTZ)"  # in UTC
        later = f"SELECT count(*) FROM {quoted(table)} WHERE {value} > now()"
        if number := base.sql(later).column(0)[0].as_py():
            yield f"{what} is in the future in {number:,} rows, up to {last}"
        if last < "1971":
            yield f"{what} ends before 1971, as times of another unit do"
    elif last.isdigit():
        days = {name: int(last) / each for name, each in zip(UNITS, _PER_DAY, strict=True)}
        like = [name for name, day in days.items() if _YEARS[0] < day < _YEARS[1]] or UNITS
        if unit not in like:
            said = f"{what} is a number up to {last}, and its unit is {unit or 'not known'}"
            yield f"{said}: say --data-options time_unit={' or '.join(like)}"


def picture_of(base: StoredTables) -> str:
    """An SVG of the tables, each to the right of those that it names, and of its keys."""
    tables, level = base.catalogue.tables, dict.fromkeys(base.catalogue.tables, 0)
    for _ in tables:  # as many steps as the longest way; where keys go round, it ends too
        for table, own in tables.items():
            named = [level[target] + 1 for target in own.references.values() if target != table]
            level[table] = min(max(named, default=0), len(tables) - 1)
    below, at, drawn = [20] * len(tables), {}, []
    for table, own in tables.items():
        keys = {*own.key, own.time, *(c for key in own.references for c in key)}
        lines = [f"{c} {kind.lower()}" for c, kind in base.columns[table].items() if c in keys]
        more = len(base.columns[table]) - len(lines)
        x, y = at[table] = 20 + level[table] * _ACROSS, below[level[table]]
        height = _LINE * (len(lines) + 2) + 8
        below[level[table]] += height + 30
        drawn.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="4"/>')
        for i, line in enumerate([table, *lines, f"and {more} columns"]):
            bold = "" if i else ' font-weight="bold"'
            own_line = f'x="{x + 8}" y="{y + _LINE * (i + 1)}"{bold}>{escape(line)}'
            drawn.append(f"<text {own_line}</text>")
    for table, own in tables.items():
        for key, target in own.references.items():
            (x, y), (to, end) = at[table], at[target]
            side, y = (-45, y + 12) if x > to else (45, y + 34)
            x, to, end = x if x > to else x + _WIDTH, to + _WIDTH, end + 12
            way = f"M{x} {y}C{x + side} {y} {to + 45} {end} {to} {end}"
            name = f"<title>{escape(', '.join(key))}</title>"
            drawn.append(f'<path d="{way}" marker-end="url(#to)">{name}</path>')
    return _SVG.format(_ACROSS * (max(level.values()) + 1), max(below), "\n".join(drawn))
