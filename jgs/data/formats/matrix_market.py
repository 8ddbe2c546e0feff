"""Files of MatrixMarket, `.mtx` and `.mtx.gz`, as SuiteSparse and Network Repository have them.

The matrix is sparse (`coordinate`). Entry `i j` is an edge from `i` to `j`, and `node_ids` has
the numbers in the file, from 1. Values of `real` and `integer` matrices are the weights;
`pattern` has none. A `symmetric` file lists one triangle, and each of its edges goes both ways;
one that lists an entry and its mirror image is refused. The edges of a `general` file are taken
as they are. A matrix that is not square has two node types, `row` and `column`, of which each
counts from 1, and the relation `to`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.arrays import check_range
from jgs.data.dataset import Plain
from jgs.data.table_graph import typed_ids
from jgs.data.text import numbered_lines, read_named
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds

ENDINGS = (".mtx", ".mtx.gz")


def read(path: Path, *, symmetric: bool = False, both_ways: bool = True) -> Plain:
    """The graph of the file.

    Args:
      symmetric: whether to add every edge's reverse and keep each edge once, for `general`
        files that list each edge in one direction.
      both_ways: where there are two node types, whether to add the reverse relation.

    Raises `InputError`.
    """
    (rows, columns, count), field, kind, skip = _header(path)
    src, dst, weight = _entries(path, field, skip)
    if src.size != count:
        raise InputError(
            f"{path} must have the entries that its line of sizes counts",
            f"{src.size} of {count}",
            "It is damaged or cut short: fetch it again.",
        )
    check_range(f"the rows in {path} must be from 1 to {rows}", src, rows, "Correct it.")
    check_range(
        f"the columns in {path} must be from 1 to {columns}", dst, columns, "Correct it."
    )
    if kind == "symmetric":
        _check_triangle(path, src, dst)
        back = np.flatnonzero(src != dst)
        src, dst = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
        weight = None if weight is None else np.concatenate([weight, weight[back]])
    name = path.name.partition(".mtx")[0]
    if rows == columns:
        graph = Graph.from_edges(src, dst, rows, weight, symmetric=symmetric)
        return Plain(name, graph, node_ids=NodeIds(np.arange(1, rows + 1)))
    counts, one = {"row": rows, "column": columns}, ("row", "to", "column")
    graph = Graph.from_relations(
        counts,
        {one: (src, dst)},
        None if weight is None else {one: weight},
        both_ways=both_ways,
    )
    ids = {end: NodeIds(np.arange(1, count + 1)) for end, count in counts.items()}
    return Plain(name, graph, node_ids=typed_ids(ids))


def _header(path: Path) -> tuple[tuple[int, ...], str, str, int]:
    """Sizes (rows, columns, entries), field, symmetry, and the lines that these take."""
    banner: list[str] = []
    for line, raw in numbered_lines(path, 1 << 14):
        words = raw.decode(errors="replace").lower().split()
        if line == 1:
            banner = words
        if line == 1 or not words or words[0].startswith("%"):
            continue
        good = len(banner) == 5 and banner[:3] == ["%%matrixmarket", "matrix", "coordinate"]
        if not good or banner[3] not in _FIELDS or banner[4] not in _KINDS:
            raise InputError(
                f"{path} must begin with %%MatrixMarket matrix coordinate, a field of "
                f"{', '.join(_FIELDS)} and {' or '.join(_KINDS)}",
                " ".join(banner)[:80],
                "Write it with scipy.io.mmwrite.",
            )
        sizes = tuple(int(word) for word in words if word.isdecimal())
        if len(words) != 3 or len(sizes) != 3:
            raise InputError(
                f"line {line} of {path} must be the numbers of rows, columns and entries",
                " ".join(words)[:80],
                "Fetch it again.",
            )
        return sizes, banner[3], banner[4], line
    raise InputError(f"{path} must have a line of sizes", "none", "Fetch it again.")


_FIELDS, _KINDS = ("pattern", "real", "integer"), ("general", "symmetric")


def _entries(
    path: Path, field: str, skip: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows and columns of all entries, from 0, and their values."""
    kinds: dict[str, type] = {"row": np.int64, "column": np.int64}
    if field != "pattern":
        kinds["value"] = np.int64 if field == "integer" else np.float64
    found = read_named(path, kinds, delimiter=None, comments="%", skip=skip)
    return found["row"] - 1, found["column"] - 1, found.get("value")


def _check_triangle(path: Path, src: np.ndarray, dst: np.ndarray) -> None:
    lower, upper = src > dst, src < dst
    if lower.any() and upper.any():
        below = np.stack([src[lower], dst[lower]], axis=1)
        above = np.stack([dst[upper], src[upper]], axis=1)
        pairs, counts = np.unique(
            np.concatenate([np.unique(below, axis=0), np.unique(above, axis=0)]),
            axis=0,
            return_counts=True,
        )
        if (counts > 1).any():
            i, j = (pairs[np.argmax(counts > 1)] + 1).tolist()
            raise InputError(
                f"{path}, which is symmetric, must list one triangle",
                f"both {i} {j} and {j} {i}",
                "Call it general in its first line, or remove one of the two.",
            )
