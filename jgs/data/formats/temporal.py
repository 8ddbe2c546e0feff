"""Text lists of edges with more than two columns, as SNAP and others have them: events,
weights, signs and trust.

A list has one edge a line, source and target first, with white space between, or commas in a
file that ends in `.edges`. `#` begins comments. The file may be gzipped, and its name ends as
those of edge lists do (`jgs.data.formats.snap`). What the other columns are is said by, in this
order:

  1. the option `columns`, with a name for each, `src,dst,weight`;
  2. the last comment before the first edge, if it has a name for each column, such as
     `# FromNodeId ToNodeId Sign` of `soc-sign-epinions.txt`;
  3. the format: in a temporal network (`CollegeMsg.txt`, `sx-mathoverflow.txt`) the third
     column has moments of Unix time, in seconds or milliseconds. It is taken where all of its
     numbers are such moments from 1990 to 2100, and a line of the log says so.

A list of which none says it is refused. Names mean what they do in tables of edges
(`jgs.data.edge_table`), in small letters.

The graph has an edge for each line: directed, with parallel edges. Any integers may name nodes;
`node_ids` has them, in ascending order.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import Roles, called, edges_of
from jgs.data.formats.snap import is_edge_list
from jgs.data.table_graph import UNTYPED, plain_of_tables
from jgs.data.text import (
    delimiter_of,
    first_line,
    first_row,
    is_number,
    last_comment,
    read_named,
    unnamed,
)
from jgs.errors import InputError

UNLABELLED = True
_log = logging.getLogger("jgs")
_COMMENTS = (b"#", b"%")
_MOMENTS = (631_152_000, 4_102_444_800)  # seconds from 1970 to 1990, and to 2100


def recognises(path: Path) -> bool:
    """Whether it is an edge list without arrays beside it, whose lines have more than two
    columns with white space between, and not one of KONECT's."""
    return _is_list(path) and not first_line(path).startswith(b"%") and _width(path) > 2


def recognises_named(path: Path) -> bool:
    """As `recognises`, where the user says what the columns are: KONECT's lists are such lists,
    two columns are enough, and lines with tabs are those of a table."""
    first = first_line(path) if _is_list(path) else b"\t"
    tabs = b"\t" in first and not first.startswith(_COMMENTS)
    return not tabs and first.split()[:2] != [b"%", b"bip"] and _width(path) > 1


def _is_list(path: Path) -> bool:
    return is_edge_list(path) and not (path.parent / "labels.npy").exists()


def _width(path: Path) -> int:
    """The number of columns in the first row, 0 where one of them is no number."""
    row = first_row(path, _COMMENTS).split(_between(path))
    return len(row) if all(map(is_number, row)) else 0


def read(
    path: Path,
    *,
    columns: str | None = None,
    symmetric: bool = False,
    both_ways: bool = False,
    label_kind: str | None = None,
    clock: Clock,
) -> Plain:
    """The graph of the list at `path`.

    `columns` are the names of all columns, with commas between. The other options are those of
    `jgs.data.formats.tables.read`. Raises `InputError`.
    """
    row = first_row(path, _COMMENTS).split(_between(path))
    names = _names(path, columns, len(row))
    if names is None and len(row) != 3:
        raise unnamed(path, row)
    found = _read(path, names or ["src", "dst", "time"], row)
    if names is None:
        _check_moments(path, found["time"], row)
    table = edges_of(str(path), found, label_kind, clock)
    name, edges = path.name.partition(".")[0], {UNTYPED: table}
    return plain_of_tables(name, edges, both_ways=both_ways, symmetric=symmetric)


def _names(path: Path, columns: str | None, width: int) -> list[str] | None:
    if columns is not None:
        names = [name.strip() for name in columns.split(",")]
    else:
        comment = last_comment(path).decode(errors="replace").replace(",", " ").split()
        if len(comment) != width or len(set(comment)) < width or any(map(is_number, comment)):
            return None
        names = [name.lower() for name in comment]
        names = [_OF_SNAP.get(name, name) for name in names]
    if len(set(names)) != width or not {"src", "dst"} <= set(_ends(path, names)):
        raise InputError(
            f"the columns of {path} must have a name each, of which two are src and dst",
            f"{', '.join(names)} for {width} columns",
            f"Give --data-options columns={','.join(['src', 'dst', 'weight'][:width])}.",
        )
    return names


_OF_SNAP = {"fromnodeid": "src", "tonodeid": "dst"}


def _between(path: Path) -> bytes | None:
    delimiter = delimiter_of(path)
    return None if delimiter is None else delimiter.encode()


def _ends(path: Path, names: list[str]) -> list[str]:
    back = {name: role for role, name in called(path, names, Roles()).items()}
    return [back.get(name, name) for name in names]


def _read(path: Path, names: list[str], row: list[bytes]) -> dict[str, np.ndarray]:
    """The columns `[n]` by name: int64 where all numbers are whole, and else float64."""
    ends = dict(zip(names, _ends(path, names), strict=True))
    others = [name for name, end in ends.items() if end not in ("src", "dst")]
    whole = {n: f.strip().lstrip(b"+-").isdigit() for n, f in zip(names, row, strict=True)}
    kinds = {n: np.float64 if n in others and not whole[n] else np.int64 for n in names}
    return read_named(path, kinds, others, delimiter=delimiter_of(path), comments=("#", "%"))


def _check_moments(path: Path, column: np.ndarray, row: list[bytes]) -> None:
    scale = parts_of_a_second(float(column.min()))
    if scale == 0 or parts_of_a_second(float(column.max())) != scale:
        raise unnamed(path, row)
    days = [
        datetime.fromtimestamp(float(f(column)) / scale, UTC).date() for f in (np.min, np.max)
    ]
    read = "the third column is read as times, from %s to %s"
    other = "--data-options columns=src,dst,weight would read weights"
    _log.info(f"%s: {read}; {other}", path, *days)


def parts_of_a_second(number: float) -> int:
    """In how many parts of a second a moment of Unix time is counted; 0 for none."""
    least, most = _MOMENTS
    return next((each for each in (1, 1000) if least <= number / each < most), 0)
