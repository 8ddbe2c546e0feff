"""Folders of LightGCN and NGCF: Gowalla, Yelp2018, Amazon-Book.

`train.txt` and perhaps `valid.txt` and `test.txt` have a line for each user: the user and then
all items, whole numbers with blanks between. A user may have no item. Users and items count
separately: they are the node types `user` and `item`, and `node_ids` has the names `user:17`
and `item:17`. The edge column `split` (int8: 0 train, 1 val, 2 test) says which file an edge is
of.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import edges_of
from jgs.data.formats.triples import ENDINGS, first_rows
from jgs.data.table_graph import plain_of_tables
from jgs.data.text import files_of_splits, numbered_lines
from jgs.data.values import SPLIT_NUMBERS
from jgs.errors import InputError
from jgs.graph import NodeIds


def recognises(path: Path) -> bool:
    """Whether it is a folder whose `train.txt` may have a line for each user."""
    rows = first_rows(path)
    whole = bool(rows) and all(word.isdigit() for row in rows for word in row)
    return whole and len({row[0] for row in rows}) == len(rows)


def read(path: Path, *, both_ways: bool = True) -> Plain:
    """The graph of the folder. `both_ways` adds the reverse relation. Raises `InputError`."""
    users, pairs, splits = [], [], []
    for split, file in files_of_splits(path, ENDINGS).items():
        own, edges = _read(file)
        users.append(own)
        pairs.append(edges)
        splits.append(np.full(edges.shape[1], SPLIT_NUMBERS[split], np.int8))
    src, dst = np.concatenate(pairs, axis=1)
    ends = {"src": src, "dst": dst}
    table = edges_of(str(path), ends, None, Clock(), splits=np.concatenate(splits))
    ids = {"user": NodeIds.of_edges(np.concatenate(users)), "item": NodeIds.of_edges(dst)}
    name = path.resolve().name
    return plain_of_tables(name, {("user", "to", "item"): table}, ids, both_ways=both_ways)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    users, counts, items = [], [], [np.empty(0, np.int64)]
    for line, raw in numbered_lines(path):
        try:
            user, *others = map(int, raw.split())
            items.append(np.array(others, np.int64))
        except (ValueError, OverflowError):
            raise InputError(
                f"every line of {path} must be a user and items, whole numbers",
                f"{' '.join(raw.decode(errors='replace').split())[:60]!r} in line {line}",
                "Correct it.",
            ) from None
        users.append(user)
        counts.append(len(others))
    names = np.array(users, np.int64)
    if len(np.unique(names)) < len(names):
        raise InputError(
            f"{path} must have one line for each user",
            f"{len(names)} lines for {len(np.unique(names))} users",
            "Join the lines, or say layout=triples if each is a head, a relation and a tail.",
        )
    return names, np.stack([np.repeat(names, counts), np.concatenate(items)])
