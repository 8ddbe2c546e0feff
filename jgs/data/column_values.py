"""The values of one column of a table: numbers, texts or dates, and which are missing; and
times, which are whole numbers, or dates that become whole numbers since 1970 (UTC)."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jgs.arrays import described, refuse_where, refuse_words
from jgs.data.label_values import is_missing
from jgs.data.text import is_number
from jgs.errors import InputError, nearest

SECONDS = {"D": 86_400.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
UNITS = tuple(SECONDS)
"""The units of times, the longest first."""

_SCALES = tuple(10**power for power in range(1, 10))
_EXACT = 2.0**53  # below it, float64 has all whole numbers


@dataclass(frozen=True)
class Clock:
    """How times in the tables of one data set are counted; the options with these names. Its
    columns must be comparable: dates beside numbers need a `time_unit`.

    Fields:
      time_unit: one of `UNITS`, in which times are counted. Dates are converted to it, None is
        seconds. Numbers are in it already.
      time_scale: int, at least 1. Numbers in a table are multiplied by it: 1000000 makes
        microseconds of seconds that have a fraction.
    """

    time_unit: str | None = None
    time_scale: int = 1
    _seen: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_unit("a data set", self.time_unit)
        if self.time_scale < 1:
            raise InputError(
                "the option time_scale must be 1 or more", self.time_scale, "Raise it."
            )

    def unit_of(self, times: np.ndarray | None) -> str | None:
        """The unit of the column `times`, or None where it is not known."""
        dates = times is not None and _dates(times)
        return self.time_unit or ("s" if dates else None)

    def whole(self, what: str, times: np.ndarray, row: str = "edge") -> np.ndarray:
        """int64 `[n]`: the column `times` `[n]` of the table `what`. It has whole numbers,
        dates, or dates as text in the form of ISO 8601. `row` is what messages call what has a
        time. Raises `InputError`."""
        rule = f"the time of every {row} in {what} must be a whole number or a date"
        if times.ndim == 1 and _dates(times):
            dates = dates_of_text(rule, times, row)
            self._compare(what, "dates")
            return self._of_dates(what, dates, row, rule)
        if times.ndim != 1 or times.dtype.kind not in "iuf":
            first = " ".join(str(times[0]).split())[:60] if len(times) else times.dtype
            raise InputError(rule, f"{first} at {row} 0", "Convert the column.")
        self._compare(what, "whole numbers")
        if times.dtype.kind == "f":
            refuse_where(~np.isfinite(times), times, row, rule, "Let no time be missing.")
            return self._of_floats(times.astype(np.float64), row, rule)
        limit = (2**63 - 1) // self.time_scale
        wrong = (times > limit) | (times < -limit)
        refuse_where(wrong, times, row, f"{rule} of 64 bits", "Count from another moment.")
        return times.astype(np.int64) * self.time_scale

    def _compare(self, what: str, kind: str) -> None:
        """Refuses times of two kinds where nobody says what the numbers count."""
        if self.time_unit is not None:
            return
        self._seen.setdefault(kind, what)
        if len(self._seen) > 1:
            raise InputError(
                "times of one data set must be counted alike",
                " and ".join(f"{kind} in {where}" for kind, where in self._seen.items()),
                "Say what the numbers count since 1970, --data-options time_unit=s or another "
                f"of {', '.join(UNITS)}.",
            )

    def _of_dates(self, what: str, dates: np.ndarray, row: str, rule: str) -> np.ndarray:
        refuse_where(np.isnat(dates), dates, row, rule, "Add those that are missing.")
        unit = self.time_unit or "s"
        whole = dates.astype(f"M8[{unit}]")
        if (lost := whole.astype(dates.dtype) != dates).any():
            finer = exact_unit(dates)
            refuse_where(
                lost,
                dates,
                row,
                f"the time of every {row} in {what} must be a whole number of {unit}",
                f"Give --data-options time_unit={finer}." if finer else "Round them.",
            )
        return whole.astype(np.int64)

    def _of_floats(self, times: np.ndarray, row: str, rule: str) -> np.ndarray:
        wrong = _not_whole(times, self.time_scale)
        if wrong.any():
            good = (each for each in _SCALES if not _not_whole(times, each).any())
            scale = next(good, None)
            remedy = "Round them, and write them as integers."
            if scale is not None:
                remedy = f"Give --data-options time_scale={scale}: times are multiplied by it."
            refuse_where(wrong, times, row, rule, remedy)
        return np.rint(times * self.time_scale).astype(np.int64)


def exact_unit(*columns: np.ndarray) -> str | None:
    """The longest unit in which all dates of these columns are whole, or None."""
    whole = (
        unit
        for unit in UNITS
        if all(
            (each.astype(f"M8[{unit}]").astype(each.dtype) == each).all() for each in columns
        )
    )
    return next(whole, None)


def check_unit(name: str, unit: str | None) -> None:
    """Raises `InputError` unless the time unit of the data set `name` is one of `UNITS` or
    None."""
    if unit is not None and unit not in UNITS:
        raise InputError(
            f"the time_unit of {name} must be one of {', '.join(UNITS)}",
            repr(unit),
            f"{nearest(unit, UNITS)} Or leave it out.",
        )


def _not_whole(times: np.ndarray, scale: int) -> np.ndarray:
    """Where `times * scale` is no whole number. The number with the decimals that a text has is
    the float64 next to it, which a whole number divided by `scale` gives again."""
    whole = np.rint(times * scale)
    if scale == 1:
        return (whole != times) | ~(np.abs(times) < 2.0**63)
    return (whole / scale != times) | ~(np.abs(whole) < _EXACT)


def _dates(times: np.ndarray) -> bool:
    return times.dtype.kind in "MOUT"


def dates_of_text(rule: str, times: np.ndarray, row: str) -> np.ndarray:
    """The dates of a column that has dates as text, in NumPy's form; others as they are."""
    if times.dtype.kind == "M":
        return times
    texts = ["" if each is None else " ".join(str(each).split()) for each in times.tolist()]
    found = _parsed(texts)
    if found is None:
        known, end = 0, len(texts)  # the first `known` are dates, the first `end` are not
        while end - known > 1:
            middle = (known + end) // 2
            known, end = (known, middle) if _parsed(texts[:middle]) is None else (middle, end)
        if is_number(texts[known]):  # then numbers were meant, and one of them is none
            others = (at for at, text in enumerate(texts) if not is_number(text))
            known = next(others, known)
        value = texts[known][:60] or "nothing"
        raise InputError(
            rule, f"{value} at {row} {known}", "Correct it, or convert the column."
        )
    return found


