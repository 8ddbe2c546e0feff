"""`Answer`: what a model's outputs say of each row, as values and as columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np


class Predictions(NamedTuple):
    """The predictions of a run for `n` nodes.

    Fields:
      prediction: int32 `[n]`, the class of the largest output. For multi-label data bool
        `[n, C]`, whether each label's output is above 0.
      probability: float32 `[n]`, the probability of that class (softmax). For multi-label data
        `[n, C]`, the probability of each label (sigmoid).
    """

    prediction: np.ndarray
    probability: np.ndarray


class Answer:
    """What outputs `[n, C]` say. Commands, reports and artifacts read any task's answers by it.

    Fields:
      kind: what the labels are; a report judges predictions by it.
      exports: whether `answer_of` makes it of a record, as an artifact does.
      names: text `[C]`, of the classes or labels, or None.
      outputs: the names of the outputs, where each is a column.
      point: the column that is compared with a label; "" where a report judges none.
      target: the output that is explained where a row has no class of its own.
    """

    kind: ClassVar[str] = "rows"
    exports: ClassVar[bool] = False
    outputs: Sequence[str] = ()
    point, target = "prediction", 0

    def __init__(self, names: Any = None):
        self.names = None if names is None else np.array(names)

    def kept(self, outputs: np.ndarray) -> np.ndarray:
        """What `read` needs of outputs, so that no rank keeps more."""
        return outputs

    def read(self, kept: np.ndarray) -> Any:
        """The values that a run's `predict` returns."""
        return kept

    def of(self, outputs: np.ndarray) -> Any:
        """As `read`, of the outputs themselves."""
        return self.read(self.kept(outputs))

    def columns(self, values: Any) -> dict[str, np.ndarray]:
        """The columns of what `read` returned, see `jgs.predict.command`. Here: rows of nodes,
        float32 `[n, W]`."""
        return {"embedding": values}


class Labels(Answer):
    """Any of `C` labels: `Predictions`."""

    kind, exports = "labels", True

    def read(self, kept: np.ndarray) -> Predictions:
        return Predictions(kept > 0, sigmoid(kept))

    def columns(self, values: Predictions) -> dict[str, np.ndarray]:
        return values._asdict()


class Classes(Labels):
    """One of `C` classes: `Predictions`."""

    kind = "classes"

    def kept(self, outputs: np.ndarray) -> np.ndarray:
        return best_class(outputs)

    def read(self, kept: np.ndarray) -> Predictions:
        return Predictions(kept[:, 0].copy(), kept[:, 1].copy().view(np.float32))

    def columns(self, values: Predictions) -> dict[str, np.ndarray]:
        named = {} if self.names is None else {"class_name": self.names[values.prediction]}
        return values._asdict() | named


class Numbers(Answer):
    """Numbers in the unit of the labels: float64 `[n]`, or `[n, C]` where `mean` and
    `deviation` are of several, or where `C` `outputs` are named, of which `point` is one."""

    kind, exports = "numbers", True

    def __init__(self, mean: Any, deviation: Any, outputs: Any = (), point: str = ""):
        super().__init__()
        self.mean, self.deviation, self.outputs = mean, deviation, list(outputs or ())
        self.several = bool(self.outputs or np.ndim(mean))
        self.point = point if self.several else "value"
        self.target = self.outputs.index(point) if point else 0

    def read(self, kept: np.ndarray) -> np.ndarray:
        own = kept if self.several else kept[:, 0]
        return own.astype(np.float64) * np.asarray(self.deviation) + np.asarray(self.mean)

    def columns(self, values: np.ndarray) -> dict[str, np.ndarray]:
        named = zip(self.outputs, values.T, strict=True) if self.outputs else ()
        return dict(named) or {"value": values}


class Probabilities(Answer):
    """The probability of a link, float32 `[n]`, of scores `[n]`."""

    kind, exports, point = "links", True, ""

    def read(self, kept: np.ndarray) -> np.ndarray:
        return np.asarray(jax.nn.sigmoid(kept))

    def columns(self, values: np.ndarray) -> dict[str, np.ndarray]:
        return {"probability": values}


def answer_of(record: dict[str, Any]) -> Answer:
    """The answer of which a checkpoint, or an artifact, has the `record`: `numbers`, their
    `mean`, `deviation`, `columns` and `point`; or `multilabel` and `class_names`; or the `kind`
    "links"."""
    if record.get("kind") == "links":
        return Probabilities()
    if record.get("numbers"):
        of = record.get("mean", 0.0), record.get("deviation", 1.0)
        return Numbers(*of, record.get("columns"), record.get("point", ""))
    return (Labels if record.get("multilabel") else Classes)(record.get("class_names"))


def best_class(logits: np.ndarray) -> np.ndarray:
    """int32 `[n, 2]`: the class of the largest output, and its float32 probability's bits."""
    found = np.empty((len(logits), 2), np.int32)
    step = max(1, (1 << 22) // logits.shape[1])  # bounds the temporaries
    for begin in range(0, len(logits), step):
        some = logits[begin : begin + step]
        best = np.argmax(some, axis=1)  # as in `jgs.train.evaluation.metrics.confusion`
        top = np.take_along_axis(some, best[:, None], axis=1)
        probability = 1 / np.exp(some - top).sum(axis=1)
        found[begin : begin + step, 0] = best
        found[begin : begin + step, 1] = probability.astype(np.float32).view(np.int32)
    return found


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """The logistic function, computed without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)
