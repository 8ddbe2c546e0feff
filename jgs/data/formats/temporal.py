"""Text lists of events, as SNAP has them: temporal networks, and signed networks of trust.

A temporal network (`CollegeMsg.txt`, `sx-mathoverflow.txt`) has one event a line: source,
target and time, with white space between. `#` begins comments. The file may be gzipped. Its
name ends as those of edge lists do (`jgs.data.formats.snap`).

A network of trust (`soc-sign-bitcoinotc.csv`, also gzipped) has no line of names. Each line is
`source,target,rating,time`. It is read as a table of edges (`jgs.data.formats.tables`) whose
`label` is the rating, a number.

The graph has an edge for each event, as listed: directed, with parallel edges. Any numbers may
name nodes; `node_ids` has them, in ascending order.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.edge_table import EdgeTable
from jgs.data.formats import tables
from jgs.data.formats.snap import is_edge_list
from jgs.data.text import first_line, first_row, read_rows
from jgs.data.times import Clock
from jgs.errors import InputError
from jgs.graph import NodeIds

_TRUST = "src,dst,label,time"


def is_temporal(path: Path) -> bool:
    """Whether it is an edge list whose lines have a third column, and not one of KONECT's."""
    if not is_edge_list(path) or first_line(path).startswith(b"%"):
        return False
    return len(first_row(path).split()) == 3


def is_trust(path: Path) -> bool:
    """Whether it is a network of trust: a file without a line of names, of 4 columns."""
    if not path.name.endswith((".csv", ".csv.gz")) or not path.is_file():
        return False
    fields = first_line(path).split(b",")
    return len(fields) == 4 and all(map(_is_number, fields))


def load_plain(
    path: Path,
    *,
    symmetric: bool = False,
    both_ways: bool = False,
    time_unit: str | None = None,
    time_scale: int = 1,
) -> Plain:
    """The graph of the temporal network at `path`.

    Args:
      symmetric, both_ways: as in `jgs.data.formats.tables.load_plain`.
      time_unit, time_scale: see `jgs.data.times.Clock`.

    Raises `InputError`.
    """
    clock = Clock(time_unit, time_scale).check()
    if symmetric and both_ways:
        raise InputError(
            "one of symmetric and both_ways must be true at most", "both", "Leave one out."
        )
    last = first_row(path).split()[2]
    dtype = np.int64 if last.lstrip(b"+-").isdigit() else np.float64
    parts = [*read_rows(path, dtype, delimiter=None, comments="#", columns=3)]
    rows = np.concatenate(parts)
    src, dst = (_ids(path, rows[:, column]) for column in (0, 1))
    time = clock.whole(str(path), rows[:, 2])
    table = EdgeTable(str(path), src, dst, None, time, {}, None, clock.unit_of(time))
    ids = NodeIds.of_edges(src, dst)
    graph = table.graph(ids, symmetric, both_ways)
    name = path.name.partition(".")[0]
    return Plain(name, graph, None, None, None, node_ids=ids, time_unit=table.time_unit)


@wraps(load_plain, assigned=(), updated=())  # its options alone
def load_trust(path: Path, **options: Any) -> Plain:
    """The graph of the network of trust at `path`. The options are those of `load_plain`.
    Raises `InputError`."""
    return tables.load_plain(path, columns=_TRUST, label_kind="number", **options)


def _ids(path: Path, column: np.ndarray) -> np.ndarray:
    """The names of nodes, int64: of a column of a list whose times are no integers."""
    ids = column.astype(np.int64)
    if (ids != column).any():
        at = int(np.argmax(ids != column))
        raise InputError(
            f"{path} must name nodes by whole numbers",
            f"{column[at]} in row {at}",
            "Write a table of edges, whose ids may be text.",
        )
    return ids


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
