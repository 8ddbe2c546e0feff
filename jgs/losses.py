"""Losses of outputs and labels, one value for each row: those of `jgs train --loss`.

All take `outputs` float32 `[B, C]`, as a model returns them, and `labels`:

  classes, int `[B]`, one each: the loss is `[B]`, of the softmax of the outputs;
  several labels, float32 `[B, C]` of 0 and 1: the loss is `[B, C]`, of the sigmoid of each;
  numbers, float32 `[B]`, with outputs `[B, 1]`: the loss is `[B]`;
  several numbers, float32 `[B, C]`: the loss is `[B, C]`.

A loss of your own, `--loss package.module:function`, is a function of the same two arguments.
`masked_mean` is their mean over what is known.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jgs.settings import usual_promotion

__all__ = ["balanced_weights", "cross_entropy", "focal", "huber", "masked_mean", "mse"]


def cross_entropy(
    outputs: jax.Array, labels: jax.Array, *, smoothing: float = 0.0
) -> jax.Array:
    """The cross-entropy of classes `[B]`, or of several labels `[B, C]`.

    `smoothing`, in [0, 1), moves labels to what all classes share (Szegedy et al. 2016, section
    7): by `optax.smooth_labels` the class gets `1 - smoothing`, and each of the `C` classes
    `smoothing / C` more. Of several labels each is one of two classes.
    """
    with usual_promotion():
        if labels.ndim == 2:
            soft = labels * (1 - smoothing) + smoothing / 2 if smoothing else labels
            return optax.sigmoid_binary_cross_entropy(outputs, soft)
        if not smoothing:
            return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
        each = jax.nn.one_hot(labels, outputs.shape[1], dtype=outputs.dtype)
        return optax.softmax_cross_entropy(outputs, optax.smooth_labels(each, smoothing))


def focal(
    outputs: jax.Array, labels: jax.Array, *, gamma: float = 2.0, smoothing: float = 0.0
) -> jax.Array:
    """The focal loss `(1 - p)^gamma * -log p` of the probability `p` of the class `[B]`, or of
    each of several labels `[B, C]` (Lin et al. 2017, equation 4). With a `gamma` of 0 it is
    `cross_entropy`. Rows that are predicted well count less. With `smoothing`, as in
    `cross_entropy`, `p` is that of the class itself, and the cross-entropy the smoothed one.
    """
    with usual_promotion():
        if labels.ndim == 2 and not smoothing:
            return optax.losses.sigmoid_focal_loss(outputs, labels, gamma=gamma)
        plain = cross_entropy(outputs, labels)
        each = cross_entropy(outputs, labels, smoothing=smoothing) if smoothing else plain
        # 1 - p, above 0 so that every power of it has a derivative.
        wrong = jnp.maximum(-jnp.expm1(-plain), jnp.finfo(plain.dtype).tiny)
        return wrong**gamma * each if gamma else each


def mse(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """The squared error `[B]` of numbers, or `[B, C]` of several."""
    return optax.squared_error(_number(outputs, labels), labels)


def huber(outputs: jax.Array, labels: jax.Array, *, delta: float = 1.0) -> jax.Array:
    """Huber's loss `[B]` of numbers, or `[B, C]` of several: half the squared error up to an
    error of `delta`, and from there on linear (Huber 1964), so that outliers count less than by
    `mse`."""
    with usual_promotion():
        return optax.huber_loss(_number(outputs, labels), labels, delta=delta)


def balanced_weights(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Weights with which every class has the same share of the loss, as scikit-learn's
    `class_weight="balanced"`.

    Args:
      labels: NumPy int `[n]`, classes, -1 for none; or `[n, C]` of 0 and 1, NaN for not known.
      num_classes: `C`.

    Returns float32 `[C]`: `n / (K * n_c)` for a class of `n_c` rows, where `K` classes have
    rows, and 1 for others. For several labels `[2, C]`, the weights of a row without the label
    and with it: either half has the same share.
    """
    if labels.ndim == 1:
        counts = np.bincount(labels[labels >= 0], minlength=num_classes)
    else:
        counts = np.stack([(labels == value).sum(axis=0) for value in (0, 1)])
    has = counts > 0
    share = counts.sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    return np.where(has, share / np.maximum(counts, 1), 1).astype(np.float32)


def masked_mean(
    losses: jax.Array, mask: jax.Array, weight: jax.Array | None = None
) -> jax.Array:
    """The mean of `losses` where `mask` holds, float32; 0 where it holds nowhere.

    Args:
      losses: float `[B]` or `[B, C]`. Where the mask is False they may be anything, but must be
        of finite outputs: the derivative of a NaN times 0 is NaN.
      mask: bool of the same shape.
      weight: float32 of the same shape, or None: 1. It is a weighted mean: the losses times
        their weights, divided by the sum of the weights.
    """
    counts = mask.astype(jnp.float32) if weight is None else jnp.where(mask, weight, 0)
    total = jnp.sum(counts)
    each = losses if weight is None else losses * weight
    return jnp.sum(jnp.where(mask, each, 0)) / jnp.where(total > 0, total, 1)


def _number(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    return outputs[:, 0] if outputs.ndim > labels.ndim else outputs