def _parsed(texts: list[str]) -> np.ndarray | None:
    try:
        import pyarrow  # optional; text in a table was read by it
    except ImportError:
        return None
    column = pyarrow.array(texts, "string")
    for unit in ("s", "us", "ns"):
        for zone in (None, "UTC"):
            try:
                return column.cast(pyarrow.timestamp(unit, zone)).to_numpy(zero_copy_only=False)
            except pyarrow.ArrowInvalid:
                continue
    return None


REMEDY = "Write numbers in its place, or leave it out by the option encode=NAME:drop."


def kind_of(what: str, values: np.ndarray) -> str:
    """What a column has: "number" (also lists of them), "truth" (true and false), "text" or
    "date". Raises `InputError` for what it should not have."""
    if values.ndim == 2 and values.dtype.kind in "fiub":
        return "number"
    if _only_text(values):
        return "text" if any(values.tolist()) else "number"
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
    if _only_text(values):
        return np.fromiter(map(operator.not_, values.tolist()), bool, values.size)
    if values.dtype.kind in "OUT":
        nests, known = (list, dict, np.ndarray), values.tolist()
        return np.array([not isinstance(v, nests) and is_missing(v) for v in known], bool)
    if values.dtype.kind == "M":
        return np.isnat(values)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def _only_text(values: np.ndarray) -> bool:
    """Whether all are `str` or None, as in text that Arrow read."""
    own = values.dtype == object and values.ndim == 1
    return own and {*map(type, values.tolist())} <= {str, type(None)}


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
    if _only_text(values):
        return np.where(missing, "", values), missing
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


_LIKE = re.compile(
    r"\s*([-+]?(\d{1,3}(,\d{3})+|\d+|(?=[.,]\d))([.,]\d+)?(e[-+]?\d+)?|[-+]?inf|nan"
    r"|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b.*)\s*",
    re.IGNORECASE,
)


def look_otherwise(values: np.ndarray) -> str | None:
    """Of a column of text `[n]` of which most look like numbers or dates, in words what they
    look like; None for other columns, and for names of digits alone, such as `00501`."""
    texts = {text for text in values[:10_000].tolist() if text}
    like = [text for text in texts if _LIKE.fullmatch(text)]
    if 2 * len(like) <= len(texts) or all(map(str.isdigit, texts)):
        return None
    other = min(texts.difference(like), default=None)
    shown = f"most of its values look like numbers or dates, as {min(like)!r}"
    return shown if other is None else f"{shown}, and not {other!r}"


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


def moments(what: str, time: Any, num: int, unit: str | None) -> np.ndarray:
    """int64 `[num]`: the moments at which rows are asked for: `time` is an array `[num]` of
    ints or dates, or one for all. Dates are counted in the `unit` of the data. Raises
    `InputError`, which says `what` is asked for."""
    times = np.asarray(np.nan if time is None else time)
    times = np.zeros(0, np.int64) if times.shape == (0,) == (num,) else times
    if times.dtype.kind in "MUO" and times.shape in ((), (num,)):
        if unit is None:
            raise InputError(
                f"times of {what} must be whole numbers, as those of its data are",
                " ".join(str(times.flat[0]).split())[:60] if times.size else "none",
                "Give numbers, or train with --data-options time_unit=s or another unit.",
            )
        times = Clock(unit).whole(what, times.reshape(-1), "row").reshape(times.shape)
    whole = times.dtype.kind in "iu" and times.dtype != np.uint64  # which int64 does not hold
    if not whole or times.shape not in ((), (num,)):
        raise InputError(
            f"{what} must have times: integers of 64 bits, one for all {num} or one each",
            "none" if time is None else described(times),
            "Give time=, in the unit of the graph's times.",
        )
    return np.broadcast_to(times, num).astype(np.int64)
