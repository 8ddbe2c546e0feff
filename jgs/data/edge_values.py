"""Conversions and checks of what a table says of its edges: labels and splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.label_values import as_numbers, check_kind, have_fractions
from jgs.data.values import SPLITS, class_labels, is_missing
from jgs.errors import InputError
from jgs.graph.checks import refuse_where

SPLIT_NUMBERS = {name: number for number, name in enumerate(SPLITS)}  # in the column `split`
_MOST_CLASSES = 1 << 16


def edge_labels(
    what: str, labels: Any, kind: str | None = None, row: str = "edge"
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The labels of the edges in the table `what`: classes int32 `[E]`, -1 for none, or numbers
    `[E]`, NaN for none (`as_numbers`); and the names of the classes, or None unless they
    are text.

    `kind` is "class" or "number"; None as for labels of nodes: numbers where one has a
    fraction, else classes. `row` is what messages call what has a label. Raises `InputError`.
    """
    check_kind(kind)
    values, names = class_labels(f"the {row}s in {what}", labels)
    if names is None:
        form = "numbers [n], or text, one for each"
        require_array(f"the labels of the {row}s in {what}", values, form, "Convert them.")
    if names and kind == "number":
        raise InputError(
            f"the labels of the {row}s in {what} must be numbers for label_kind=number",
            repr(names[0]),
            "Correct them, or leave the option out.",
        )
    if kind == "number" or (kind is None and have_fractions(values)):
        numbers = np.full(values.size, np.nan) if names == () else as_numbers(values)
        rule = f"the labels of the {row}s in {what} must be finite, or NaN for none"
        refuse_where(np.isinf(numbers), values, row, rule, "Correct them.")
        return numbers, None
    values = values.astype(np.int8) if values.dtype == bool else values
    known = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
    wrong = (known < -1) | (known >= _MOST_CLASSES) | (known != np.floor(known))
    rule = (
        f"the classes of the {row}s in {what} must be integers in [0, {_MOST_CLASSES}), or -1"
    )
    refuse_where(
        wrong, values, row, rule, "Number them from 0; label_kind=number takes numbers."
    )
    return known.astype(np.int32), names or None


def edge_splits(what: str, names: np.ndarray) -> np.ndarray:
    """int8 `[E]`: the splits of the edges in the table `what`, whose column has their names: 0
    train, 1 val, 2 test, and -1 where it is empty. Raises `InputError`."""
    texts = np.array(
        ["" if is_missing(name) else " ".join(str(name).split()) for name in names], object
    )
    rule = f"the split of an edge in {what} must be {', '.join(SPLITS)}, or empty"
    wrong = ~np.isin(texts, [*SPLITS, ""])
    refuse_where(wrong, texts, "edge", rule, "Correct it, or leave it empty.")
    found = np.full(texts.size, -1, np.int8)
    for name, number in SPLIT_NUMBERS.items():
        found[texts == name] = number
    return found
