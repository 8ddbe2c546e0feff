"""Columns that are an aggregate over the linked rows of all times, later ones too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from jgs.audit.tells import Evidence
from jgs.audit.view import DATES, View
from jgs.data.database.stored_tables import NUMBERS

_LEAST_ROWS, _MOST_ROWS, _SAME, _FINE = 20, 20_000, 0.9, 1e-2
_KINDS = (*NUMBERS, "DECIMAL", "BOOLEAN", *DATES)


class _Group(NamedTuple):
    """`n` rows of a table that lead to `m` rows of another, each of which is older than one.

    `by` is the way to the table `target`; `rows` int `[n]`; `ends` int `[n]`, which of the `m`
    each leads to; `columns` numbers of the other table, float `[m]`, by their names.
    """

    by: str
    target: str
    rows: np.ndarray
    ends: np.ndarray
    columns: dict[str, np.ndarray]


def late_aggregate(view: View) -> Iterator[Evidence]:
    for table in view.base.catalogue.tables:
        ways = [_group(view, *way) for way in _ways(view, table)]
        groups = [group for group in ways if group and group.columns]
        for name, owner, values in _numbers(view, table) if groups else ():
            for group in groups:
                if owner != group.target:  # else each row has its own value
                    yield from _found(group, table, name, values[group.rows])


def _group(
    view: View, by: str, target: str, ends: np.ndarray, moments: np.ndarray
) -> _Group | None:
    """The group of a way, None where fewer than `_LEAST_ROWS` have a later row."""
    rows, born = np.flatnonzero(ends >= 0), view.times(target)
    ends, place = ends[rows], np.full(view.count(target), -1)
    late = moments[rows] > (view.moment.min() if born is None else born[ends])
    chosen = np.unique(ends[late])
    if chosen.size < _LEAST_ROWS:
        return None
    chosen = np.random.default_rng(view.seed).permutation(chosen)[:_MOST_ROWS]
    place[chosen] = np.arange(chosen.size)
    kept = place[ends] >= 0
    columns = {f"{target}.{name}": values[chosen] for name, values in _floats(view, target)}
    for other, key, named, of in view.references:
        if named == target and view.base.catalogue.tables[other].time is None:
            counts = np.bincount(of[of >= 0], minlength=place.size)[chosen]
            columns[f"the number of rows of {other} by {key}"] = counts.astype(float)
    return _Group(by, target, rows[kept], place[ends[kept]], columns)


def _found(group: _Group, table: str, name: str, values: np.ndarray) -> Iterator[Evidence]:
    for (what, figures), (where, own) in product(
        _aggregates(name, values, group.ends).items(), group.columns.items()
    ):
        rows = np.flatnonzero(np.isfinite(own) & np.isfinite(figures))
        if rows.size < _LEAST_ROWS:
            continue
        own, told = own[rows], figures[rows]
        of: Any = {"rtol": 1e-6, "atol": _rounding(own)}
        same, shifted = np.isclose(own, told, **of).mean(), np.roll(told, rows.size // 2)
        if same > _SAME > 2 * np.isclose(own, shifted, **of).mean():
            text = f"it is {what} over all rows of {table} by {group.by}, also later ones, "
            yield "error", where, f"{text}in {same:.0%} of {rows.size:,} rows"


def _rounding(values: np.ndarray) -> float:
    """How far values with few decimals may be from what they were rounded from; 0 where that
    is no small part of their deviation."""
    for digits in range(5):
        if np.isclose(values, np.round(values, digits), rtol=1e-12).all():
            half = 0.5 * 10.0**-digits
            return half if half < _FINE * values.std() else 0.0
    return 0.0


def _aggregates(name: str, values: np.ndarray, ends: np.ndarray) -> dict[str, np.ndarray]:
    """Figures `[m]` of the values by their ends; NaN for the mean and the largest of equal
    values, which say no more than each of them."""
    known, size = np.isfinite(values), ends.max() + 1
    values, ends = values[known], ends[known]
    sums, last = np.bincount(ends, values, size), np.full((2, size), -np.inf)
    if not name:
        return {"the number": sums}
    for sign, most in zip((1, -1), last, strict=True):
        np.maximum.at(most, ends, sign * values)
    largest = np.where(last[0] > -last[1], last[0], np.nan)
    mean = sums / np.where(np.isnan(largest), np.nan, np.bincount(ends, minlength=size))
    return {
        f"the sum of {name}": sums,
        f"the largest {name}": largest,
        f"the mean {name}": mean,
    }


def _ways(view: View, table: str) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """The ways of one key or two from a table that has times, its own or those of the rows that
    it names: the keys, the table they lead to, the row there or -1, and the times."""
    own = view.times(table)
    for owner, key, middle, ends in view.references:
        born = view.times(middle) if own is None else None
        if owner != table or not (ends >= 0).any() or own is born is None:
            continue
        if own is not None:
            yield key, middle, ends, own
        moments: Any = own if born is None else born[ends]
        for other, by, target, rows in view.references:
            if other == middle:
                there = np.where(ends < 0, -1, rows[ends])
                yield f"{key} and {middle}.{by}", target, there, moments


def _numbers(view: View, table: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Numbers `[rows]` of the rows of a table: their name, the other table that has them or "",
    and 1, the table's columns, those of the rows that it names, NaN where one is missing."""
    if (time := view.base.catalogue.tables[table].time) is not None:
        values = view.values(table, time)  # text is no number, and has a moment
        yield time, "", values if values.dtype.kind == "f" else view.ticks(table, time) * 1.0
    for column, values in _floats(view, table):
        yield column, "", values
    keys = [
        (key, target, ends) for owner, key, target, ends in view.references if owner == table
    ]
    yield "", "", np.ones(keys[0][2].size)
    for key, target, ends in keys:
        for column, values in _floats(view, target):
            named = np.where(ends < 0, np.nan, values[ends])
            yield f"{target}.{column} by {key}", target, named


def _floats(view: View, table: str) -> Iterator[tuple[str, np.ndarray]]:
    for column in view.columns(table, _KINDS) if view.count(table) else ():
        values = view.values(table, column)
        if values.dtype.kind == "f":
            yield column, values
