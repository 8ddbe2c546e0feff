"""The training step: a pure function of (state, key, batch, features, labels)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jgs.graph import MiniBatch
from jgs.models import Inputs


class TrainState(NamedTuple):
    """What a step carries.

    Fields:
      params: the model's `nnx.State`.
      opt_state: of the optimiser.
      step: int32 scalar, steps since the start; it keys the dropout.
      loss_sum: float32 scalar, sum of the seeds' losses in this epoch.
      num_seeds: float32 scalar, number of seeds in this epoch; the loss so far is
        `loss_sum / num_seeds`.
    """

    params: Any
    opt_state: Any
    step: jax.Array
    loss_sum: jax.Array
    num_seeds: jax.Array


TrainStep = Callable[
    [TrainState, jax.Array, MiniBatch, jax.Array | Inputs, jax.Array], TrainState
]


def make_optimizer(lr: float, weight_decay: float = 0.0) -> optax.GradientTransformation:
    """Adam whose weight decay is an L2 penalty: added to the gradient, before the moments."""
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(lr))


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step. The parameters are copied: steps donate theirs."""
    params = jax.tree.map(jnp.copy, params)
    opt_state, zero = optimizer.init(params), jnp.zeros((), jnp.int32)
    return start_epoch(TrainState(params, opt_state, zero, zero, zero))


def start_epoch(state: TrainState) -> TrainState:
    """The state with the loss of a new epoch, nothing so far."""
    # Two arrays, not one twice: a step donates each.
    return state._replace(
        loss_sum=jnp.zeros((), jnp.float32), num_seeds=jnp.zeros((), jnp.float32)
    )


def make_train_step(
    graphdef: nnx.GraphDef, optimizer: optax.GradientTransformation, jit: bool = True
) -> TrainStep:
    """`train_step(state, key, batch, x, labels) -> state`, jitted, its state donated.

    The returned function takes what the model does of the features, `x` `[S, F]` or `Inputs`,
    and the labels of all nodes, int `[N]` or float `[N, C]`, as arguments: nothing is
    captured. `key` is the run's dropout key; step `t` uses `fold_in(key, t)`. Padding changes
    nothing.
    """

    def train_step(state, key, batch, x, labels):
        dropout_key = jax.random.fold_in(key, state.step)
        seed_labels = jnp.take(labels, batch.seeds, axis=0, mode="fill", fill_value=0)
        mask = batch.seed_mask

        def loss_of(params):
            model = nnx.merge(graphdef, params)
            return masked_loss(model(batch, x, key=dropout_key), seed_labels, mask)

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        count = jnp.sum(mask, dtype=jnp.float32)
        return TrainState(
            optax.apply_updates(state.params, updates),
            opt_state,
            state.step + 1,
            state.loss_sum + loss * count,
            state.num_seeds + count,
        )

    return jax.jit(train_step, donate_argnums=0) if jit else train_step


def masked_loss(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean loss over the rows where `mask` holds, float32; 0 where it holds nowhere.

    Args:
      logits: float `[B, C]`; rows where the mask is False may hold anything, even NaN.
      labels: int `[B]`, class ids: softmax cross-entropy; or float `[B, C]` of 0 and 1:
        sigmoid cross-entropy, averaged over the classes.
      mask: bool `[B]`.
    """
    # Masked before the loss, not only after: the derivative of a NaN times 0 is NaN.
    logits = jnp.where(mask[:, None], logits, 0)
    if labels.ndim == 1:
        labels = jnp.where(mask, labels, 0)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    else:
        labels = jnp.where(mask[:, None], labels, 0)
        loss = optax.sigmoid_binary_cross_entropy(logits, labels).mean(axis=-1)
    return jnp.sum(jnp.where(mask, loss, 0)) / jnp.maximum(jnp.sum(mask), 1)
