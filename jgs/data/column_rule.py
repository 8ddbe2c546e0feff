"""What a user says of the columns of a table of nodes; `jgs.data.columns` says the rule."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from jgs.errors import InputError

KINDS = ("number", "standard", "category", "hash", "date", "drop")
TEXT = ("category", "hash")
MAX_CATEGORIES = 64
_ENTRY = re.compile(rf"\s*(.+?):({'|'.join(KINDS)})(?::(\d+))?\s*")


class ColumnRule(NamedTuple):
    """What a user says of the columns of a table of nodes.

    Fields:
      encode: kinds by the names of columns, `{"city": "hash:64", "id2": "drop"}`; or the same
        as text, `city:hash:64,id2:drop`. `edges.kind` is a column of the table of edges, and in
        a typed graph `user.age` one of the nodes of a type. Other columns are by the rule.
      max_categories: int, at least 1: the most different texts of a column that nothing says
        more of, before it is hashed.
      standardize: whether columns of numbers that nothing says more of are `standard`. Those of
        true and false stay 0 and 1.
      normalize_features: whether each row of all features is divided by its sum at last.
    """

    encode: Any = None
    max_categories: int = MAX_CATEGORIES
    standardize: bool = False
    normalize_features: bool = False

    def kinds(self) -> dict[str, tuple[str, int]]:
        """The kind of each column that `encode` names, and the width of `hash`. Raises
        `InputError`."""
        if self.max_categories < 1:
            raise InputError(
                "the option max_categories must be 1 or more", self.max_categories, "Raise it."
            )
        given = self.encode or {}
        entries = given.split(",") if isinstance(given, str) else map(":".join, given.items())
        found = {}
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            width = match and match.group(3)
            if not match or (width and match.group(2) != "hash") or width == "0":
                raise InputError(
                    f"the option encode must be NAME:KIND, with a kind of {', '.join(KINDS)}, "
                    "or hash:K of K columns",
                    repr(entry),
                    "E.g. encode=city:hash:64,joined:date,serial:drop.",
                )
            found[match.group(1)] = match.group(2), int(width or self.max_categories)
        return found

    def text(self) -> list[str]:
        """The columns that are text in a CSV file, whatever they look like."""
        return [name for name, (kind, _) in self.kinds().items() if kind in TEXT]

    def shown(self, name: str) -> str:
        """The kind of a column that `encode` names, as the option has it."""
        kind, width = self.kinds()[name]
        return f"{kind}:{width}" if kind == "hash" else kind

    def of_edges(self) -> tuple[ColumnRule, ColumnRule]:
        """The rule for a table of nodes, and that for the tables of edges, which has the names
        that begin with `edges.`."""
        own: tuple[dict, dict] = {}, {}
        for name in self.kinds():
            own[name.startswith("edges.")][name.removeprefix("edges.")] = self.shown(name)
        return self._replace(encode=own[0]), self._replace(encode=own[1])

    def of_type(self, node_type: str, types: Collection[str]) -> ColumnRule:
        """The rule for the table of one node type. `encode` names columns as `user.age`.
        Raises `InputError` for a name that begins with none of `types`."""
        own = {}
        for name in self.kinds():
            owner = max((t for t in types if name.startswith(f"{t}.")), key=len, default=None)
            if owner is None:
                raise InputError(
                    "the option encode must name columns by their node type, as user.age",
                    f"{name!r}, and types {', '.join(types) or 'without tables'}",
                    "Correct it.",
                )
            if owner == node_type:
                own[name.removeprefix(f"{owner}.")] = self.shown(name)
        return self._replace(encode=own)
