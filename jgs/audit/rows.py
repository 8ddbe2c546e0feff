"""Kinds of findings about rows: their times and their splits; and columns that are an aggregate
over the linked rows of all times, later ones too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from jgs.audit.tells import Evidence
from jgs.audit.view import DATES, NEVER, View
from jgs.data.database.answers import is_list
from jgs.data.database.questions import duration_of, labels_at
from jgs.data.database.stored_tables import NUMBERS, quoted
from jgs.data.values import SPLITS

_DAY = 86_400_000_000
_FAR = int(np.datetime64("2100-01-01", "us").astype(np.int64))
_FEW, _LEAST_ROWS, _APART = 3, 20, 3


def late_write(view: View) -> Iterator[Evidence]:
    for table, keys in view.base.catalogue.tables.items():
        times = view.times(table)
        than = f"the row's own {keys.time}"
        if times is None:
            than = f"validation begins, {_date(view.starts()[0])}, though {table} has no times"
        for column in view.moments(table):
            ticks = view.ticks(table, column)
            gap = (ticks - (view.starts()[0] if times is None else times))[ticks != NEVER]
            late = gap[gap > int(table in view.inclusive)]
            if late.size * 100 > gap.size:
                text = f"it is later than {than} in {late.size:,} of {gap.size:,} rows, by "
                text += f"{np.median(late) / _DAY:,.1f} days in the middle"
                planned = times is not None and np.unique(late).size <= _FEW
                yield "note" if planned else "warning", f"{table}.{column}", text


def unborn_entity(view: View) -> Iterator[Evidence]:
    times = view.times(view.asked.table)
    if times is not None and (late := times[view.entity] > view.moment).any():
        text = f"{late.sum():,} of {late.size:,} labels are of rows that come later than the "
        text += f"moment: {_example(view, late)}, of {_date(times[view.entity[late][0]])}"
        yield "error", view.asked.table, text


def split_order(view: View) -> Iterator[Evidence]:
    for split, start in enumerate(view.starts()):
        late = (view.split == split) & ~view.sees(view.moment, start)
        if late.any():
            text = f"{late.sum():,} labels of {SPLITS[split]} are at or after {_date(start)}, "
            text += f"when {SPLITS[split + 1]} begins: {_example(view, late)}"
            yield "error", view.asked.what, text


def label_window(view: View) -> Iterator[Evidence]:
    horizon, what = view.asked.horizon, view.asked.what
    dated = horizon and view.plain.time_unit
    step = duration_of(view.base, str(horizon)).total_seconds() * 1e6 if dated else 0
    for split, start in enumerate(view.starts()):
        own = (view.split == split) & (view.moment < start)
        late = own & (view.moment + step > start)
        if late.any():
            text = f"{late.sum():,} labels of {SPLITS[split]} look {horizon} ahead, beyond "
            text += f"{_date(start)}, when {SPLITS[split + 1]} begins: {_example(view, late)}"
            yield "error", what, text
        elif own.any() and (moved := _moved(view, np.unique(view.moment[own]), start)):
            text = f"{moved:,} labels of {SPLITS[split]} are others without the rows after "
            yield "error", what, f"{text}{_date(start)}, when {SPLITS[split + 1]} begins"


def _moved(view: View, moments: np.ndarray, start: int) -> int:
    """How many labels of entities before `start` the task's SQL gives otherwise without the
    rows after it."""
    base, asked, tables = view.base, view.asked, {}
    if asked.query is None:
        return 0
    for table, keys in base.catalogue.tables.items():
        known = f"{view.ticks_sql(table, keys.time)} <= {start}" if keys.time else "TRUE"
        tables[table] = base.sql(f"SELECT * FROM {quoted(table)} WHERE {known}")
    of = (asked.query, asked.what, moments.astype("M8[us]"))
    rows, other = (labels_at(each, *of) for each in (base, base.with_tables(tables)))
    own, listed = quoted(asked.label), is_list(rows, asked.label)
    value = f"list_sort({own})" if listed and asked.target is not None else own
    kind = "FLOAT" if view.numbers and not listed else "VARCHAR"  # sums in another order
    label = f"* REPLACE (CAST({value} AS {kind}) AS {own})"
    pairs = zip(asked.key, base.catalogue.tables[asked.table].key, strict=True)
    on = " AND ".join(f"audited.{quoted(a)} = entities.{quoted(b)}" for a, b in pairs)
    query = f"SELECT {label} FROM audited SEMI JOIN entities ON {on} "
    query += f"EXCEPT ALL SELECT {label} FROM without"
    given = {"audited": rows, "without": other, "entities": tables[asked.table]}
    return base.sql(query, **given).num_rows


def equal_rows(view: View) -> Iterator[Evidence]:
    train, base, table = view.split == 0, view.base, view.asked.table
    pairs = np.unique(np.stack([view.entity, view.moment], 1), axis=0, return_inverse=True)[1]
    twice = ~train & np.isin(pairs, pairs[train])
    if twice.any():
        text = f"{twice.sum():,} labels have the row and the moment of a label of train: "
        yield "error", view.asked.what, text + _example(view, twice)
    keys = base.catalogue.tables[table]
    of = [n for n in base.columns[table] if n not in keys.key and n != keys.time]
    hashed = ", ".join(f"hash({quoted(name)}) AS h{i}" for i, name in enumerate(of))
    if not of:
        return
    rows = base.sql(f"SELECT {hashed} FROM ({base.rows(table)})")
    columns = np.stack([column.to_numpy() for column in rows.columns], 1)
    own = np.unique(view.entity[train])
    others = np.setdiff1d(view.entity[~train], own)
    shuffled = np.random.default_rng(view.seed).permuted(columns, axis=0)
    found, chance = (
        others[np.isin(sums[others], sums[own])]
        for sums in (columns.sum(axis=1), shuffled.sum(axis=1))
    )
    wide = max(np.unique(column).size for column in columns.T) > 0.8 * len(columns)
    times = np.unique(columns.sum(axis=1)[own], return_counts=True)[1]
    alike = times[times > 1].sum() / max(own.size, 1)  # the share of such rows within train
    wide |= found.size > _APART * alike * others.size
    if wide and found.size > 10 * chance.size + _LEAST_ROWS // 4:
        text = f"{found.size:,} of the {others.size:,} rows of validation and test alone equal "
        text += f"a row of train but for the key, e.g. {view.names(found)}; {chance.size:,} do "
        yield "warning", table, text + "where columns are shuffled"


def odd_moments(view: View) -> Iterator[Evidence]:
    now = time.time() * 1e6
    for table, keys in view.base.catalogue.tables.items():
        own = [] if keys.time is None else [keys.time]
        for column in (*own, *view.columns(table, DATES)):
            if view.base.columns[table][column] in NUMBERS:
                continue
            ticks = view.ticks(table, column)
            ticks = ticks[ticks != NEVER]
            checks = {
                "after 2100": ticks >= _FAR,
                "in the first two months of 1970": (ticks >= 0) & (ticks < 60 * _DAY),
                "in the future": (ticks > now) & (ticks < _FAR) & (column == keys.time),
            }
            for what, odd in checks.items():
                if odd.sum() > (0 if column == keys.time else ticks.size // 2):
                    text = f"{odd.sum():,} of {odd.size:,} moments are {what}, e.g. "
                    yield "warning", f"{table}.{column}", text + _date(ticks[odd][0])


def _example(view: View, chosen: np.ndarray) -> str:
    own = view.of(np.flatnonzero(chosen)[:1])
    return f"e.g. {own.names(own.entity)} at {_date(own.moment[0])}"


def _date(ticks: Any) -> str:
    return str(np.datetime64(int(ticks), "us")).partition(".")[0]


_MOST_ROWS, _SAME, _FINE = 20_000, 0.9, 1e-2
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
