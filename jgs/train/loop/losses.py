"""Losses, which are functions of a model's outputs, and what they are means over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from jgs.graph import MiniBatch

# `loss(outputs, batch, labels)`: the mean loss of the batch, float32; 0 for a batch without
# seeds. `outputs` `[B, C]` are the model's, and `labels` are those of all nodes. Padding may
# hold anything, even NaN.
Loss: TypeAlias = Callable[[Any, MiniBatch, jax.Array], jax.Array]
# `count(batch, labels)`: what the loss is a mean over, float32: the sum of the weights.
Count: TypeAlias = Callable[[MiniBatch, Any], jax.Array]


def count_seeds(batch: MiniBatch, labels: Any = None) -> jax.Array:
    """The `Count` of the batch's real seeds."""
    return jnp.sum(batch.seed_mask, dtype=jnp.float32)


def count_pairs(batch: MiniBatch, labels: Any = None) -> jax.Array:
    """The `Count` of the real items of a batch from the stage `jgs.sampling.Links`."""
    return jnp.sum(real_pairs(batch), dtype=jnp.float32)


def real_pairs(batch: MiniBatch) -> jax.Array:
    """bool `[B]`: which items of a batch from the stage `jgs.sampling.Links` are no padding."""
    return batch.items["rows"][:, 0] < batch.seeds.shape[0]


def own_labels(batch: MiniBatch, labels: jax.Array) -> jax.Array:
    """The labels `[B]` or `[B, C]` of a batch's seeds, of those of all nodes."""
    return jnp.take(labels, batch.seeds, axis=0, mode="fill", fill_value=0)


def node_loss(outputs: jax.Array, batch: MiniBatch, labels: jax.Array) -> jax.Array:
    """The `Loss` of classes of nodes. Labels are int `[N]`, one class each, or `[N, C]` of 0
    and 1, any number of classes each."""
    own = own_labels(batch, labels)
    return masked_loss(outputs, own, batch.seed_mask, batch.seed_weight)


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
    count = jnp.sum(mask).astype(loss.dtype)
    return jnp.sum(jnp.where(mask, loss, 0)) / jnp.maximum(count, 1)
