"""The figures of a report, in NumPy: counts by class, by degree, and of probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.predict import Run
from jgs.predict.ids import named
from jgs.train.evaluation.metrics import confusion, counts_of
from jgs.train.loop.data import Data

_Z = 1.96  # standard deviations on each side of an interval of 95 %


class ByClass(NamedTuple):
    """Figures of each of `C` classes or labels; NaN where they are 0 / 0."""

    right: np.ndarray  # int64 `[C]`, the rows for which it is predicted and right
    given: np.ndarray  # for which it is predicted
    true: np.ndarray  # whose label it is
    precision: np.ndarray  # float64 `[C]`, `right / given`
    recall: np.ndarray  # `right / true`
    f1: np.ndarray  # their harmonic mean `2 right / (given + true)`


def by_class(given: np.ndarray, true: np.ndarray, num_classes: int) -> ByClass:
    """The figures of predictions and labels int `[n]`, or `[n, C]`, of which NaN do not
    count."""
    several = true.ndim == 2
    counts = confusion(given, true) if several else counts_of(given, true, num_classes)
    right, given, true = counts.astype(np.int64)
    ways = (right, given), (right, true), (2 * right, given + true)
    nan = np.full(len(right), np.nan)
    shares = (np.divide(a, b, out=nan.copy(), where=b > 0) for a, b in ways)
    return ByClass(right, given, true, *shares)


def confusion_matrix(given: np.ndarray, true: np.ndarray, num_classes: int) -> np.ndarray:
    """int64 `[C, C]`: in row `i` and column `j` the number of rows of class `i` for which `j`
    is predicted."""
    counts = np.bincount(true.astype(np.int64) * num_classes + given, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def confused_pairs(
    given: np.ndarray, true: np.ndarray, most: int
) -> list[tuple[int, int, int]]:
    """The most frequent mistakes: the class, the predicted class, and the number of rows."""
    wrong = given != true
    pairs, count = np.unique(np.stack([true, given])[:, wrong], axis=1, return_counts=True)
    first = np.argsort(-count, kind="stable")[:most]
    return [
        (int(a), int(b), int(n)) for (a, b), n in zip(pairs.T[first], count[first], strict=True)
    ]


class Bin(NamedTuple):
    """A bin: its name, the number of rows, its figure, and an interval of 95 % or None."""

    name: str
    rows: int
    value: float
    interval: tuple[float, float] | None = None


def degree_bins(degree: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The rows of each range of degrees: 0, 1, 2-3, 4-7, 8-15, ...; without empty ranges."""
    level = np.frexp(degree.astype(np.float64))[1]  # 0 for 0, 1 for 1, 2 for 2-3, ...
    found = []
    for k in np.unique(level).tolist():
        low, high = (1 << k) >> 1, max((1 << k) - 1, 0)
        name = str(low) if low == high else f"{low:,}–{high:,}"
        found.append((name, np.flatnonzero(level == k)))
    return found


