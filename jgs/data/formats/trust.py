"""Networks of trust, such as `soc-sign-bitcoinotc.csv`, also gzipped, without a line of names.

Each line is `source,target,rating,time`, of which the time is a moment of Unix time as in
`jgs.data.formats.temporal`. It is read as a table of edges (`jgs.data.formats.tables`) whose
`label` is the rating, a number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from jgs.data.dataset import Plain
from jgs.data.formats import tables
from jgs.data.formats.temporal import parts_of_a_second
from jgs.data.text import first_line, is_number

UNLABELLED = True


def recognises(path: Path) -> bool:
    """Whether it is a file of 4 columns of numbers, of which the last has moments."""
    if not path.name.endswith((".csv", ".csv.gz")) or not path.is_file():
        return False
    fields = first_line(path).split(b",")
    four = len(fields) == 4 and all(map(is_number, fields))
    return four and parts_of_a_second(float(fields[3])) > 0


def recognises_named(path: Path) -> bool:
    """A file whose columns the user names is a table of edges."""
    return False


@wraps(tables.read, assigned=(), updated=())  # its options alone
def read(path: Path, labelled: bool = False, **options: Any) -> Plain:
    """The graph of the network at `path`. The options are those of `tables.read`. Raises
    `InputError`."""
    if options["roles"].columns is None:
        options["roles"] = replace(options["roles"], columns="src,dst,label,time")
    return tables.read(path, **{"label_kind": "number"} | options)
