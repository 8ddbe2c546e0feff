"""`Change`: one change of a live graph, as it is logged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jgs.graph import checks

KINDS = ("append", "add_nodes", "set_rows", "delete_edges", "delete_between", "delete_nodes")


class Change(NamedTuple):
    """A change of a `jgs.graph.Live`, which `Live.apply` makes.

    Fields:
      kind: the name of the method, one of `KINDS`.
      fields: its arguments by name: NumPy arrays, text, ints or None.
    """

    kind: str
    fields: dict[str, Any]


def field(name: str, value: Any) -> Any:
    """The value of a field as a log has it."""
    value = value.item() if isinstance(value, np.generic) else value
    if is_text(value):
        return tuple(value)
    plain = isinstance(value, str | int | None)
    return value if plain else checks.as_array(name, value, "an array")


def is_text(value: Any) -> bool:
    """Whether a value is a sequence of text, which is no array in the log."""
    return isinstance(value, list | tuple) and bool(value) and {*map(type, value)} == {str}
