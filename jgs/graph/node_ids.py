"""`NodeIds`: maps a user's names of nodes, text or any integers, to node ids and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from jgs.arrays import as_numpy, id_column
from jgs.errors import InputError

_INTEGER, _PLAIN = re.compile(r"\s*[+-]?[0-9]+\s*"), re.compile("0|-?[1-9][0-9]*")


class NodeIds:
    """The names of nodes in a user's tables: node `i` of the graph is `values[i]` there.

    Args:
      ids: `[N]`, distinct integers or text.

    `ids[nodes]` maps nodes of the graph to names, and `ids.nodes(names)` maps names to nodes.

    Fields:
      values: `[N]`, the names, text or int64.
      later: nodes that came later, by name as text, as `jgs.Live.named` has them. `nodes` and
        `find` look there too.

    Where some names are text and others are integers, all are compared as text: 7 is "7".
    Text such as "07" is then refused, because it may be meant as 7. Raises `InputError`.
    """

    later: Mapping[str, int] = MappingProxyType({})
    _size: int
    _make: Callable[[], np.ndarray]

    def __init__(self, ids: Any):
        self.values = np.array(id_column("the ids of nodes", ids))
        if self.values.dtype == object:
            distinct = len(self._places)
        else:
            ascending = self.values[self._order]
            new = ascending[1:] != ascending[:-1]
            distinct = int(np.count_nonzero(new)) + min(1, len(self))
        if distinct != len(self):
            raise InputError(
                "every node must have an id of its own",
                f"{distinct} different ones of {len(self)}",
                "Name each node once.",
            )

    @classmethod
    def of_known(cls, values: np.ndarray) -> Self:
        """The ids of the `values` of another `NodeIds`, unchecked and not copied."""
        ids = object.__new__(cls)
        ids.values = values
        return ids

    @classmethod
    def of_later(cls, size: int, make: Callable[[], np.ndarray]) -> Self:
        """The ids of `size` values, unchecked, which `make()` returns when they are first read:
        text takes several times its own memory as values."""
        ids = object.__new__(cls)
        ids._size, ids._make = size, make
        return ids

    @cached_property
    def values(self) -> np.ndarray:
        vars(self)["values"] = values = self._make()
        vars(self).pop("_make", None)
        return values

    @classmethod
    def of_edges(cls, *ends: Any) -> Self:
        """The distinct ids in the columns `ends` of an edge table, in ascending order."""
        columns = [id_column("the ends of edges", column) for column in ends]
        columns = [column for column in columns if column.size] or columns[:1]
        if any(column.dtype == object for column in columns):
            _check_spelling(*columns)
            texts = [_as_text(column).tolist() for column in columns]
            return cls(np.array(sorted(set().union(*texts)), object))
        return cls(np.unique(np.concatenate(columns)))

    def __len__(self) -> int:
        return self.values.size if "values" in vars(self) else self._size

    def __repr__(self) -> str:
        kind = "text" if self.values.dtype == object else "integers"
        return f"NodeIds({len(self):,} nodes, {kind})"

    def __getitem__(self, nodes: Any) -> Any:
        """The names of nodes of the graph, one node or an array of any shape."""
        return self.values[as_numpy(nodes)]

    def nodes(self, names: Any, what: str = "an id") -> np.ndarray:
        """int32 `[n]`: the nodes that have the names `[n]`.

        Raises `InputError` that shows the first name that no node has and calls it `what`.
        """
        names = id_column(what, names)
        found = self.find(names, what)
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            kind = "text" if self.values.dtype == object else "integers"
            other = f", which are {kind}" * (names.dtype != self.values.dtype)
            raise InputError(
                f"{what} must be one of the {len(self)} nodes'{other}",
                f"{names.tolist()[at]!r} at position {at}",
                "Correct it, or name that node too.",
            )
        return found

    def find(self, names: Any, what: str = "an id") -> np.ndarray:
        """As `nodes`, with -1 for names that no node has."""
        names = id_column(what, names)
        if not names.size:
            return np.zeros(0, np.int32)
        if names.dtype == object or self.values.dtype == object:
            _check_spelling(names, self.values)
            places = self._places
            known = (places.get(name, -1) for name in _as_text(names).tolist())
            found = np.fromiter(known, np.int32, names.size)
        else:
            ascending = self.values[self._order]
            at = np.minimum(np.searchsorted(ascending, names), max(0, len(self) - 1))
            same = ascending[at] == names if len(self) else np.zeros(names.size, bool)
            found = np.full(names.size, -1, np.int32)
            found[same] = self._order[at[same]]
        for at in np.flatnonzero(found < 0) if self.later else ():
            found[at] = self.later.get(str(names[at]), -1)
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return dict(zip(_as_text(self.values).tolist(), range(len(self)), strict=True))

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.values, kind="stable")


def _as_text(names: np.ndarray) -> np.ndarray:
    return names if names.dtype == object else np.array(list(map(str, names.tolist())), object)


def _check_spelling(*columns: np.ndarray) -> None:
    if len({column.dtype for column in columns if column.size}) < 2:
        return
    texts = (text for c in columns if c.dtype == object for text in c.tolist())
    for text in texts:
        if _INTEGER.fullmatch(text) and not _PLAIN.fullmatch(text):
            raise InputError(
                "ids that are text in one place and integers in another must be written alike",
                f"{text!r} among the text",
                "Give all as text (dtype=str where a file is read), or all as integers.",
            )
