"""The sections of a report that judge predictions of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.report import charts, figures
from jgs.report.elements import Element, folded, grid, section, share_bar, shown, table, tag
from jgs.report.examples import example, legend, most_wrong
from jgs.report.figures import CLASSES, LABELS, NUMBERS, Judged
from jgs.train.evaluation.metrics import mae, micro_f1, r2, rmse

_SQUARE = 30  # classes: a larger matrix cannot be read
_PAIRS, _ROWS = 10, 60  # mistakes, and classes, that are listed


def sections(judged: Judged, num_examples: int) -> list[Element]:
    """The sections for predictions, by the kind of labels: errors of numbers, mistakes, figures
    by class, calibration, figures by degree, and the examples most wrong."""
    if judged.kind == NUMBERS:
        found = [_residuals(judged)]
    else:
        found = [_confusion(judged)] if judged.kind == CLASSES else []
        found.append(_classes(judged))
    if judged.degree is not None:
        found.append(_degrees(judged, judged.degree))
    if judged.probability is not None:
        found.append(_calibration(judged))
    return [*found, _examples(judged, num_examples)] if num_examples else found


def summary(judged: Judged) -> tuple[str, float]:
    """The name and the value of the figure that says how good the predictions are."""
    if judged.kind == NUMBERS:
        return "RMSE", rmse(*_numbers(judged))
    if judged.kind == CLASSES:
        return "accuracy", float(judged.right.mean())
    return "micro-F1", _micro_f1(judged, np.arange(len(judged.nodes)))


def _confusion(judged: Judged) -> Element:
    names, of = judged.names, (judged.prediction, judged.truth)
    pairs = figures.confused_pairs(*of, _PAIRS)
    true = np.bincount(judged.truth, minlength=len(names))
    rows = [(f"{names[a]} → {names[b]}", n, share_bar(n / int(true[a]))) for a, b, n in pairs]
    head = ("class → predicted", "rows", "share of the class")
    listed: Any = table("The most frequent mistakes", head, rows)
    if not rows:
        listed = tag("p", "There is no mistake.")
    if len(names) > _SQUARE:
        said = f"{len(names):,} classes are too many for a matrix that can be read."
        return section("Mistakes", tag("p", said, class_="soft"), listed)
    matrix = figures.confusion_matrix(*of, len(names))
    numbers = table(
        "Rows are classes, columns predicted classes", ("class", *names),
        ((name, *row) for name, row in zip(names, matrix.tolist(), strict=True)),
    )  # fmt: skip
    return section(
        "Confusion matrix",
        tag(
            "p",
            "A row has the examples of a class. A cell is as strong as its share of the row: "
            "blue on the diagonal, where predictions are right, and orange elsewhere.",
            class_="soft",
        ),
        grid(charts.heat(matrix, names), listed),
        folded("The matrix in numbers", numbers),
    )


def _classes(judged: Judged) -> Element:
    found = figures.by_class(judged.prediction, judged.truth, len(judged.names))
    what = "label" if judged.kind == LABELS else "class"
    order: Any = np.arange(len(judged.names))
    said = f"Precision is the share of right ones among what is predicted to be of a {what}, "
    said += "recall their share among what is of it, and F1 the harmonic mean of both."
    if order.size > _ROWS:
        some = np.flatnonzero(found.true > 0)
        order = some[np.argsort(found.f1[some], kind="stable")[:_ROWS]]
        said += f" Of {len(judged.names):,}, the {order.size} of the lowest F1 are listed."
    shares = np.stack([found.f1, found.precision, found.recall], axis=1).tolist()
    rows = [
        (judged.names[c], int(found.true[c]), int(found.given[c]), *map(share_bar, shares[c]))
        for c in order
    ]
    head = (what, "rows", "predicted", "F1", "precision", "recall")
    title = "By label" if judged.kind == LABELS else "By class"
    return section(
        title, tag("p", said, class_="soft"), table(f"Figures of each {what}", head, rows)
    )


def _degrees(judged: Judged, degree: np.ndarray) -> Element:
    bins = []
    name, _ = summary(judged)
    for text, some in figures.degree_bins(degree):
        if judged.kind == CLASSES:
            bins.append(figures.Bin(text, some.size, *figures.share(judged.right[some])))
        elif judged.kind == LABELS:
            bins.append(figures.Bin(text, some.size, _micro_f1(judged, some)))
        else:
            found = rmse(*(numbers[some] for numbers in _numbers(judged)))
            bins.append(figures.Bin(text, some.size, found))
    rows = [
        (b.name, b.rows, *(_digits(value) for value in (b.value, *(b.interval or ()))))
        for b in bins
    ]
    head = ("in-edges", "rows", name, *(("from", "to") if bins[0].interval else ()))
    said = "The degree of a node is the number of its in-edges, from which it gets messages."
    said += " The thin lines are intervals of 95 % (Wilson)." if bins[0].interval else ""
    top = None if judged.kind == NUMBERS else 1.0
    return section(
        "By degree",
        tag("p", said, class_="soft"),
        grid(charts.bars(name, "in-edges", bins, top), table(f"{name} by degree", head, rows)),
    )


def _calibration(judged: Judged) -> Element:
    assert judged.probability is not None
    if judged.kind == LABELS:
        known = judged.known
        probability, event = judged.probability[known], judged.truth[known] > 0.5
        said = "A prediction is the probability of one label for one row. "
        name = "share with the label"
    else:
        probability, event, name = judged.probability, judged.right, "accuracy"
        said = "A prediction is the probability of the predicted class. "
    found = figures.calibration(probability, event)
    said += "Below the diagonal the model is too sure, above it not sure enough. Grey bars "
    said += "show how many predictions have such a probability."
    each = zip(*(a.tolist() for a in found[:5]), strict=True)
    rows = [
        (f"{low:.1f}–{high:.1f}", n, _digits(mean), _digits(hits))
        for low, high, n, mean, hits in each
    ]
    head = ("probability", "predictions", "mean", name)
    return section(
        "Calibration",
        tag("p", f"Expected calibration error: {found.error:.4f}."),
        tag("p", said, class_="soft"),
        grid(charts.reliability(found, name), table("Calibration", head, rows)),
    )


def _residuals(judged: Judged) -> Element:
    of = _numbers(judged)
    error = of[0] - of[1]
    drawn, bins = charts.histogram("residuals", error)
    rows = [(b.name, b.rows) for b in bins]
    said = f"RMSE {shown(rmse(*of))}, MAE {shown(mae(*of))}, R² {shown(r2(*of))}. "
    return section(
        "Residuals",
        tag("p", said + "A residual is the prediction less the label."),
        grid(charts.cloud(*of), drawn),
        folded("The residuals in numbers", table("Residuals", ("residual", "rows"), rows)),
    )


def _examples(judged: Judged, most: int) -> Element:
    found = most_wrong(judged, most)
    if not found:
        return section("Examples most wrong", tag("p", "No prediction is wrong."))
    order = {
        CLASSES: "Wrong predictions of the highest probability come first.",
        LABELS: "Labels whose probability is most wrong come first.",
        NUMBERS: "The largest errors come first.",
    }[judged.kind]
    told: list[Any] = [tag("p", order, class_="soft")]
    if judged.time is None:
        target = {
            CLASSES: "the output of the predicted class",
            LABELS: "the output of the label",
            NUMBERS: "the prediction",
        }[judged.kind]
        said = f"An edge's message adds to {target} (orange, solid) or takes from it (blue, "
        said += "dashed); wider lines do more. The node is in the middle. Of its neighbours at "
        said += "most 6 are drawn, and at most 3 of each of theirs."
        told += [tag("p", said, class_="soft"), legend(judged)]
    cards = [example(judged, *each) for each in found]
    return section("Examples most wrong", *told, tag("div", cards, class_="grid"))


def _numbers(judged: Judged) -> tuple[np.ndarray, np.ndarray]:
    """float64 `[n]`: the predictions, and the labels."""
    return judged.prediction.astype(np.float64), judged.truth.astype(np.float64)


def _digits(value: float) -> str:
    return f"{value:.3f}" if value < 1000 else shown(value)


def _micro_f1(judged: Judged, some: np.ndarray) -> float:
    found = figures.by_class(judged.prediction[some], judged.truth[some], len(judged.names))
    return micro_f1(found.right, found.given, found.true)
