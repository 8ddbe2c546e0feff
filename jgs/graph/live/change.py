"""`Change`: one change of a live graph, as it is logged."""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = ("append", "add_nodes", "set_rows", "delete_edges", "delete_between", "delete_nodes")


class Change(NamedTuple):
    """A change of a `jgs.graph.Live`, which `Live.apply` makes.

    Fields:
      kind: the name of the method, one of `KINDS`.
      fields: its arguments by name: NumPy arrays, text, ints or None.
    """

    kind: str
    fields: dict[str, Any]
