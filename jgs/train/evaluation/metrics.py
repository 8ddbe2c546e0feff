"""The metrics of `--metric`, which are exact and equal on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.train.evaluation.rows import padded

Arrays = Sequence[np.ndarray]
Measure = Callable[[Communicator, Arrays, Arrays], float]
_NONE, _PAD = -1, -2  # these stand in place of a class


class Metric(NamedTuple):
    """One metric.

    Fields:
      name: the name that is shown.
      measure: computes the metric of all ranks' rows together. Its arguments are a communicator
        and two lists with an item for each local rank: outputs, float `[n, C]`, and labels, int
        `[n]` or `[n, C]` of 0 and 1. All ranks call it alike, and each gets the same number.
    """

    name: str
    measure: Measure


def confusion(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64 `[3, C]`: for each class the number of rows for which it is predicted and right,
    for which it is predicted, and whose label it is. The counts of pieces of the rows add up to
    the counts of all rows. With labels `[n]` the class of the largest output is predicted, with
    labels `[n, C]` every class whose output is above 0."""
    if labels.ndim == 2:
        given, true = outputs > 0, labels > 0.5
        return np.stack([np.count_nonzero(a, axis=0) for a in (given & true, given, true)])
    num_classes, given = outputs.shape[1], np.argmax(outputs, axis=1)
    parts = (labels[given == labels], given, labels)
    return np.stack([np.bincount(part, minlength=num_classes) for part in parts])


def auc(scores: np.ndarray, links: np.ndarray) -> float:
    """The probability that a link drawn uniformly has a higher score than a pair without a link
    drawn uniformly. Equal scores count half.

    Args:
      scores: float `[n]`, finite.
      links: bool `[n]`, whether each pair is a link; some are and some are not.
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # equal scores share their mean rank
    positive = int(links.sum())
    above = rank[links].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (links.size - positive)))


def _micro(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
    return 2 * int(right.sum()) / max(int(given.sum() + true.sum()), 1)


def _macro(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
    some = given + true > 0
    return float(np.mean(2 * right[some] / (given + true)[some])) if some.any() else 0.0


def _counted(of_counts: Callable[..., float]) -> Measure:
    def measure(comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
        own = [confusion(*pair).reshape(-1) for pair in zip(outputs, labels, strict=True)]
        total = all_gather_rows(comm, own).astype(np.int64).sum(axis=0)
        return of_counts(*total.reshape(3, -1))

    return measure


def _mean_auc(comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
    """The mean over the classes of each one's AUC against all others; two classes have one AUC.
    A class that all rows have, or no row has, does not count. The result is 0.5 if no class
    counts.

    For one class at a time every rank gets the scores of all ranks.
    """
    longest = int(all_gather_rows(comm, [np.array([len(own)]) for own in labels]).max())

    def of_all(own: Arrays, padding: int, dtype: type) -> np.ndarray:
        rows = [padded(column.astype(dtype), longest, padding) for column in own]
        return all_gather_rows(comm, rows).reshape(-1)

    several = labels[0].ndim == 2
    known = [np.full(len(own), _NONE) if several else own for own in labels]
    single = of_all(known, _PAD, np.int32)
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
    """float32 `[n, C]`: each class's log-probability, or its margin over the only other."""
    if outputs.shape[1] == 2:
        return outputs - outputs[:, ::-1]
    shifted = outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


METRICS = {
    "accuracy": Metric("accuracy", _counted(_micro)),  # micro-F1 is it, with one label a row
    "f1_micro": Metric("micro-F1", _counted(_micro)),
    "f1_macro": Metric("macro-F1", _counted(_macro)),
    "auc": Metric("AUC", _mean_auc),
}


# Of numbers, with the names that are shown.
ERRORS: dict[str, tuple[str, Callable[[np.ndarray], float]]] = {
    "rmse": ("RMSE", lambda error: float(np.sqrt(np.mean(error**2)))),
    "mae": ("MAE", lambda error: float(np.mean(np.abs(error)))),
}


def make_metric(name: str | None, multilabel: bool) -> Metric:
    """The metric `name`. None is the default: f1_micro for multi-label data, else accuracy.
    Raises `InputError`."""
    if name == "accuracy" and multilabel:
        raise InputError(
            "--metric accuracy must be for data of one label a node",
            "several labels",
            "Choose f1_micro, f1_macro or auc.",
        )
    if name is not None and name not in METRICS:
        raise InputError(
            f"--metric of --task nodes must be one of {', '.join(METRICS)}",
            name,
            "Choose one.",
        )
    return METRICS[name or ("f1_micro" if multilabel else "accuracy")]
