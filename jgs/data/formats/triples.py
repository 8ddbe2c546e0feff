"""Triples `head relation tail` of a knowledge graph, such as FB15k-237, umls and kinships.

A folder has `train.txt` and, if there are some, `valid.txt` (or `val.txt`) and `test.txt`, each
of which may be gzipped, with `.gz` behind its name. A line is a triple: three names, with tabs
between them if the file's first line has a tab, and else with white space. Blank lines are
skipped.

The graph has one node type, `entity`, whose nodes are all names of heads and tails in
alphabetical order; `node_ids` has them. Names of relations become relations, likewise in
alphabetical order. With `both_ways` each has a reverse, `rev_<name>`. The edge column `split`
(int8: 0 train, 1 val, 2 test) says which file an edge is of, as in tables of edges. There are
no features and no labels: such data are for tasks of links.

Files are read a piece at a time: what is held in memory are the names and 12 bytes an edge, and
then the graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.edge_values import SPLIT_NUMBERS
from jgs.data.text import line_chunks
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds
from jgs.graph.checks import MAX_ID

_FILES = {"train": ("train",), "val": ("valid", "val"), "test": ("test",)}
_TYPE = "entity"


def recognises(folder: Path) -> bool:
    """Whether `folder` has a file of triples to train on."""
    return bool(_found(folder, "train"))


def read(folder: Path, *, both_ways: bool = True) -> Plain:
    """The graph of the triples in `folder`. `both_ways` adds each relation's reverse. Raises
    `InputError`."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples, splits = [], []
    for split, called in _FILES.items():
        files = [path for name in called for path in _found(folder, name)]
        if len(files) > 1:
            raise InputError(
                f"{folder} must hold one file of the {split} split",
                ", ".join(path.name for path in files),
                "Remove those too many.",
            )
        for path in files:
            own = _read(path, entities, relations)
            triples.append(own)
            splits.append(np.full(len(own), SPLIT_NUMBERS[split], np.int8))
    if len(entities) > MAX_ID:
        raise InputError(
            f"{folder} must name at most {MAX_ID} entities", len(entities), "Read a part of it."
        )
    heads, kinds, tails = np.concatenate(triples).T
    names, rank = _ranked(entities)
    words, order = _ranked(relations)
    heads, kinds, tails = rank[heads], order[kinds], rank[tails]
    by_kind = np.argsort(kinds, kind="stable")
    ends = np.searchsorted(kinds[by_kind], np.arange(len(words) + 1))
    split_column = np.concatenate(splits)
    edges, columns = {}, {}
    for number, word in enumerate(words):
        at = by_kind[ends[number] : ends[number + 1]]
        one = (_TYPE, word, _TYPE)
        edges[one] = heads[at], tails[at]
        columns[one] = {"split": split_column[at]}
    graph = Graph.from_relations(
        {_TYPE: len(names)}, edges, edge_columns=columns, both_ways=both_ways
    )
    ids = NodeIds.of_known(np.array(names, object))
    return Plain(folder.resolve().name, graph, None, None, None, node_ids=ids)


def _found(folder: Path, name: str) -> list[Path]:
    return [at for end in (".txt", ".txt.gz") if (at := folder / f"{name}{end}").is_file()]


def _ranked(numbers: dict[str, int]) -> tuple[list[str], np.ndarray]:
    """The names in alphabetical order, and the place in it, int32, of each number."""
    names = sorted(numbers)
    rank = np.empty(len(names), np.int32)
    rank[[numbers[name] for name in names]] = np.arange(len(names), dtype=np.int32)
    return names, rank


def _read(path: Path, entities: dict[str, int], relations: dict[str, int]) -> np.ndarray:
    """The triples in a file, int32 `[E, 3]`, with names as numbers in the order in which they
    come; new names are added to `entities` and `relations`."""
    parts, line, tab = [], 0, None
    for text in line_chunks(path):
        found: list[int] = []
        for raw in text.splitlines():
            line += 1
            if not raw.strip():
                continue
            if tab is None:
                tab = b"\t" in raw
            words = raw.split(b"\t") if tab else raw.split()
            names = [word.strip() for word in words]
            if len(names) != 3 or not all(names):
                shown = raw.decode(errors="replace")
                raise InputError(
                    f"every line of {path} must be a triple: head, relation and tail, with "
                    f"{'tabs' if tab else 'white space'} between",
                    f"{' '.join(shown.split())[:60]!r} in line {line}",
                    "Correct the line.",
                )
            head, relation, tail = (_text(path, line, name) for name in names)
            found.append(entities.setdefault(head, len(entities)))
            found.append(relations.setdefault(relation, len(relations)))
            found.append(entities.setdefault(tail, len(entities)))
        parts.append(np.array(found, np.int32).reshape(-1, 3))
    triples = np.concatenate([np.empty((0, 3), np.int32), *parts])
    if not len(triples):
        raise InputError(f"{path} must have triples", "no line", "Remove or correct the file.")
    return triples


def _text(path: Path, line: int, name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"{path} must be text in UTF-8", f"other bytes in line {line}", "Convert it."
        ) from None
