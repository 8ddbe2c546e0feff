"""The sections of a report that judge predictions of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.report import figures
from jgs.report.elements import (
    Element,
    bars,
    cloud,
    folded,
    grid,
    heat,
    histogram,
    picture,
    reliability,
    section,
    share_bar,
    shown,
    table,
    tag,
)
from jgs.report.figures import CLASSES, LABELS, NUMBERS, Judged
from jgs.train.evaluation.metrics import mae, micro_f1, r2, rmse
from jgs.train.loop.model import is_contextual
from jgs.viz import Drawn, drawn_of, places, rings

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
        grid(heat(matrix, names), listed),
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
        grid(bars(name, "in-edges", bins, top), table(f"{name} by degree", head, rows)),
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
        grid(reliability(found, name), table("Calibration", head, rows)),
    )


def _residuals(judged: Judged) -> Element:
    of = _numbers(judged)
    error = of[0] - of[1]
    drawn, bins = histogram("residuals", error)
    rows = [(b.name, b.rows) for b in bins]
    said = f"RMSE {shown(rmse(*of))}, MAE {shown(mae(*of))}, R² {shown(r2(*of))}. "
    return section(
        "Residuals",
        tag("p", said + "A residual is the prediction less the label."),
        grid(cloud(*of), drawn),
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


_SIZE, _MARGIN = 320, 14
_FANOUTS = (6, 3)  # neighbours that are drawn, of the node and of each neighbour; then 1
_NONE = "without a label"
_OTHER = "of another class"


def most_wrong(judged: Judged, most: int) -> list[tuple[int, int]]:
    """At most `most` wrong rows, the worst first, each with the output to explain: of classes
    the predicted one of the highest probability; of several labels that of the most wrong
    probability; of numbers those with the largest errors."""
    if judged.kind == NUMBERS:
        worst = np.abs(judged.prediction.astype(np.float64) - judged.truth)
        target, wrong = np.full(len(worst), judged.run.answer.target), worst > 0
    elif judged.kind == LABELS:
        assert judged.probability is not None
        far = np.where(judged.known, np.abs(judged.probability - judged.truth), -1)
        target, worst = np.argmax(far, axis=1), far.max(axis=1)
        wrong = (judged.known & ~judged.right).any(axis=1)
    else:
        target, wrong = judged.prediction, ~judged.right
        worst = np.zeros(len(wrong)) if judged.probability is None else judged.probability
    rows = np.flatnonzero(wrong)
    rows = rows[np.argsort(-worst[rows], kind="stable")[:most]]
    return [(int(row), int(target[row])) for row in rows]


def example(judged: Judged, row: int, target: int) -> Element:
    """What is known of a row, and the neighbourhood of its node if that can be drawn."""
    node = int(judged.nodes[row])
    facts = _facts(judged, row, target) + _neighbors(judged, row, target)
    told = [(tag("dt", name), tag("dd", text)) for name, text in facts]
    name = judged.node_name(node)
    return tag(
        "div", tag("h3", name), tag("dl", told), _drawn(judged, row, target), class_="example"
    )


def legend(judged: Judged) -> Element | None:
    """What the marks of nodes mean; None for numbers."""
    if judged.kind == NUMBERS:
        return None
    first, second = "of the node's true class", "of the class predicted for it"
    if judged.kind == LABELS:
        first, second = "right about the label", "as was wrongly predicted"
    marks = [("a", first), ("b", second)]
    marks += [("other", _OTHER)] if judged.kind == CLASSES else []
    keys = []
    for kind, text in [*marks, ("none", _NONE)]:
        key = tag("svg", _mark(kind, 8, 8, 5), viewBox="0 0 16 16", class_="key")
        key.set("aria-hidden", "true")
        keys.append(tag("span", key, f" {text}"))
    return tag("p", tag("span", "Nodes:"), keys, class_="keys")


def _facts(judged: Judged, row: int, target: int) -> list[tuple[str, str]]:
    truth, given = judged.truth[row], judged.prediction[row]
    found = []
    if judged.time is not None:
        found.append(("time", str(judged.time[row])))
    if judged.kind == NUMBERS:
        error = float(given) - float(truth)
        found += [("label", shown(float(truth))), ("predicted", shown(float(given)))]
        return [*found, ("error", shown(error))]
    sure = "" if judged.probability is None else f", with {judged.probability[row].max():.3f}"
    if judged.kind == CLASSES:
        names = judged.names
        return [*found, ("true", names[truth]), ("predicted", names[given] + sure)]
    assert judged.probability is not None
    wrong = int(np.count_nonzero((judged.known & ~judged.right)[row]))
    has = "has it" if truth[target] > 0.5 else "does not have it"
    return [
        *found,
        ("label", f"{judged.names[target]}: {has}"),
        ("probability", f"{judged.probability[row, target]:.3f}"),
        ("wrong labels", f"{wrong:,} of {int(judged.known[row].sum()):,}"),
    ]


def _neighbors(judged: Judged, row: int, target: int) -> list[tuple[str, str]]:
    if judged.time is not None:
        return []
    graph, own = judged.data.graphs[0], int(judged.data.in_graph(judged.nodes[row]))
    begin, end = np.asarray(graph.indptr[own : own + 2]).tolist()
    ids = np.asarray(graph.indices[begin:end])
    if judged.kind == NUMBERS:
        return [("in-edges", f"{ids.size:,}")]
    kinds = _kinds(judged, row, target, ids)
    first, second = "of its class", "of the predicted class"
    if judged.kind == LABELS:
        first, second = "right about it", "as predicted"
    texts = {"a": first, "b": second, "other": "of others", "none": _NONE}
    counts = [(kinds.count(kind), text) for kind, text in texts.items()]
    parts = ", ".join(f"{n:,} {text}" for n, text in counts if n)
    return [("in-edges", f"{ids.size:,}" + (f": from {parts}" if parts else ""))]


def _kinds(judged: Judged, row: int, target: int, own: np.ndarray) -> list[str]:
    if judged.kind == NUMBERS:
        return ["other"] * own.size
    labels, truth = judged.data.host_labels[own], judged.truth[row]
    if judged.kind == LABELS:
        has, unknown = labels[:, target] > 0.5, np.isnan(labels[:, target])
        same = has == (truth[target] > 0.5)
        return np.where(unknown, "none", np.where(same, "a", "b")).tolist()
    given = np.where(labels == judged.prediction[row], "b", "other")
    known = np.where(labels == truth, "a", given)
    return np.where(labels < 0, "none", known).tolist()


def _drawn(judged: Judged, row: int, target: int) -> Element | None:
    node, run = int(judged.nodes[row]), judged.run
    asked = {} if judged.time is None else {"time": judged.time[row]}
    if not is_contextual(run.config):
        if asked:
            return None
        layers = len(run.model.layers)
        asked = {"fanouts": (*_FANOUTS, *(1,) * layers)[:layers]}
    try:
        found = run.explain(node, target=target, **asked)
    except InputError as error:
        return tag("p", f"No neighbourhood is drawn: {error}", class_="soft")
    drawn = drawn_of(found)
    kinds = _kinds(judged, row, target, judged.data.in_graph(drawn.ids))
    about = f"{drawn.ids.size} nodes and {drawn.src.size} edges that the model has read."
    at = places(drawn, rings(drawn))
    at *= (_SIZE / 2 - _MARGIN) / max(float(np.abs(at).max(initial=0)), 1.0)
    at += _SIZE / 2, _MARGIN - at[:, 1].min()
    height = float(at[:, 1].max()) + _MARGIN
    svg = picture(f"Neighbourhood of {judged.node_name(node)}", about, _SIZE, height)
    svg.extend(_edges(drawn, at))
    for i, (x, y) in enumerate(at.tolist()):
        mark = _mark(kinds[i], x, y, 8 if drawn.seeds[i] else 5.5, drawn.seeds[i])
        mark.insert(0, tag("title", judged.node_name(int(drawn.ids[i]))))
        svg.append(mark)
    return svg


def _edges(drawn: Drawn, at: np.ndarray) -> list[Element]:
    assert drawn.edge_scores is not None
    shares = drawn.edge_scores / (np.abs(drawn.edge_scores).max(initial=0) or 1)
    found = []
    for src, dst, share in zip(drawn.src, drawn.dst, shares.tolist(), strict=True):
        if src == dst:
            continue
        ends = zip(("x1", "y1", "x2", "y2"), (*at[src], *at[dst]), strict=True)
        look = {"class_": f"edge {'for' if share > 0 else 'against'}"}
        look |= {"stroke_width": f"{0.8 + 3 * abs(share):.2f}"}
        look |= {"stroke_opacity": f"{0.35 + 0.65 * abs(share):.2f}"}
        found.append(tag("line", **{name: f"{v:.1f}" for name, v in ends}, **look))
    return found


def _mark(kind: str, x: float, y: float, r: float, seed: bool = False) -> Element:
    """The mark of a node: shapes differ as well as colours."""
    look = {"class_": f"node {kind}{' seed' if seed else ''}"}
    if kind in ("a", "none"):
        return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{r:.1f}", **look)
    if kind == "b":
        side = f"{1.8 * r:.1f}"
        corner = {"x": f"{x - 0.9 * r:.1f}", "y": f"{y - 0.9 * r:.1f}"}
        return tag("rect", **corner, width=side, height=side, **look)
    ends = (x, y - 1.2 * r), (x + 1.2 * r, y), (x, y + 1.2 * r), (x - 1.2 * r, y)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in ends)
    return tag("polygon", points=points, **look)
