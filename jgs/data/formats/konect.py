"""Bipartite lists of KONECT, whose first line is `% bip` and the kind of their weights.

A second line of comments may have the numbers of edges, of left and of right nodes. A line then
has a left node, a right node, and perhaps a weight and a time. Both kinds of nodes count from
1: they are the node types `left` and `right`, and `node_ids` has the names `left:17` and
`right:17`.

Weights of `positive`, `posweighted` and `unweighted` lists are those of the edges, unless all
are 1. Those of other kinds, which are ratings and signs, are the edge column `label`, a number.
Lists of one kind of nodes are those of `jgs.data.formats.snap`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.arrays import check_range
from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import edges_of, two_types
from jgs.data.formats.snap import is_edge_list
from jgs.data.table_graph import plain_of_tables
from jgs.data.text import first_line, first_row, line_chunks, read_named
from jgs.errors import InputError
from jgs.graph import NodeIds

_WEIGHTS = ("unweighted", "positive", "posweighted")


def recognises(path: Path) -> bool:
    """Whether it is a list whose first line calls it bipartite."""
    return is_edge_list(path) and first_line(path).split()[:2] == [b"%", b"bip"]


def read(
    path: Path,
    *,
    src_type: str = "left",
    dst_type: str = "right",
    relation: str = "to",
    both_ways: bool = True,
) -> Plain:
    """The graph of the list. `src_type`, `dst_type` and `relation` are the names of the node
    types and of the relation, and `both_ways` adds its reverse. Raises `InputError`."""
    width = len(first_row(path, b"%").split())
    if not 2 <= width <= 4:
        raise InputError(
            f"{path} must have 2 to 4 columns: two nodes, a weight and a time",
            width,
            "Correct it.",
        )
    kinds = {"src": np.int64, "dst": np.int64, "weight": np.float64, "time": np.int64}
    kinds = dict([*kinds.items()][:width])
    columns = read_named(path, kinds, [*kinds][3:], delimiter=None, comments="%")
    counts = _counts(path, columns)
    weight = columns.pop("weight", None)
    kind = first_line(path).split()[2:3]
    if weight is not None and b"".join(kind).decode(errors="replace") not in _WEIGHTS:
        columns["label"] = weight
    elif weight is not None and (weight != 1).any():
        columns["edge_weight"] = weight
    table = edges_of(str(path), columns, "number", Clock())
    one = two_types(src_type, dst_type, relation)
    left, right = (NodeIds(np.arange(1, count + 1)) for count in counts)
    ids = {src_type: left, dst_type: right}
    name = path.name.removeprefix("out.").partition(".")[0]
    return plain_of_tables(name, {one: table}, ids, both_ways=both_ways)


def _counts(path: Path, columns: dict[str, np.ndarray]) -> list[int]:
    """The numbers of left and of right nodes: those of the second line, or the largest ids."""
    head = next(line_chunks(path, 1 << 12)).splitlines()[1:2]
    stated = b"".join(head).removeprefix(b"%").split() if head[0][:1] == b"%" else []
    if len(stated) != 3 or not all(word.isdigit() for word in stated):
        counts = [int(columns[end].max()) for end in ("src", "dst")]
    else:
        num_edges, *counts = map(int, stated)
        if num_edges != columns["src"].size:
            raise InputError(
                f"{path} must have the edges that its second line counts",
                f"{columns['src'].size} of {num_edges}",
                "It is damaged or cut short: fetch it again.",
            )
    for end, count in zip(("src", "dst"), counts, strict=True):
        rule = f"the {'left' if end == 'src' else 'right'} nodes in {path} must be from 1"
        check_range(f"{rule} to {count}", columns[end] - 1, count, "Correct it.")
    return counts
