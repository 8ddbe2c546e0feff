"""`Predictions`: what the outputs of a model say of nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Predictions(NamedTuple):
    """What a run says of `n` nodes.

    Fields:
      prediction: int32 `[n]`, the class of the largest output; of multi-label data bool
        `[n, C]`, the labels whose output is above 0.
      probability: float32 `[n]`, of that class (softmax); of multi-label data `[n, C]`, of each
        label (sigmoid).
    """

    prediction: np.ndarray
    probability: np.ndarray


def best_class(logits: np.ndarray) -> np.ndarray:
    """int32 `[n, 2]`: the class of the largest output, and the bits of its probability."""
    found = np.empty((len(logits), 2), np.int32)
    step = max(1, (1 << 22) // logits.shape[1])  # bounds the temporaries
    for begin in range(0, len(logits), step):
        some = logits[begin : begin + step]
        best = np.argmax(some, axis=1)  # as `jgs.train.metrics.confusion`
        top = np.take_along_axis(some, best[:, None], axis=1)
        probability = 1 / np.exp(some - top).sum(axis=1)
        found[begin : begin + step, 0] = best
        found[begin : begin + step, 1] = probability.astype(np.float32).view(np.int32)
    return found


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)
