"""CSV files as DuckDB reads them; and what it would guess. `01/02/2024` is text, and no date;
so is `0x1A`, which is no number. A column's type is that of all its rows, not of the first
20,480, and moments keep all digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jgs.data.database.sql import quoted, text
from jgs.files.arrow import HEXADECIMAL, has_hexadecimal

_READ = "read_csv({}, header = true, skip = 0, dateformat = '%Y-%m-%d'{})"
_FINE = r"\.\d{7}"  # DuckDB's own timestamps have six digits of a second


def source_of(connection: Any, file: Path) -> str:
    """SQL of the rows of a CSV file."""
    own = text(file)
    kinds = _kinds(connection, own, "")
    types = _others(connection, own, kinds)
    kinds |= types
    marked = {name: ("TIMESTAMP_NS", _FINE) for name, k in kinds.items() if k == "TIMESTAMP"}
    if has_hexadecimal(file):
        whole = (name for name, kind in kinds.items() if kind.endswith("INT"))
        marked |= {name: ("VARCHAR", HEXADECIMAL) for name in whole}
    if marked:
        found = (f"bool_or(regexp_matches({quoted(n)}, '{p}'))" for n, (_, p) in marked.items())
        every = _READ.format(own, ", all_varchar = true")
        [marks] = connection.sql(f"SELECT {', '.join(found)} FROM {every}").fetchall()
        named = zip(marked.items(), marks, strict=True)
        types |= {name: kind for (name, (kind, _)), one in named if one}
    listed = ", ".join(f"{text(name)}: '{kind}'" for name, kind in types.items())
    return _READ.format(own, f", types = {{{listed}}}" if types else "")


def _kinds(connection: Any, own: str, options: str) -> dict[str, str]:
    described = connection.sql(f"DESCRIBE SELECT * FROM {_READ.format(own, options)}")
    return {name: kind for name, kind, *_ in described.fetchall()}


def _others(connection: Any, own: str, kinds: dict[str, str]) -> dict[str, str]:
    """The types of the columns with values that those of the first rows do not fit."""
    import duckdb

    counts = ", ".join(f"count({quoted(name)})" for name in kinds)
    try:
        connection.sql(f"SELECT {counts} FROM {_READ.format(own, '')}").fetchall()
    except duckdb.ConversionException:
        found = _kinds(connection, own, ", sample_size = -1")
        return {name: kind for name, kind in found.items() if kind != kinds.get(name)}
    return {}
