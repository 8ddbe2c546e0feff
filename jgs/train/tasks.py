"""What a run learns: the loss of outputs, and the metric."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.graph import MiniBatch


class Task(Protocol):
    """What the loop, the step and evaluation know of what is learned."""

    def loss(self, outputs: jax.Array, batch: MiniBatch, labels: jax.Array) -> jax.Array:
        """The batch's mean loss, float32; 0 where it has no seed. `outputs` `[B, C]` are the
        model's, `labels` those of all nodes. Padding may hold anything, even NaN."""

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """int `[2]`, whose sums over any pieces of the rows give the metric as a fraction."""

    def metric(self, labels: Any) -> str:
        """What it is called."""


class Nodes:
    """Classes of nodes: int labels `[N]` of one class each, or 0 and 1 `[N, C]` of several."""

    def loss(self, outputs: jax.Array, batch: MiniBatch, labels: jax.Array) -> jax.Array:
        own = jnp.take(labels, batch.seeds, axis=0, mode="fill", fill_value=0)
        return masked_loss(outputs, own, batch.seed_mask, batch.seed_weight)

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.array(right_and_asked(outputs, labels), np.int32)

    def metric(self, labels: Any) -> str:
        return "accuracy" if labels.ndim == 1 else "micro-F1"


TASKS: dict[str, Task] = {"nodes": Nodes()}


def masked_loss(
    logits: jax.Array, labels: jax.Array, mask: jax.Array, weight: jax.Array | None = None
) -> jax.Array:
    """The mean loss over the rows where `mask` holds, float32; 0 where it holds nowhere.

    Args:
      logits: float `[B, C]`; rows where the mask is False may hold anything, even NaN.
      labels: int `[B]`, class ids: softmax cross-entropy; or float `[B, C]` of 0 and 1:
        sigmoid cross-entropy, averaged over the classes.
      mask: bool `[B]`.
      weight: float32 `[B]`, what each row's loss is multiplied by, or None: 1.
    """
    # Masked before the loss, not only after: the derivative of a NaN times 0 is NaN.
    logits = jnp.where(mask[:, None], logits, 0)
    if labels.ndim == 1:
        labels = jnp.where(mask, labels, 0)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    else:
        labels = jnp.where(mask[:, None], labels, 0)
        loss = optax.sigmoid_binary_cross_entropy(logits, labels).mean(axis=-1)
    if weight is not None:
        loss = loss * weight
    return jnp.sum(jnp.where(mask, loss, 0)) / jnp.maximum(jnp.sum(mask), 1)


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """The fraction of rows classified rightly; of multi-label data the micro-averaged F1.

    Args:
      logits: float `[n, C]`.
      labels: int `[n]`, or 0 and 1 `[n, C]`: a label is predicted where its logit is above 0.
    """
    right, asked = right_and_asked(logits, labels)
    return right / max(asked, 1)


def right_and_asked(logits: np.ndarray, labels: np.ndarray) -> tuple[int, int]:
    """Two counts whose sums over any pieces give the `accuracy` of all rows, as a fraction."""
    if labels.ndim == 1:
        return int(np.count_nonzero(np.argmax(logits, axis=1) == labels)), len(labels)
    predicted, true = logits > 0, labels > 0.5
    right = 2 * int(np.count_nonzero(predicted & true))
    return right, right + int(np.count_nonzero(predicted != true))
