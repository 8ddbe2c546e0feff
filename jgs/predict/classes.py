"""The classes that a model's outputs stand for, and their probabilities. NumPy alone."""

from __future__ import annotations

from typing import Any, NamedTuple

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


def of_classes(rows: np.ndarray) -> Predictions:
    """The predictions that `best_class` found."""
    return Predictions(rows[:, 0].copy(), rows[:, 1].copy().view(np.float32))


def in_units(outputs: np.ndarray, mean: Any, deviation: Any) -> np.ndarray:
    """float64 `[n]`, or `[n, C]` where `mean` and `deviation` are of several numbers `[C]`: the
    outputs `[n, C]` of a model of numbers, in the unit of the labels."""
    outputs = outputs if np.ndim(mean) else outputs[:, 0]
    return outputs.astype(np.float64) * np.asarray(deviation) + np.asarray(mean)


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
