"""MovieLens's `ratings.dat` of 1M and 10M, with `::` between the columns.

A line is `user::movie::rating::time`, of which the time, in Unix seconds, may be missing in all
lines. The data set is the file, or a folder with it; `users.dat` and `movies.dat` are not read,
and a log says so. Users and movies count separately: they are the node types `user` and `item`,
and `node_ids` has the names `user:17` and `item:17`. The edge column `label` is the rating, a
number.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import edges_of
from jgs.data.table_graph import plain_of_tables
from jgs.data.text import first_line, read_named

_log = logging.getLogger("jgs")
_RATINGS = "ratings.dat"
_LINE = re.compile(rb"\d+::\d+::\d+(\.\d+)?(::\d+)?\s*")


def recognises(path: Path) -> bool:
    """Whether it is such a file, or a folder with `ratings.dat`."""
    file = path / _RATINGS if path.is_dir() else path
    return file.suffix == ".dat" and file.is_file() and bool(_LINE.fullmatch(first_line(file)))


def read(path: Path, *, both_ways: bool = True, label_kind: str = "number") -> Plain:
    """The graph of the file. `both_ways` adds the reverse relation, and `label_kind` is "class"
    or "number". Raises `InputError`."""
    file = path / _RATINGS if path.is_dir() else path
    kinds = {"src": np.int64, "dst": np.int64, "label": np.float64, "time": np.int64}
    kinds = dict([*kinds.items()][: len(first_line(file).split(b"::"))])
    columns = read_named(file, kinds, delimiter="::")
    table = edges_of(str(file), columns, label_kind, Clock("s"))
    if others := sorted(each.name for each in file.parent.glob("*.dat") if each != file):
        _log.info("%s: not read: %s", path, ", ".join(others))
    name = path.resolve().name if path.is_dir() else path.stem
    return plain_of_tables(name, {("user", "to", "item"): table}, both_ways=both_ways)
