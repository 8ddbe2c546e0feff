"""Text lists that NetworkX writes: `.edgelist` and `.adjlist`, each also with `.gz`.

A line of an edge list has two nodes, and perhaps a dict of what is known of the edge, `a b
{'weight': 1.5}`, or one number, of which the file does not say whether it is a weight. A line
of an adjacency list has a node and its neighbours. White space is between, or commas in an edge
list whose first line has one, and `#` begins a comment. Names of nodes are text or integers;
they are in ascending order in `node_ids`.

A file does not say whether its graph is directed. As NetworkX does, it is read as undirected:
each edge goes both ways, once. `symmetric=false` keeps the edges as they are listed. The
numbers in dicts are edge columns, by the names of tables of edges (`jgs.data.edge_table`); an
edge that lacks one that others have is refused, as is text.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import refuse_words
from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.edge_table import edges_of
from jgs.data.table_graph import UNTYPED, plain_of_tables
from jgs.data.text import from_utf8, numbered_lines, unnamed
from jgs.errors import InputError
from jgs.graph import NodeIds

_NEIGHBOURS = (".adjlist", ".adjlist.gz")
ENDINGS = (".edgelist", ".edgelist.gz", *_NEIGHBOURS)
_LONGEST = 1 << 12  # characters of a dict
_NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)")  # as NumPy 2 writes its numbers: np.float64(1.5)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read(
    path: Path, *, columns: str | None = None, symmetric: bool = True, clock: Clock
) -> Plain:
    """The graph of the list.

    Args:
      columns: the names of all columns where lines have numbers behind the two nodes, such as
        `src,dst,weight`.
      symmetric: see above.
      clock: how times are counted.

    Raises `InputError`.
    """
    neighbours = path.name.endswith(_NEIGHBOURS)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if names is not None and (neighbours or names[:2] != ["src", "dst"]):
        raise InputError(
            f"the columns of {path} must begin with src,dst"
            if not neighbours
            else f"{path}, an adjacency list, must have no columns",
            repr(columns),
            "Correct the option, or leave it out.",
        )
    pairs: list[str] = []
    facts: list[dict[str, Any]] = []
    alone: list[str] = []
    comma = None
    for number, line in numbered_lines(path):
        text = from_utf8(path, number, line).partition("#")[0].strip()
        if not text:
            continue
        if neighbours:
            first, *others = text.split()
            alone.append(first)
            for other in others:
                pairs += (first, other)
            continue
        if comma is None:
            comma = "," in text.partition("{")[0]
        ends, brace, inside = text.partition("{")
        words = [w.strip() for w in ends.rstrip(" ,").split(",")] if comma else ends.split()
        facts.append(_facts(path, number, text, words, brace + inside, names))
        pairs += words[:2]
    found = _columns(path, facts)
    every = _names([*pairs, *alone])
    count = len(pairs)
    columns_of = {"src": every[:count:2], "dst": every[1:count:2]}
    table = edges_of(str(path), columns_of | found, None, clock)
    ids, name = {"": NodeIds.of_edges(every)}, path.name.partition(".")[0]
    edges = {UNTYPED: table}
    return plain_of_tables(name, edges, ids, both_ways=False, symmetric=symmetric)


def _facts(
    path: Path, number: int, text: str, words: list[str], fact: str, names: list[str] | None
) -> dict[str, Any]:
    shown = f"{' '.join(text.split())[:60]!r} in line {number}"
    if len(words) > 2 and names is None:
        raise unnamed(path, words, f"line {number}")
    if len(words) != (2 if names is None else len(names)):
        raise InputError(f"every line of {path} must have its columns", shown, "Correct it.")
    try:
        found = dict(zip((names or [])[2:], map(_number, words[2:]), strict=True))
        if fact:
            if len(fact) > _LONGEST:
                raise ValueError
            found |= _parsed(fact)
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        raise InputError(
            f"what {path} says of an edge must be numbers, or a dict of them",
            shown,
            "Correct it.",
        ) from None
    return found


def _number(word: str) -> Any:
    """An int of 64 bits keeps its digits."""
    whole = word.lstrip("+-").isdecimal() and -1 << 63 <= int(word) < 1 << 63
    return int(word) if whole else float(word)


@lru_cache(1 << 16)  # many edges have the same
def _parsed(fact: str) -> dict[str, Any]:
    known = ast.literal_eval(_NUMPY.sub(r"\1", fact))
    return {str(key): value for key, value in known.items()}


def _columns(path: Path, facts: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    names = dict.fromkeys(name for fact in facts for name in fact)
    for at, fact in enumerate(facts):
        if missing := [name for name in names if name not in fact]:
            raise InputError(
                f"every edge in {path} must have {missing[0]!r}, or none",
                f"none for edge {at}",
                "Write it for all.",
            )
    found = {name: np.array([fact[name] for fact in facts]) for name in names}
    for name, column in found.items():
        refuse_words(
            f"in {path} {name!r} of an edge", column, "Write numbers, or leave it out."
        )
    return found


def _names(words: list[str]) -> np.ndarray:
    if all(map(_WHOLE.fullmatch, words)):
        return np.array([int(word) for word in words], np.int64)
    return np.array(words, object)
