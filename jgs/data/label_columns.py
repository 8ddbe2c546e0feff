"""Columns `label:NAME` of a table of nodes: labels of which a node can have several.

Each is 0 or 1, or empty where it is not known whether a node has the label NAME. Or they are
numbers, of which one is not whole: targets of a regression, empty where one is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph.checks import refuse_words

PREFIX = "label:"
"""How the names of these columns begin."""


def with_label(
    what: str, nodes: dict[str, np.ndarray]
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The columns of the table `what`, with one column `label`, float64 `[N, C]` with NaN for
    what is not known, in place of its columns `label:NAME`; and their names. A table without
    such columns is returned as it is, with None. Raises `InputError`."""
    own = [name for name in nodes if name.startswith(PREFIX)]
    if not own:
        return nodes, None
    if "label" in nodes:
        raise InputError(
            f"{what} must have a column 'label', or columns of labels of which a node can have "
            "several",
            f"'label' and {own[0]!r}",
            "Remove one.",
        )
    columns = [_known(f"the column {name!r} in {what}", nodes[name]) for name in own]
    rest = {name: column for name, column in nodes.items() if name not in own}
    return rest | {"label": np.stack(columns, axis=1)}, tuple(n[len(PREFIX) :] for n in own)


def _known(what: str, column: np.ndarray) -> np.ndarray:
    """float64 `[N]`: a column of 0 and 1, with NaN where it is empty."""
    if column.dtype == object:  # truth values of which some are missing
        column = np.array([np.nan if each is None else each for each in column], object)
        refuse_words(what, column, "Write 0, 1 or nothing.")
    require_array(what, column, "numbers or object [n], each 0, 1 or empty", "Correct it.")
    return column.astype(np.float64)
