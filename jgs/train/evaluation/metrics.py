"""The metrics of `--metric`, which are exact and equal on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError, nearest
from jgs.options import own_function

Arrays = Sequence[np.ndarray]
Measure = Callable[[Communicator, Arrays, Arrays], float]


class Metric(NamedTuple):
    """One metric. `measure` computes it of all ranks' rows together, of a communicator and two
    lists with an item for each local rank: outputs, float `[n, C]`, and labels: int `[n]`, or
    `[n, C]` of 0 and 1, NaN for those not known; or numbers, float `[n]` or `[n, C]`, with
    outputs in the same units. Of several numbers it is the mean over the columns, each over its
    rows that are no NaN. All ranks call it alike, and each gets the same number."""

    name: str  # as it is shown
    measure: Measure
    sign: int = 1  # -1 where a smaller value is better


def confusion(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64 `[3, C]`: for each class the number of rows for which it is predicted and right,
    for which it is predicted, and whose label it is. Counts of pieces of the rows add up. With
    labels `[n]` the class of the largest output is predicted, with labels `[n, C]` every class
    whose output is above 0."""
    if labels.ndim == 2:
        given, true = (outputs > 0) & ~np.isnan(labels), labels > 0.5
        return np.stack([np.count_nonzero(a, axis=0) for a in (given & true, given, true)])
    return counts_of(np.argmax(outputs, axis=1), labels, outputs.shape[1])


