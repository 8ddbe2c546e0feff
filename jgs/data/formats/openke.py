"""Folders of OpenKE: `entity2id.txt`, `relation2id.txt`, `train2id.txt`, and perhaps
`valid2id.txt` and `test2id.txt`.

The first line of each file counts the others. `entity2id.txt` and `relation2id.txt` have a name
and its id in a line, `train2id.txt` the ids of a head, a tail and a relation, in this order.
Columns are separated by white space. The graph has one node type, `entity`, whose nodes are
those of `entity2id.txt` in the order of ids, and a relation for each line of `relation2id.txt`,
in the order of ids. The edge column `split` is that of `jgs.data.formats.triples`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.formats.triples import graph_of_triples
from jgs.data.text import first_line, read_lines, read_table
from jgs.data.values import SPLIT_NUMBERS
from jgs.errors import InputError
from jgs.graph import NodeIds

_FILES = {"train": "train2id.txt", "val": "valid2id.txt", "test": "test2id.txt"}
_ROLES = ("head", "tail", "relation")


def recognises(path: Path) -> bool:
    """Whether it is a folder with these files, and with no `train.txt`, which has the names."""
    needed = (_FILES["train"], "entity2id.txt", "relation2id.txt")
    return all((path / name).is_file() for name in needed) and not (path / "train.txt").exists()


def read(path: Path, *, columns: str = "head,tail,relation", both_ways: bool = True) -> Plain:
    """The graph of the folder. `columns` is the order of the columns of triples, and
    `both_ways` adds each relation's reverse. Raises `InputError`."""
    order = [name.strip() for name in columns.split(",")]
    if sorted(order) != sorted(_ROLES):
        raise InputError(
            f"the columns of {path} must be {', '.join(_ROLES)} in some order",
            columns,
            "E.g. columns=head,relation,tail.",
        )
    entities = _names(path / "entity2id.txt")
    relations = _names(path / "relation2id.txt")
    sizes = {"head": len(entities), "tail": len(entities), "relation": len(relations)}
    parts, splits = [], []
    for split, name in _FILES.items():
        if (path / name).is_file():
            triples = _triples(path / name)
            for role, ids in zip(order, triples.T, strict=True):
                _check(path / name, role, ids, sizes[role], order)
            parts.append(triples[:, [order.index(role) for role in _ROLES]])
            splits.append(np.full(len(triples), SPLIT_NUMBERS[split], np.int8))
    heads, tails, kinds = np.concatenate(parts).T
    graph = graph_of_triples(
        len(entities), relations, (heads, kinds, tails), np.concatenate(splits), None, both_ways
    )
    ids = NodeIds(np.array(entities, object))
    return Plain(path.resolve().name, graph, node_ids=ids)


def _count(path: Path) -> int:
    words = first_line(path).split()
    if len(words) != 1 or not words[0].isdigit():
        raise InputError(
            f"{path} must begin with the number of its other lines",
            b" ".join(words).decode(errors="replace")[:60] or "nothing",
            "Write it.",
        )
    return int(words[0])


def _checked_count(path: Path, found: int) -> None:
    if found != (stated := _count(path)):
        raise InputError(
            f"{path} must have as many lines as its first line says",
            f"{found}, and {stated} in the first line",
            "It is damaged or cut short: fetch it again.",
        )


def _names(path: Path) -> list[str]:
    _count(path)
    names: dict[int, str] = {}
    lines = read_lines(path)[1:]
    for number, line in enumerate(lines, 2):
        name, _, digits = line.rstrip().replace("\t", " ").rpartition(" ")
        if not name.strip() or not digits.isdecimal() or int(digits) in names:
            raise InputError(
                f"every line of {path} must be a name and an id of its own",
                f"{' '.join(line.split())[:60]!r} in line {number}",
                "Correct it.",
            )
        names[int(digits)] = name.strip()
    _checked_count(path, len(lines))
    if set(names) != set(range(len(names))):
        raise InputError(
            f"the ids in {path} must be 0 to {len(names) - 1}", max(names), "Correct them."
        )
    return [names[i] for i in range(len(names))]


def _triples(path: Path) -> np.ndarray:
    _count(path)
    found = read_table(path, np.int64, delimiter=None, columns=3, skip=1)
    _checked_count(path, len(found))
    return found


def _check(path: Path, role: str, ids: np.ndarray, count: int, order: list[str]) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        raise InputError(
            f"the column {role} of {path} must have ids from 0 to {count - 1}",
            f"{ids.min()} to {ids.max()} in column {order.index(role) + 1}",
            "If the order is another one, say it: --data-options columns=head,relation,tail.",
        )
