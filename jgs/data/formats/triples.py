"""Triples `head relation tail` of a knowledge graph, such as FB15k-237, umls and kinships; and
quadruples `head relation tail time`, such as ICEWS, GDELT, WIKI and YAGO.

A folder has `train.txt` and, if there are some, `valid.txt` (or `val.txt`) and `test.txt`, each
of which may be gzipped, with `.gz` behind its name. A line is a triple: three names, with tabs
between them if the file's first line has a tab, and else with white space. Blank lines are
skipped. Of four columns the last is the time, a whole number or a date. A fifth column that is
the same in all lines is left out, as all who use these files do; another one is refused. The
option `columns` says otherwise what the columns are.

The graph has one node type, `entity`, whose nodes are all names of heads and tails in
alphabetical order; `node_ids` has them. Names of relations become relations, likewise in
alphabetical order. With `both_ways` each has a reverse, `rev_<name>`. The edge column `split`
(int8: 0 train, 1 val, 2 test) says which file an edge is of, as in tables of edges. There are
no features and no labels: such data are for tasks of links.

Files are read a piece at a time: what is held in memory are the names, 12 bytes an edge, the
texts of times, and then the graph.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.text import (
    files_named,
    files_of_splits,
    first_row,
    from_utf8,
    line_chunks,
    numbered_lines,
)
from jgs.data.values import SPLIT_NUMBERS
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds
from jgs.graph.checks import MAX_ID

ENDINGS = (".txt", ".txt.gz")
_TYPE, _ROLES = "entity", ("head", "relation", "tail")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def recognises(folder: Path) -> bool:
    """Whether `folder` has a file of triples to train on, whose first lines have equally many
    columns if they are whole numbers with blanks between."""
    rows = first_rows(folder)
    widths = {len(row) for row in rows}
    numbers = all(word.isdigit() for row in rows for word in row)
    lists = numbers and (len(widths) > 1 or not widths <= {3, 4, 5})  # of LightGCN
    return bool(files_named(folder, ["train"], ENDINGS)) and not lists


def read(
    folder: Path, *, columns: str | None = None, both_ways: bool = True, clock: Clock
) -> Plain:
    """The graph of the triples in `folder`.

    Args:
      columns: the names of all columns, of which three are `head`, `relation` and `tail`, and
        one may be `time`; others are not read. None: as above.
      both_ways: whether to add each relation's reverse.
      clock: how times are counted.

    Raises `InputError`.
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if names is not None and any(names.count(role) != 1 for role in _ROLES):
        raise InputError(
            f"the columns of {folder} must be {', '.join(_ROLES)}, each once, and others",
            columns,
            "E.g. columns=head,tail,relation.",
        )
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples, splits, times = [], [], []
    for split, path in files_of_splits(folder, ENDINGS).items():
        rest: list[tuple[bytes, ...]] = []
        names = names or _usual(path)
        own = _read(path, entities, relations, names, rest)
        triples.append(own)
        times += rest
        splits.append(np.full(len(own), SPLIT_NUMBERS[split], np.int8))
    assert names is not None
    time, unit = _times(folder, names, times, clock, columns is None)
    if len(entities) > MAX_ID:
        raise InputError(
            f"{folder} must name at most {MAX_ID} entities", len(entities), "Read a part of it."
        )
    heads, kinds, tails = np.concatenate(triples).T
    known, rank = _ranked(entities)
    words, order = _ranked(relations)
    heads, kinds, tails = rank[heads], order[kinds], rank[tails]
    graph = graph_of_triples(
        len(known), words, (heads, kinds, tails), np.concatenate(splits), time, both_ways
    )
    ids = NodeIds.of_known(np.array(known, object))
    name = folder.resolve().name
    return Plain(name, graph, node_ids=ids, time_unit=unit)


