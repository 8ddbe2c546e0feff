"""`Judged`: what a run predicts for a split, beside the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.predict import Run
from jgs.predict.ids import named
from jgs.predict.source import RunData

MOST = 100_000  # rows that are judged; of more rows a sample is
_VALUES = 1 << 26  # of several labels a row: labels that are judged
CLASSES, LABELS, NUMBERS = "classes", "labels", "numbers"


@dataclass(frozen=True, eq=False)
class Judged:
    """The predictions of a run for `n` rows of a split, which are nodes, or nodes at moments.

    Fields:
      kind: `CLASSES`, one of `C` classes a row; `LABELS`, any of `C` labels; or `NUMBERS`.
      split: its name.
      total: the rows of the split that have a label. `n` is smaller where that is too many.
      nodes: int32 `[n]`, ids of the data set.
      time: int64 `[n]`, the moments; or None.
      truth: int32 `[n]`, or float32 `[n, C]` of 0, 1 and NaN for none, or float32 `[n]`.
      prediction: int32 `[n]`, bool `[n, C]`, or float32 `[n]`.
      probability: of the predicted class float32 `[n]`, of each label `[n, C]`; or None.
      degree: int64 `[n]`, the nodes' in-edges; None at moments, for which it changes.
      names: the names of the `C` classes or labels.
      figures: the task's own figures, by name.
      run, data: the opened run, and the `jgs.predict.source.RunData` that it predicts on.
    """

    kind: str
    split: str
    total: int
    nodes: np.ndarray
    time: np.ndarray | None
    truth: np.ndarray
    prediction: np.ndarray
    probability: np.ndarray | None
    degree: np.ndarray | None
    names: list[str]
    figures: dict[str, float]
    run: Run
    data: RunData

    @property
    def right(self) -> np.ndarray:
        """bool `[n]` or `[n, C]`: where the prediction is the truth."""
        return self.prediction == (self.truth > 0.5 if self.kind == LABELS else self.truth)

    @property
    def known(self) -> np.ndarray:
        """bool, as `truth`: where there is a label."""
        return ~np.isnan(self.truth)

    def in_graph(self, nodes: Any) -> Any:
        """The ids in `data.graphs` of nodes of the data set."""
        return nodes if self.data.own_ids is None else self.data.own_ids[nodes]

    def node_name(self, node: int) -> str:
        """The node's id in the user's tables, or its type and the id in it, or its id."""
        if self.run.node_ids is not None:
            return str(self.run.node_ids[node])
        if self.run.schema is not None:
            ((kind,), (place,)) = named(self.run.schema, np.array([node], np.int32))
            return f"{kind} {place}"
        return f"node {node}"


def judge(run: Run, split: str) -> Judged:
    """The predictions of a run of a task of nodes for a split, of at most `MOST` rows. Raises
    `InputError` for a split without labels."""
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
        own = nodes if data.own_ids is None else data.own_ids[nodes]
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