def counts_of(given: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """As `confusion`, of the predicted classes, int `[n]`."""
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


def micro_f1(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
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
    A class that all rows have, or no row has, does not count; 0.5 if no class counts. For one
    class at a time every rank gets the scores of all ranks."""
    several, num_classes, found = labels[0].ndim == 2, outputs[0].shape[1], []
    single = np.empty(0) if several else _of_all(comm, [n.astype(np.int32) for n in labels])
    scores = outputs if several else [_log_probability(own) for own in outputs]
    classes = [1] if num_classes == 2 and not several else range(num_classes)
    for c in classes:
        column = _of_all(comm, [own[:, c].astype(np.float32) for own in scores])
        true = single == c
        if several:
            of_class = _of_all(comm, [own[:, c].astype(np.float32) for own in labels])
            known = ~np.isnan(of_class)
            column, true = column[known], of_class[known] > 0
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
    "accuracy": Metric("accuracy", _counted(micro_f1)),  # micro-F1 is it, with one label a row
    "f1_micro": Metric("micro-F1", _counted(micro_f1)),
    "f1_macro": Metric("macro-F1", _counted(_macro)),
    "auc": Metric("AUC", _mean_auc),
}


def rmse(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The root of the mean squared error of numbers `[n]` for labels `[n]`."""
    return float(np.sqrt(_sum((outputs - labels) ** 2) / max(len(labels), 1)))


def mae(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The mean absolute error of numbers `[n]` for labels `[n]`."""
    return float(_sum(np.abs(outputs - labels)) / max(len(labels), 1))


def r2(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The coefficient of determination of numbers `[n]` for labels `[n]`: 1 less the squared
    error over that of the labels' own mean. It is 1 at best, 0 for that mean, and may be below.
    Where all labels are equal it is 1 without an error, and 0 with one."""
    error = _sum((outputs - labels) ** 2)
    spread = _sum((labels - _sum(labels) / max(len(labels), 1)) ** 2)
    return float(1 - error / spread) if spread else float(error == 0)


def _sum(values: np.ndarray) -> np.float64:
    """The sum, of the same bits in whatever order the values are."""
    return np.sort(values.astype(np.float64)).sum()


def _of_all(comm: Communicator, rows: Arrays) -> np.ndarray:
    if comm.size == 1:
        return rows[0]
    sent = [np.ascontiguousarray(own).reshape(-1).view(np.int32) for own in rows]
    return rows_on_all(comm, sent).view(rows[0].dtype).reshape(-1, *rows[0].shape[1:])


def metric_of_rows(
    name: str, function: Callable[[np.ndarray, np.ndarray], float], sign: int = 1
) -> Metric:
    """The `Metric` of a function of outputs `[n, C]` and labels, those of all ranks."""

    def measure(comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
        return float(function(_of_all(comm, outputs), _of_all(comm, labels)))

    return Metric(name, measure, sign)


def _of_columns(error: Callable[[np.ndarray, np.ndarray], float]) -> Callable[..., float]:
    def measured(found: np.ndarray, wanted: np.ndarray) -> float:
        found, wanted = (rows.astype(np.float64) for rows in (found, wanted))
        wanted = wanted.reshape(len(wanted), -1)
        known = ~np.isnan(wanted)
        columns = [c for c in range(wanted.shape[1]) if known[:, c].any()] or [0]
        rows = ((known[:, c], c) for c in columns)
        return float(np.mean([error(found[at], wanted[at]) for at in rows]))

    return measured


# Of numbers.
ERRORS = {
    "rmse": metric_of_rows("RMSE", _of_columns(rmse), -1),
    "mae": metric_of_rows("MAE", _of_columns(mae), -1),
    "r2": metric_of_rows("R2", _of_columns(r2)),
    "nmae": metric_of_rows("NMAE", _of_columns(mae), -1),  # `make_metric` divides
}


def _normalized(train: np.ndarray) -> Metric:
    """RelBench's NMAE: the MAE over the sample deviation of the training labels."""
    spread = np.nanstd(train.astype(np.float64), axis=0, ddof=1) if len(train) > 1 else 0
    if not np.all(spread > 0):
        raise InputError(
            "--metric nmae must have training labels that differ",
            f"a deviation of {np.min(spread)}",
            "Choose mae.",
        )
    of = _of_columns(mae)
    return metric_of_rows("NMAE", lambda own, wanted: of(own / spread, wanted / spread), -1)


def own_metric(place: str) -> Metric:
    """The user's metric at `package.module:function`, of NumPy outputs `[n, C]` and labels,
    those of all ranks. A larger number is better, unless the function has the attribute
    `higher_is_better = False`. Raises `InputError`."""
    function = own_function("metric", place)
    rule = "the function of --metric must take (outputs [n, C], labels), and return a number"

    def measured(*given: np.ndarray) -> float:
        try:
            found = float(function(*given))
        except Exception as error:  # it is the user's: anything may happen in it
            shown = " ".join(str(error).split())[:200]
            seen = f"{place} ({type(error).__name__}: {shown})"
            raise InputError(rule, seen, "Correct it, and try it on arrays.") from error
        if not np.isfinite(found):
            raise InputError(
                f"{rule} that is finite", f"{found} of {place}", "Return such a number."
            )
        return found

    higher = getattr(function, "higher_is_better", True)
    return metric_of_rows(getattr(function, "__name__", place), measured, 1 if higher else -1)


def make_metric(
    name: str | None, multilabel: bool, numbers: bool = False, train: Any = None
) -> Metric:
    """The metric `name`, or the user's, for labels of this kind, of which those of training are
    `train`; None: rmse for numbers, f1_micro for multi-label data, else accuracy. Raises
    `InputError`."""
    if name is not None and ":" in name:
        return own_metric(name)
    if name == "accuracy" and multilabel and not numbers:
        raise InputError(
            "--metric accuracy must be for data of one label a node",
            "several labels",
            "Choose f1_micro, f1_macro or auc.",
        )
    known = ERRORS if numbers else METRICS
    if name is not None and name not in known:
        raise InputError(
            f"--metric for labels that are {'numbers' if numbers else 'classes'} must be one "
            f"of {', '.join(known)}, or package.module:function",
            name,
            nearest(name, known),
        )
    if name == "nmae":
        return _normalized(np.asarray(train))
    default = "rmse" if numbers else "f1_micro" if multilabel else "accuracy"
    return known[name or default]
