"""The values of one column of a table: numbers, texts or dates, and which are missing."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.data.label_values import is_missing
from jgs.data.times import dates_of_text
from jgs.errors import InputError
from jgs.graph.checks import refuse_where, refuse_words

REMEDY = "Write numbers in its place, or leave it out by the option encode=NAME:drop."


def kind_of(what: str, values: np.ndarray) -> str:
    """What a column has: "number" (also lists of them), "truth" (true and false), "text" or
    "date". Raises `InputError` for what it should not have."""
    if values.ndim == 2 and values.dtype.kind in "fiub":
        return "number"
    nests = (list, dict, np.ndarray)
    nested = values.dtype == object and any(isinstance(v, nests) for v in values.tolist())
    if nested or values.ndim != 1 or values.dtype.kind not in "fiubOUTM":
        raise InputError(
            f"{what} must be numbers, text, dates, or equally long lists of numbers",
            "lists of unequal lengths, or records" if nested else values.dtype,
            REMEDY,
        )
    if values.dtype.kind == "M":
        return "date"
    if values.dtype.kind in "fiub":
        return "truth" if values.dtype.kind == "b" else "number"
    known = [each for each in values.tolist() if not is_missing(each)]
    for kind, types in (("text", str), ("date", datetime.date), ("truth", bool)):
        if known and all(isinstance(each, types) for each in known):
            return kind
    return "number"


def missing_in(values: np.ndarray) -> np.ndarray:
    """bool `[n]`: which entries of a column `[n]` are missing."""
    if values.dtype.kind in "OUT":
        return np.array([is_missing(each) for each in values.tolist()], bool)
    if values.dtype.kind == "M":
        return np.isnat(values)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def numbers(what: str, values: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers `[n, k]` of `dtype`, and which rows `[n]` are missing, 0 in them.
    Raises `InputError`."""
    kind = kind_of(what, values)
    if values.ndim == 2:
        with np.errstate(over="ignore"):  # the check for infinity names the row
            rows = values.astype(dtype)
        wrong = ~np.isfinite(rows).all(axis=1)
        refuse_where(wrong, values, "row", f"{what} must have whole lists", "Correct them.")
        return rows, np.zeros(len(rows), bool)
    missing = missing_in(values)
    if kind == "date":
        raise InputError(f"{what} must be numbers", "dates", "Give it the kind date.")
    if values.dtype.kind in "OUT":
        refuse_words(what, values[~missing], "Give it the kind category, hash or drop.")
        values = np.where(missing, 0, values).astype(np.float64)
    with np.errstate(over="ignore"):
        rows = np.where(missing, dtype(0), values.astype(dtype))
    return rows[:, None], missing


def texts(what: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A column as text, objects `[n]`, and which rows `[n]` are missing, "" in them. Integers
    are text as they are written, also where a missing one made them floats. Raises
    `InputError`."""
    kind_of(what, values)
    if values.ndim != 1:
        raise InputError(f"{what} must be text", "lists", "Give it the kind number.")
    missing = missing_in(values)
    known = values.tolist() if values.dtype.kind != "M" else values.astype(str).tolist()
    found = ["" if gone else _text(each) for each, gone in zip(known, missing, strict=True)]
    return np.array(found, object), missing


def seconds(what: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The dates of a column as seconds since 1970 (UTC), float64 `[n, 1]`, and which rows `[n]`
    are missing, 0 in them. Raises `InputError`."""
    if (kind := kind_of(what, values)) not in ("date", "text"):
        raise InputError(f"{what} must be dates", f"{kind}s", "Give it the kind number.")
    missing = missing_in(values)
    known = values[~missing]
    if known.dtype.kind != "M":
        written = np.array([str(each) for each in known.tolist()], object)
        known = dates_of_text(f"{what} must be dates", written, "row with one")
    found = np.zeros((len(values), 1))
    # Whole seconds and what is behind the point apart: float64 has not all nanoseconds.
    whole = known.astype("M8[s]")
    found[~missing, 0] = whole.astype(np.int64) + (known - whole) / np.timedelta64(1, "s")
    return found, missing


def look_like_dates(values: Sequence[str]) -> bool:
    """Whether there are texts, and all of them are dates in the form of ISO 8601."""
    if not values:
        return False
    try:
        dates_of_text("", np.array(values, object), "")
    except InputError:
        return False
    return True


def _text(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)
