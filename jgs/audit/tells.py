"""What tells the label alone: a column, a word, a gap, an order, a number of rows.

How well it tells is for classes the area under the ROC curve (AUC), the mean over classes, and
for numbers the correlation of ranks. What values say is learned from one half of the entities
and asked of the other. It counts where chance would give it to less than one of a million.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import rankdata

from jgs.audit.view import View
from jgs.train.evaluation.metrics import auc

Evidence = tuple[str, str, str]
"""The severity, "error", "warning" or "note"; where; and figures in words."""

_ERROR, _WARNING, _NOTE = 0.999, (0.9, 0.95), 0.75  # of classes and of numbers
_DEVIATIONS, _EQUAL = 5.0, 0.99
_BINS, _MOST_CLASSES, _MOST_WORDS, _LEAST_ROWS, _LONG = 64, 10, 300, 20, 64
_WORD = re.compile(r"\w+")

Signals = Iterator[tuple[str, np.ndarray]]  # where, and values for each label


def own_columns(view: View) -> Signals:
    yield from _columns(view, view.asked.table, view.entity)


def linked_columns(view: View) -> Signals:
    for table, key, rows, _ in view.linked():
        for where, values in _columns(view, table, rows):
            yield f"{where} by {key}", values


def gaps(view: View) -> Signals:
    for where, values in own_columns(view):
        yield where, _missing(values).astype(float)


def words(view: View) -> Signals:
    """For each column of long text the word that tells best, as 0 and 1; NaN without a text."""
    for where, values in (*own_columns(view), *linked_columns(view)):
        if values.dtype != object or len({*values.tolist()}) <= _LONG:
            continue
        own, known = view.of(there := ~_missing(values)), values[there]
        rows: dict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(known.tolist()):
            for word in {*_WORD.findall(text.lower())}:
                rows[word].append(row)
        common = sorted(rows, key=lambda word: -len(rows[word]))[:_MOST_WORDS]
        marks = {w: np.bincount(rows[w], minlength=known.size).astype(float) for w in common}
        found = {word: _strength(own, mark) for word, mark in marks.items()}
        if best := max(found, key=lambda word: found[word], default=None):
            told = np.full(values.size, np.nan)
            told[there] = marks[best]
            yield f"the word {best!r} in {where}", told


def row_counts(view: View) -> Signals:
    for table, key, _, counts in view.linked():
        if counts is not None:
            yield f"the number of rows of {table} by {key}", counts.astype(float)


def orders(view: View) -> Signals:
    if view.times(view.asked.table) is None:
        for name, order in _orders(view, view.asked.table):
            yield name, order[view.entity]


def tell(
    signals: Callable[[View], Signals], view: View, least: float = _NOTE
) -> Iterator[Evidence]:
    """Which of the signals tell the label at least so well."""
    names, numbers = view.plain.class_names, view.numbers
    for where, values in signals(view):
        own, known = view.of(there := ~_missing(values)), values[there]
        if known.size < _LEAST_ROWS or np.unique(own.label).size < 2:
            continue
        strength, same = _strength(own, known), float(np.mean(_equal(own, known)))
        if max(strength, same * (same >= _EQUAL)) < least:
            continue
        text = f"it tells the label alone: {'rank correlation' if numbers else 'AUC'} "
        text += f"{strength:.3f} over {known.size:,} labels"
        text += f", and is the label in {same:.1%}" if same >= _EQUAL else ""
        for i, label in enumerate(own.label[:2]):
            shown = f"{known[i]:g}" if known.dtype.kind == "f" else repr(known[i][:30])
            name = f"{label:g}" if numbers or names is None else names[int(label)]
            text += f"; {own.names(own.entity[i : i + 1])} has {shown}, label {name}"
        certain = strength >= _ERROR or same >= _EQUAL
        likely = strength >= _WARNING[numbers]
        yield "error" if certain else "warning" if likely else "note", where, text


def hidden_time(view: View) -> Iterator[Evidence]:
    """Tables without times whose order is that in which their rows are first named."""
    first: dict[str, np.ndarray] = {}
    for table, _, target, ends in view.references:
        times = view.times(table)
        if times is not None and view.base.catalogue.tables[target].time is None:
            least = first.setdefault(target, np.full(view.count(target), np.inf))
            np.minimum.at(least, ends[ends >= 0], times[ends >= 0].astype(float))
    for table, least in first.items():
        known = np.isfinite(least)
        for name, order in _orders(view, table) if known.sum() > _LEAST_ROWS else ():
            share = _correlation(order[known], least[known])
            if abs(share) > _WARNING[0] and abs(share) * known.sum() ** 0.5 > _DEVIATIONS:
                text = f"it tells when rows came to be: rank correlation {share:.3f} with the "
                text += f"time at which {known.sum():,} rows are first named"
                yield "warning", name, f"{text}, though {table} has no times"
                break


def _columns(view: View, table: str, rows: np.ndarray) -> Signals:
    """The columns of a table at these rows, missing for -1."""
    for column in view.columns(table) if view.count(table) else ():
        values = view.values(table, column)
        gone: Any = np.nan if values.dtype.kind == "f" else None
        yield f"{table}.{column}", np.where(rows >= 0, values[rows], gone)


def _orders(view: View, table: str) -> Signals:
    yield f"the order of the rows of {table}", np.arange(view.count(table), dtype=float)
    key = view.base.catalogue.tables[table].key
    if len(key) == 1:
        place = rankdata(np.unique(view.values(table, key[0]), return_inverse=True)[1])
        yield f"the order of {table}.{key[0]}", place


def _missing(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else values == np.array(None)


def _equal(view: View, values: np.ndarray) -> np.ndarray:
    names, numbers = view.plain.class_names, values.dtype.kind == "f"
    if numbers and (view.numbers or names is None):
        return np.isclose(values, view.label, rtol=1e-6, atol=0)
    if numbers or names is None:
        return np.zeros(values.size, bool)
    return values == np.array([names[int(each)] for each in view.label], object)


def _strength(view: View, values: np.ndarray) -> float:
    """How well values `[n]` tell the label, at most 1; 0 where chance might tell as well."""
    if view.numbers:
        targets = [rankdata(view.label)]
    else:
        classes, counts = np.unique(view.label, return_counts=True)
        chosen = classes[np.argsort(-counts, kind="stable")][classes.size == 2 :]
        targets = [np.where(view.label == c, 1.0, 0.0) for c in chosen[:_MOST_CLASSES]]
    entities = np.unique(view.entity)
    codes, found, weights = _codes(values, entities.size), [], []
    half = np.random.default_rng(view.seed).random(entities[-1] + 1)[view.entity] < 0.5
    for target in targets:
        for train in (half, ~half):
            asked = target[~train]
            if not (train.any() and asked.size and np.ptp(asked)):
                continue
            score = _said(codes, target, train)[~train]
            if view.numbers:
                own, above = _correlation(score, asked), 0.0
                chance = entities.size**-0.5
            else:
                own, above = auc(score, asked > 0), 0.5
                a, b = (np.unique(view.entity[target == each]).size for each in (0, 1))
                chance = ((a + b + 1) / (12 * a * b)) ** 0.5
            found.append(own if own - above > _DEVIATIONS * chance else 0.0)
            weights.append(target.sum())
    return float(np.average(found, weights=weights)) if found else 0.0


def _codes(values: np.ndarray, entities: int) -> np.ndarray:
    """int `[n]`: which value it is; of many numbers which of equally many."""
    different, codes = np.unique(values, return_inverse=True)
    bins = min(_BINS, max(2, entities // 20))
    if values.dtype.kind == "f" and different.size > bins:
        edges = np.quantile(values, np.arange(1, bins) / bins)
        return np.searchsorted(edges, values, "right")
    return codes


def _said(codes: np.ndarray, target: np.ndarray, train: np.ndarray) -> np.ndarray:
    """float `[n]`: the mean of the target where the code is the same, among `train`."""
    size, prior = codes.max() + 1, target[train].mean()
    sums = np.bincount(codes[train], target[train], size)
    return ((sums + prior) / (np.bincount(codes[train], minlength=size) + 1))[codes]


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
