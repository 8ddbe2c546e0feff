"""JODIE's CSV files of users and items, such as `wikipedia.csv` and `reddit.csv`, and those of
TGB in the same form (`tgbl-wiki_edgelist_v2.csv`).

The first line is `user_id,item_id,timestamp,state_label,comma_separated_list_of_features`. Each
other line is an event: the user, the item, the time, the label and, in all further columns, its
features, as many in each line. The file may be gzipped, with `.gz` behind its name.

The graph has the node types `user` and `item`, each with ids of its own, and a relation from
users to items, whose edges are the events. Edges have `edge_time` and the edge columns `label`
(int32) and `features` (float32 `[E, F]`, finite). `node_ids` has the names `user:17` and
`item:17`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import EdgeTable, edges_of
from jgs.data.table_graph import plain_of_tables
from jgs.data.text import first_line, line_chunks
from jgs.errors import InputError
from jgs.files.arrow import read_arrow, read_columns
from jgs.graph.row_tables.dense import check_finite

_HEADER = ("user_id", "item_id", "timestamp", "state_label")
_ROLES = ("src", "dst", "time", "label")
_REST = "comma_separated_list_of_features"
_ENDINGS = (".csv", ".csv.gz")
UNLABELLED = True


def recognises(path: Path) -> bool:
    """Whether it is a file whose first line is that of JODIE's files."""
    if not path.name.endswith(_ENDINGS) or not path.is_file():
        return False
    names = first_line(path).decode("utf-8-sig", errors="replace").strip().split(",")
    return [name.strip() for name in names] == [*_HEADER, _REST]


def read(
    path: Path,
    *,
    relation: str = "to",
    both_ways: bool = True,
    label_kind: str | None = None,
    clock: Clock,
) -> Plain:
    """The graph of the events in the file at `path`.

    Args:
      relation: the name of the relation from users to items.
      both_ways: whether to add the reverse of every event, as the relation `rev_<relation>`.
      label_kind: "class" or "number", whatever the labels look like.
      clock: how times are counted.

    Raises `InputError`.
    """
    table = _read(path, label_kind, clock)
    name = path.name
    for ending in reversed(_ENDINGS):
        name = name.removesuffix(ending)
    return plain_of_tables(name, {("user", relation, "item"): table}, both_ways=both_ways)


def _read(path: Path, label_kind: str | None, clock: Clock) -> EdgeTable:
    lines = next(line_chunks(path, 1 << 16), b"").split(b"\n")
    width = len(lines[1].split(b",")) if len(lines) > 1 and lines[1].strip() else 0
    if width < len(_HEADER):
        raise InputError(
            f"{path} must have events of at least {len(_HEADER)} columns",
            f"{width} columns in line 2" if width else "no line after the first",
            "Fetch the file again.",
        )
    names = [*_HEADER, *(f"feature_{number}" for number in range(width - len(_HEADER)))]
    types = {name: "float" for name in names[len(_HEADER) :]}
    table = read_columns(read_arrow(path, types, names, 1, ids=_HEADER[:2]))
    features = np.empty((len(table["user_id"]), width - len(_HEADER)), np.float32)
    for number, name in enumerate(names[len(_HEADER) :]):
        features[:, number] = table.pop(name)
    check_finite(f"the features of the events in {path}", features)
    columns = {role: table[name] for role, name in zip(_ROLES, _HEADER, strict=True)}
    return edges_of(str(path), columns | {"features": features}, label_kind, clock)