def share(right: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The share of true values, and its interval of 95 % (Wilson, "Probable inference, the law
    of succession, and statistical inference", 1927)."""
    n, p = right.size, float(np.mean(right))
    middle, spread = p + _Z**2 / (2 * n), _Z * np.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
    scale = 1 + _Z**2 / n
    low, high = float((middle - spread) / scale), float((middle + spread) / scale)
    return p, (max(low, 0.0), min(high, 1.0))


class Calibration(NamedTuple):
    """How far probabilities hold, in `B` bins of equal width; empty ones are left out. The
    `error` is the mean of `|share - mean|`, weighted by `number` (Guo et al., "On calibration
    of modern neural networks", 2017, equation 3)."""

    low: np.ndarray  # float64 `[B]`, the bounds of each bin
    high: np.ndarray
    number: np.ndarray  # int64 `[B]`, how many probabilities it has
    mean: np.ndarray  # float64 `[B]`, their mean
    share: np.ndarray  # float64 `[B]`, the share of events
    error: float


def calibration(probability: np.ndarray, event: np.ndarray, num_bins: int = 10) -> Calibration:
    """The `Calibration` of probabilities `[n]` of events, bool `[n]`."""
    place = np.clip((probability * num_bins).astype(int), 0, num_bins - 1)
    count = np.bincount(place, minlength=num_bins)
    some = np.flatnonzero(count)
    mean, hits = (
        np.bincount(place, of.astype(np.float64), num_bins)[some] / count[some]
        for of in (probability, event)
    )
    error = float(np.sum(count[some] * np.abs(hits - mean)) / max(count.sum(), 1))
    return Calibration(some / num_bins, (some + 1) / num_bins, count[some], mean, hits, error)


MOST = 100_000  # rows that are judged; of more rows a sample is
_VALUES = 1 << 26  # of several labels a row: labels that are judged
CLASSES, LABELS, NUMBERS = "classes", "labels", "numbers"


@dataclass(frozen=True, eq=False)
class Judged:
    """The predictions of a run for `n` rows of a split: nodes, or nodes at moments."""

    kind: str  # `CLASSES`, one of `C` a row; `LABELS`, any of `C`; or `NUMBERS`
    split: str
    total: int  # the rows of the split that have a label; of too many `n` are a sample
    nodes: np.ndarray  # int32 `[n]`, ids of the data set
    time: np.ndarray | None  # int64 `[n]`, the moments
    truth: np.ndarray  # int32 `[n]`, or float32 `[n, C]` of 0, 1 and NaN for none, or `[n]`
    prediction: np.ndarray  # int32 `[n]`, bool `[n, C]`, or float32 `[n]`
    probability: np.ndarray | None  # of the predicted class float32 `[n]`, or of each label
    degree: np.ndarray | None  # int64 `[n]`, in-edges; None at moments, for which it changes
    names: list[str]  # of the `C` classes or labels
    figures: dict[str, float]  # the task's own, by name
    run: Run
    data: Data  # that it predicts on

    @property
    def right(self) -> np.ndarray:
        """bool `[n]` or `[n, C]`: where the prediction is the truth."""
        return self.prediction == (self.truth > 0.5 if self.kind == LABELS else self.truth)

    @property
    def known(self) -> np.ndarray:
        """bool, as `truth`: where there is a label."""
        return ~np.isnan(self.truth)

    def node_name(self, node: int) -> str:
        """The node's id in the user's tables, or its type and the id in it, or its id."""
        if self.run.node_ids is not None:
            return str(self.run.node_ids[node])
        if self.run.schema is not None:
            ((kind,), (place,)) = named(self.run.schema, np.array([node], np.int32))
            return f"{kind} {place}"
        return f"node {node}"


def judge(run: Run, split: str) -> Judged:
    """The predictions for a split, of at most `MOST` rows. Raises `InputError` without
    labels."""
    data, (nodes, time), truth = run.source(), run.rows(split), run.labels(split)
    labelled = truth >= 0 if truth.dtype.kind in "iu" else ~np.isnan(truth)
    some = np.flatnonzero(labelled.any(axis=1) if truth.ndim == 2 else labelled)
    if not some.size:
        raise InputError(f"the {split} split must have labels", "none", "Choose another.")
    most, total = max(1, min(MOST, _VALUES // max(truth[0].size, 1))), some.size
    if total > most:
        rng = np.random.default_rng(run.config.seed)
        some = np.sort(rng.choice(some, most, replace=False))
    nodes, truth, degree = nodes[some], truth[some], None
    if time is None:
        found = run.predict(nodes)
        own = data.in_graph(nodes)
        indptr = np.asarray(data.graphs[0].indptr)
        degree = indptr[own + 1] - indptr[own]
    else:
        time = time[some]
        found = run.predict(nodes, time=time)
    columns, names = run.answer.columns(found), run.class_names
    names = range(run.num_classes) if names is None else names
    own = run.task.figures(columns, truth)
    prediction, probability = columns[run.answer.point], columns.get("probability")
    return Judged(
        *(run.answer.kind, split, total, nodes, time, truth, prediction, probability, degree),
        *([str(name) for name in names], own, run, data),
    )