def graph_of_triples(
    num_nodes: int,
    relations: list[str],
    triples: tuple[np.ndarray, np.ndarray, np.ndarray],
    split: np.ndarray,
    time: np.ndarray | None,
    both_ways: bool,
) -> Graph:
    """The graph with one node type and these relations, of the columns `[E]` of triples: the
    numbers of heads, of relations and of tails."""
    heads, kinds, tails = triples
    by_kind = np.argsort(kinds, kind="stable")
    ends = np.searchsorted(kinds[by_kind], np.arange(1, len(relations)))
    rows = dict(zip(relations, np.split(by_kind, ends), strict=True))
    places = {(_TYPE, name, _TYPE): at for name, at in rows.items()}
    return Graph.from_relations(
        {_TYPE: num_nodes},
        {one: (heads[at], tails[at]) for one, at in places.items()},
        edge_columns={one: {"split": split[at]} for one, at in places.items()},
        edge_time=None if time is None else {one: time[at] for one, at in places.items()},
        both_ways=both_ways,
    )


def first_rows(folder: Path) -> list[list[bytes]]:
    """The first lines of the file to train on, of about 64 KiB, as words; none where there is
    no such file or a line of it has a tab."""
    for path in files_named(folder, ["train"], ENDINGS)[:1]:
        text = next(line_chunks(path, 1 << 16), b"")
        return (
            []
            if b"\t" in text
            else [row for line in text.splitlines() if (row := line.split())]
        )
    return []


def _usual(path: Path) -> list[str]:
    row = first_row(path, b"\n")
    width = len(row.split(b"\t") if b"\t" in row else row.split())
    return [*_ROLES, *("time", "_")[: max(0, width - 3)]] if width <= 5 else [*_ROLES]


def _times(
    folder: Path, names: list[str], rest: list[tuple[bytes, ...]], clock: Clock, usual: bool
) -> tuple[np.ndarray | None, str | None]:
    """int64 `[E]`, the column `time` of those in `rest`, or None; and its unit, or None."""
    others = [name for name in names if name not in _ROLES]
    if usual and others == ["time", "_"] and len({each[1] for each in rest}) > 1:
        shown = sorted({each[1] for each in rest})[:2]
        raise InputError(
            f"{folder} must say what its fifth column is",
            " and ".join(each.decode(errors="replace") for each in shown),
            "Give --data-options columns=head,relation,tail,time,_ to leave it out.",
        )
    if "time" not in others:
        return None, None
    at = others.index("time")
    texts = np.array([each[at].decode(errors="replace") for each in rest], object)
    if all(_INTEGER.fullmatch(text) for text in texts.tolist()):
        texts = np.array([int(text) for text in texts.tolist()])
    return clock.whole(str(folder), texts), clock.unit_of(texts)


def _ranked(numbers: dict[str, int]) -> tuple[list[str], np.ndarray]:
    names = sorted(numbers)
    rank = np.empty(len(names), np.int32)
    rank[[numbers[name] for name in names]] = np.arange(len(names), dtype=np.int32)
    return names, rank


def _read(
    path: Path,
    entities: dict[str, int],
    relations: dict[str, int],
    columns: list[str],
    rest: list[tuple[bytes, ...]],
) -> np.ndarray:
    """The triples in a file, int32 `[E, 3]`, with names as numbers in the order in which they
    come; new names are added to `entities` and `relations`, and to `rest` what is in the other
    columns of each line."""
    roles = [columns.index(role) for role in _ROLES]
    others = [i for i in range(len(columns)) if i not in roles]
    found, tab = array("i"), None
    for line, raw in numbered_lines(path):
        if tab is None:
            tab = b"\t" in raw
        words = raw.split(b"\t") if tab else raw.split()
        names = [word.strip() for word in words]
        if len(names) != len(columns) or not all(names):
            shown = raw.decode(errors="replace")
            raise InputError(
                f"every line of {path} must be a {_shown(columns)}, with "
                f"{'tabs' if tab else 'white space'} between",
                f"{' '.join(shown.split())[:60]!r} in line {line}",
                "Correct the line.",
            )
        head, relation, tail = (from_utf8(path, line, names[i]) for i in roles)
        if others:
            rest.append(tuple(names[i] for i in others))
        found.append(entities.setdefault(head, len(entities)))
        found.append(relations.setdefault(relation, len(relations)))
        found.append(entities.setdefault(tail, len(entities)))
    if not found:
        raise InputError(f"{path} must have triples", "no line", "Remove or correct the file.")
    return np.frombuffer(found, np.int32).reshape(-1, 3)


def _shown(columns: list[str]) -> str:
    listed = f"{', '.join(columns[:-1])} and {columns[-1]}"
    return f"triple: {listed}" if len(columns) == 3 else f"line of {listed}"
