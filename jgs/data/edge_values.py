"""Conversions and checks of what a table says of its edges: labels, times and splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.data.values import SPLITS, class_labels, is_missing
from jgs.errors import InputError
from jgs.graph.checks import refuse_where

SPLIT_NUMBERS = {name: number for number, name in enumerate(SPLITS)}  # in the column `split`
_MOST_CLASSES = 1 << 16


def edge_labels(
    what: str, labels: Any, kind: str | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The labels of the edges in the table `what`: classes int32 `[E]`, -1 for none, or numbers
    float32 `[E]`, NaN for none; and the names of the classes, or None unless they are text.

    `kind` is "class" or "number". None: text and integers are classes, floats are numbers.
    Raises `InputError`.
    """
    if kind not in (None, "class", "number"):
        raise InputError(
            "the option label_kind must be class or number", repr(kind), "Choose one."
        )
    values, names = class_labels(f"the edges in {what}", labels)
    if names is None and (values.dtype.kind not in "fiub" or values.ndim != 1):
        raise InputError(
            f"the labels of the edges in {what} must be numbers or text, one an edge",
            f"{values.dtype}{list(values.shape)}",
            "Convert them.",
        )
    if names and kind == "number":
        raise InputError(
            f"the labels of the edges in {what} must be numbers for label_kind=number",
            repr(names[0]),
            "Correct them, or leave the option out.",
        )
    if kind == "number" or (kind is None and values.dtype.kind == "f"):
        with np.errstate(over="ignore"):  # the check for infinity names the edge
            numbers = values.astype(np.float32)
        rule = f"the labels of the edges in {what} must be finite as float32, or NaN for none"
        refuse_where(np.isinf(numbers), values, "edge", rule, "Correct them.")
        return (np.full(values.size, np.nan, np.float32) if names == () else numbers), None
    known = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
    wrong = (known < -1) | (known >= _MOST_CLASSES) | (known != np.floor(known))
    rule = f"the classes of the edges in {what} must be integers in [0, {_MOST_CLASSES}), or -1"
    refuse_where(
        wrong, values, "edge", rule, "Number them from 0; label_kind=number takes numbers."
    )
    return known.astype(np.int32), names or None


def edge_times(what: str, times: np.ndarray) -> np.ndarray:
    """The times of the edges in the table `what`, int64 `[E]`: whole numbers as they are, and
    dates in microseconds since 1970. Raises `InputError`."""
    rule = f"the time of every edge in {what} must be a whole number or a date"
    if times.ndim != 1 or times.dtype.kind not in "iufM":
        first = " ".join(str(times[0]).split())[:60]
        raise InputError(rule, f"{first} at edge 0", "Convert the column.")
    if times.dtype.kind == "M":
        refuse_where(np.isnat(times), times, "edge", rule, "Add those that are missing.")
        moments = times.astype("M8[us]")
        rule = f"the dates in {what} must be whole microseconds"
        lost = moments.astype(times.dtype) != times
        refuse_where(lost, times, "edge", rule, "Round them, or write them as integers.")
        return moments.astype(np.int64)
    if times.dtype.kind == "f":
        wrong = ~(np.isfinite(times) & (times == np.floor(times)) & (np.abs(times) < 2.0**63))
        refuse_where(
            wrong, times, "edge", rule, "Count in a smaller unit; let none be missing."
        )
    elif times.dtype == np.uint64:
        refuse_where(times >= 2**63, times, "edge", rule, "Count from a later moment.")
    return times.astype(np.int64)


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
