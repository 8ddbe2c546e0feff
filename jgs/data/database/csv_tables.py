"""CSV files as DuckDB reads them; and what it would guess. `01/02/2024` is text, and no date;
so is `0x1A`, which is no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jgs.data.database.sql import quoted, text
from jgs.files.arrow import HEXADECIMAL, has_hexadecimal

_READ = "read_csv({}, header = true, skip = 0, dateformat = '%Y-%m-%d'{})"


def source_of(connection: Any, file: Path) -> str:
    """SQL of the rows of a CSV file."""
    own = text(file)
    if not has_hexadecimal(file):
        return _READ.format(own, "")
    kinds = connection.sql(f"DESCRIBE SELECT * FROM {_READ.format(own, '')}").fetchall()
    whole = [name for name, kind, *_ in kinds if kind.endswith("INT")]
    found = ", ".join(f"bool_or(regexp_matches({quoted(n)}, '{HEXADECIMAL}'))" for n in whole)
    every = _READ.format(own, ", all_varchar = true")
    [marks] = connection.sql(f"SELECT {found or 'NULL'} FROM {every} LIMIT 1").fetchall()
    words = [name for name, one in zip(whole, marks, strict=False) if one]
    types = ", ".join(f"{text(name)}: 'VARCHAR'" for name in words)
    return _READ.format(own, f", types = {{{types}}}" if words else "")
