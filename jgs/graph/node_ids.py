"""`NodeIds`: maps a user's names of nodes, text or any integers, to node ids and back."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import Any, Self

import numpy as np

from jgs.errors import InputError
from jgs.graph.device import as_numpy


class NodeIds:
    """The names of nodes in a user's tables: node `i` of the graph is `values[i]` there.

    Args:
      ids: `[N]`, distinct integers or text.

    `ids[nodes]` maps nodes of the graph to names, and `ids.nodes(names)` maps names to nodes.
    Raises `InputError`.
    """

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
    def of_edges(cls, *ends: Any) -> Self:
        """The distinct ids in the columns `ends` of an edge table, in ascending order."""
        columns = [id_column("the ends of edges", column) for column in ends]
        if any(column.dtype == object for column in columns):
            texts = [_of_kind(column, object).tolist() for column in columns]
            return cls(np.array(sorted(set().union(*texts)), object))
        return cls(np.unique(np.concatenate(columns)))

    def __len__(self) -> int:
        return self.values.size

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
        names = _of_kind(id_column(what, names), self.values.dtype)
        if self.values.dtype == object:
            places = self._places
            known = (places.get(name, -1) for name in names.tolist())
            found = np.fromiter(known, np.int32, names.size)
        else:
            ascending = self.values[self._order]
            at = np.minimum(np.searchsorted(ascending, names), max(0, len(self) - 1))
            same = ascending[at] == names if len(self) else np.zeros(names.size, bool)
            found = np.full(names.size, -1, np.int32)
            found[same] = self._order[at[same]]
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            raise InputError(
                f"{what} must be one of the {len(self)} nodes'",
                f"{names[at]!r} at position {at}"
                if names.dtype == object
                else f"{names[at]} at position {at}",
                "Correct it, or name that node too.",
            )
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return dict(zip(self.values.tolist(), range(len(self)), strict=True))

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.values, kind="stable")


def id_column(what: str, values: Any) -> np.ndarray:
    """`values` `[n]` as int64, or as objects if they are text; raises `InputError`."""
    array = as_numpy(values)
    if array.ndim == 1 and array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64, copy=False)
    if array.ndim == 1 and (array.dtype.kind in "UT" or array.size == 0):
        return array.astype(object)
    if array.ndim == 1 and array.dtype == object:
        kinds = set(map(type, array.tolist()))
        if kinds == {str}:
            return array
        if kinds and all(issubclass(k, int | np.integer) and k is not bool for k in kinds):
            return np.array([operator.index(each) for each in array], np.int64)
    missing = array.dtype.kind in "fO"
    raise InputError(
        f"{what} must be integers of at most 64 bits, or text",
        f"{array.dtype}{list(array.shape)}{', some perhaps missing' if missing else ''}",
        "Give a whole column of one kind, with .astype(int) or .astype(str).",
    )


def _of_kind(names: np.ndarray, dtype: Any) -> np.ndarray:
    """`names`, which must be of the same kind as an array of `dtype`: all text or all
    integers."""
    if names.size and (names.dtype.kind == "O") != (np.dtype(dtype).kind == "O"):
        raise InputError(
            "the ids of nodes must be all integers, or all text",
            f"{'text' if names.dtype == object else 'integers'} among the other",
            "Convert one with .astype(int) or .astype(str).",
        )
    return names
