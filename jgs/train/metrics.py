"""How well outputs are: the metrics of `--metric`, exact and equal on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jgs.dist.comm import Alone, Communicator, all_gather_rows
from jgs.errors import InputError

Arrays = Sequence[np.ndarray]
_NONE, _PAD = -1, -2  # in place of a class


class Metric(NamedTuple):
    """One metric.

    Fields:
      name: as it is shown.
      measure: of a communicator, and for each of its local ranks float outputs `[n, C]` and
        labels, int `[n]` or 0 and 1 `[n, C]`: the metric of all ranks' rows together. All
        ranks call it alike, and each gets the same number.
    """

    name: str
    measure: Callable[[Communicator, Arrays, Arrays], float]


def confusion(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64 `[3, C]`: of each class the rows rightly given it, those given it, those that have
    it. Sums over any pieces of the rows are those of all. Of labels `[n]` the class of the
    largest output is given; of labels `[n, C]` those whose output is above 0."""
    if labels.ndim == 2:
        given, true = outputs > 0, labels > 0.5
        return np.stack([np.count_nonzero(a, axis=0) for a in (given & true, given, true)])
    num_classes, given = outputs.shape[1], np.argmax(outputs, axis=1)
    parts = (labels[given == labels], given, labels)
    return np.stack([np.bincount(part, minlength=num_classes) for part in parts])


def auc(scores: np.ndarray, links: np.ndarray) -> float:
    """The probability that a link has a higher score than a pair that is none, both drawn
    uniformly; equal scores count half.

    Args:
      scores: float `[n]`, finite.
      links: bool `[n]`, of which some hold and some do not.
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # the mean one of equal scores
    positive = int(links.sum())
    above = rank[links].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (links.size - positive)))


def _micro(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
    return 2 * int(right.sum()) / max(int(given.sum() + true.sum()), 1)


def _macro(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
    some = given + true > 0
    return float(np.mean(2 * right[some] / (given + true)[some])) if some.any() else 0.0


def _counted(
    of_counts: Callable[..., float],
) -> Callable[[Communicator, Arrays, Arrays], float]:
    def measure(comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
        own = [confusion(*pair).reshape(-1) for pair in zip(outputs, labels, strict=True)]
        total = all_gather_rows(comm, own).astype(np.int64).sum(axis=0)
        return of_counts(*total.reshape(3, -1))

    return measure


def _mean_auc(comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
    """The mean of each class's AUC against all others; of two classes there is one. A class
    that all rows have, or none, does not count; 0.5 where none counts.

    One class at a time, every rank has the scores of all.
    """
    longest = int(all_gather_rows(comm, [np.array([len(own)]) for own in labels]).max())

    def of_all(own: Arrays, padding: float, dtype: type) -> np.ndarray:
        rows: list[np.ndarray] = [
            np.pad(
                np.asarray(column, dtype), (0, longest - len(column)), constant_values=padding
            )
            for column in own
        ]
        return all_gather_rows(comm, rows).reshape(-1)

    several = labels[0].ndim == 2
    single = of_all(
        [np.full(len(own), _NONE) if several else own for own in labels], _PAD, np.int32
    )
    scores = list(outputs) if several else [_log_probability(own) for own in outputs]
    num_classes, found = outputs[0].shape[1], []
    classes = [1] if num_classes == 2 and not several else range(num_classes)
    for c in classes:
        column = of_all([own[:, c] for own in scores], 0, np.float32)[single != _PAD]
        true = single == c
        if several:
            true = of_all([own[:, c] > 0.5 for own in labels], 0, np.int32) > 0
        true = true[single != _PAD]
        if true.any() and not true.all():
            found.append(auc(column, true))
    return float(np.mean(found)) if found else 0.5


def _log_probability(outputs: np.ndarray) -> np.ndarray:
    """float32 `[n, C]`: of each class; of two classes its margin over the other."""
    if outputs.shape[1] == 2:
        return outputs - outputs[:, ::-1]
    shifted = outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


METRICS = {
    "accuracy": Metric("accuracy", _counted(_micro)),  # of one label a row they are equal
    "f1_micro": Metric("micro-F1", _counted(_micro)),
    "f1_macro": Metric("macro-F1", _counted(_macro)),
    "auc": Metric("AUC", _mean_auc),
}


def make_metric(name: str | None, multilabel: bool) -> Metric:
    """The metric `name`, or that of such labels where it is None; raises `InputError`."""
    if name == "accuracy" and multilabel:
        raise InputError(
            "--metric accuracy must be for data of one label a node",
            "several labels",
            "Choose f1_micro, f1_macro or auc.",
        )
    return METRICS[name or ("f1_micro" if multilabel else "accuracy")]


def measured(name: str, outputs: np.ndarray, labels: np.ndarray) -> float:
    """A metric of `METRICS`, of float outputs `[n, C]` at hand."""
    return METRICS[name].measure(Alone(), [outputs], [labels])
