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

A network of trust (`soc-sign-bitcoinotc.csv`, also gzipped) has no line of names. Each line is
`source,target,rating,time`, of which the time is a moment as above. It is read as a table of
edges (`jgs.data.formats.tables`) whose `label` is the rating, a number.

The graph has an edge for each line: directed, with parallel edges. Any integers may name nodes;
`node_ids` has them, in ascending order.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.edge_table import called, edges_of
from jgs.data.formats import tables
from jgs.data.formats.snap import is_edge_list
from jgs.data.text import (
    delimiter_of,
    first_line,
    first_row,
    is_number,
    last_comment,
    read_named,
    unnamed,
)
from jgs.data.times import Clock
from jgs.errors import InputError
from jgs.graph import NodeIds

_log = logging.getLogger("jgs")
_COMMENTS = (b"#", b"%")
_TRUST = "src,dst,label,time"
_MOMENTS = (631_152_000, 4_102_444_800)  # seconds from 1970 to 1990, and to 2100


def is_list(path: Path, named: bool = False) -> bool:
    """Whether it is an edge list whose lines have more than two columns with white space
    between, and not one of KONECT's. With `named`, where the user says what the columns are,
    KONECT's are such lists, two columns are enough, and lines with tabs are those of a table.
    """
    first = first_line(path) if is_edge_list(path) else b"% bip"
    if first.split()[:2] == [b"%", b"bip"] or (first.startswith(b"%") and not named):
        return False
    if named and b"\t" in first and not first.startswith((b"#", b"%")):
        return False
    row = first_row(path, _COMMENTS).split(_between(path))
    return len(row) > (1 if named else 2) and all(map(is_number, row))


def is_trust(path: Path) -> bool:
    """Whether it is a network of trust: a file without a line of names, of 4 columns, of which
    the last has moments."""
    if not path.name.endswith((".csv", ".csv.gz")) or not path.is_file():
        return False
    fields = first_line(path).split(b",")
    return len(fields) == 4 and all(map(is_number, fields)) and _scale(float(fields[3])) > 0


def load_plain(
    path: Path,
    *,
    columns: str | None = None,
    symmetric: bool = False,
    both_ways: bool = False,
    label_kind: str | None = None,
    time_unit: str | None = None,
    time_scale: int = 1,
) -> Plain:
    """The graph of the list at `path`.

    Args:
      columns: the names of all columns, with commas between.
      symmetric, both_ways, label_kind: as in `jgs.data.formats.tables.load_plain`.
      time_unit, time_scale: see `jgs.data.times.Clock`.

    Raises `InputError`.
    """
    clock = Clock(time_unit, time_scale).check()
    if symmetric and both_ways:
        raise InputError(
            "one of symmetric and both_ways must be true at most", "both", "Leave one out."
        )
    row = first_row(path, _COMMENTS).split(_between(path))
    names = _names(path, columns, len(row))
    if names is None and len(row) != 3:
        raise unnamed(path, row)
    found = _read(path, names or ["src", "dst", "time"], row)
    if names is None:
        _check_moments(path, found["time"], row)
    back = {name: role for role, name in called(path, list(found), {}).items()}
    table = edges_of(
        str(path), {back.get(n, n): a for n, a in found.items()}, label_kind, clock
    )
    ids = NodeIds.of_edges(table.src, table.dst)
    graph = table.graph(ids, symmetric, both_ways)
    name = path.name.partition(".")[0]
    plain = Plain(name, graph, None, None, None, node_ids=ids, time_unit=table.time_unit)
    return plain._replace(label_names=table.label_names)


@wraps(load_plain, assigned=(), updated=())  # its options alone
def load_trust(path: Path, **options: Any) -> Plain:
    """The graph of the network of trust at `path`. The options are those of `load_plain`.
    Raises `InputError`."""
    return tables.load_plain(path, **{"columns": _TRUST, "label_kind": "number"} | options)


def _names(path: Path, columns: str | None, width: int) -> list[str] | None:
    """The names of a list's columns, or None where neither the user nor a comment says them."""
    if columns is not None:
        names = [name.strip() for name in columns.split(",")]
    else:
        comment = last_comment(path).decode(errors="replace").replace(",", " ").split()
        if len(comment) != width or len(set(comment)) < width or any(map(is_number, comment)):
            return None
        names = [name.lower() for name in comment]
        names = [_OF_SNAP.get(name, name) for name in names]
    if len(set(names)) != width or not {"src", "dst"} <= set(_ends(names)):
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


def _ends(names: list[str]) -> list[str]:
    back = {name: role for role, name in called(Path(), names, {}).items()}
    return [back.get(name, name) for name in names]


def _read(path: Path, names: list[str], row: list[bytes]) -> dict[str, np.ndarray]:
    """The columns of a list, `[n]` each, by name: int64 where all of its numbers are whole, and
    else float64; the ends are always int64."""
    digits = [field.strip().lstrip(b"+-").isdigit() for field in row]
    whole = dict(zip(names, digits, strict=True))
    ends = dict(zip(names, _ends(names), strict=True))
    whole |= {name: True for name, end in ends.items() if end in ("src", "dst")}
    try:
        return _columns(path, whole)
    except InputError:  # perhaps a number with a point comes after whole ones
        whole |= {name: False for name, end in ends.items() if end not in ("src", "dst")}
        return _columns(path, whole)


def _columns(path: Path, whole: dict[str, bool]) -> dict[str, np.ndarray]:
    kinds = {name: np.int64 if one else np.float64 for name, one in whole.items()}
    return read_named(path, kinds, delimiter=delimiter_of(path), comments=("#", "%"))


def _check_moments(path: Path, column: np.ndarray, row: list[bytes]) -> None:
    """Raises `InputError` unless the third column can only be times."""
    scale = _scale(float(column.min()))
    if scale == 0 or _scale(float(column.max())) != scale:
        raise unnamed(path, row)
    days = [
        datetime.fromtimestamp(float(f(column)) / scale, UTC).date() for f in (np.min, np.max)
    ]
    read = "the third column is read as times, from %s to %s"
    other = "--data-options columns=src,dst,weight would read weights"
    _log.info(f"%s: {read}; {other}", path, *days)


def _scale(number: float) -> int:
    """In how many parts of a second a moment of Unix time is counted; 0 for none."""
    least, most = _MOMENTS
    return next((each for each in (1, 1000) if least <= number / each < most), 0)
