"""Averages of parameters: what is judged and predicted with in place of the last ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Averaged(NamedTuple):
    """The state of an optimiser that keeps an average.

    Fields:
      average: the average, as the parameters; these themselves before it begins.
      taken: int32 scalar, how many parameters were averaged.
      step: int32 scalar, the number of steps.
      inner: the state of the optimiser within.
    """

    average: Any
    taken: jax.Array
    step: jax.Array
    inner: Any


def averaged(
    optimizer: optax.GradientTransformation,
    decay: float | None,
    every: int = 1,
    begin: int = 0,
) -> optax.GradientTransformation:
    """`optimizer`, which also keeps an average of the parameters after its steps.

    Args:
      decay: what an exponential average keeps of itself, once it is of `1 / (1 - decay)`
        parameters. Until then it is their mean, so that the first do not outweigh the others,
        as they do in `torch.optim.swa_utils`. None: the mean of all (stochastic weight
        averaging, Izmailov et al. 2018, algorithm 1).
      every: the parameters after every so-manieth step are averaged.
      begin: those of the first steps, so many, are not.

    The optimiser's state is an `Averaged`, and its `average` is what to judge and to predict
    with. It is part of a checkpoint as any other state of Optax.
    """

    def init(params: Any) -> Averaged:
        zero = jnp.zeros((), jnp.int32)
        return Averaged(jax.tree.map(jnp.copy, params), zero, zero + 0, optimizer.init(params))

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Averaged]:
        updates, inner = optimizer.update(gradients, state.inner, params)
        step = optax.safe_increment(state.step)
        due = (step > begin) & (step % every == 0)
        taken = state.taken + due
        share = jnp.maximum(1 / jnp.maximum(taken, 1), 0.0 if decay is None else 1 - decay)
        rate = jnp.where(due, share, jnp.where(taken, 0.0, 1.0))
        new = optax.apply_updates(params, updates)
        mean = optax.incremental_update(new, state.average, rate)
        return updates, Averaged(mean, taken, step, inner)

    return optax.GradientTransformation(init, update)


def judged(params: Any, opt_state: Any) -> Any:
    """What is judged and predicted with: the average where the optimiser keeps one, and else
    the parameters."""
    return opt_state.average if isinstance(opt_state, Averaged) else params
