"""The schedules of a run's learning rate, and averages of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from jgs.errors import InputError

if TYPE_CHECKING:
    from jgs.train.config import Config

Rate: TypeAlias = float | Callable[[Any], Any]  # the second: an `optax.Schedule`


# Each makes the schedule from (first rate, last rate, steps, steps of the rise).
SCHEDULES: dict[str, Callable[[float, float, int, int], Rate]] = {
    "constant": lambda rate, last, steps, rise: rate,
    "cosine": lambda rate, last, steps, _: optax.cosine_decay_schedule(
        rate, steps, last / rate
    ),
    "exponential": lambda rate, last, steps, _: optax.exponential_decay(
        rate, steps, last / rate
    ),
    "warmup_cosine": lambda rate, last, steps, rise: optax.warmup_cosine_decay_schedule(
        0.0, rate, rise, steps, last
    ),
}


def learning_rate(config: Config, steps_per_epoch: int) -> Rate:
    """The learning rate that Adam takes: a number, or a function of the number of its earlier
    steps, each of `--accumulate` batches. Raises `InputError` where the run has too few."""
    steps = config.epochs * steps_per_epoch // config.accumulate
    if not steps:
        raise InputError(
            "--accumulate must be at most the number of batches in the run",
            f"{config.accumulate} for {config.epochs * steps_per_epoch}",
            "Lower it, or train for more --epochs.",
        )
    rise = config.warmup_steps
    if rise is not None and rise >= steps:
        raise InputError(
            f"--warmup-steps must be fewer than the run's steps, {steps}",
            rise,
            "Lower it, or train for more --epochs.",
        )
    rise = steps // 10 if rise is None else rise
    return SCHEDULES[config.lr_schedule](config.lr, config.lr * config.lr_end, steps, rise)


class Averaged(NamedTuple):
    """The state of an optimiser that keeps an average."""

    average: Any  # as the parameters; these themselves before it begins
    taken: jax.Array  # int32, how many parameters were averaged
    step: jax.Array  # int32, the number of steps
    inner: Any  # the state of the optimiser within


def averaged(
    optimizer: optax.GradientTransformation, decay: float | None, every: int = 1, begin: int = 0
) -> optax.GradientTransformation:
    """`optimizer`, which also keeps an average of the parameters after its steps.

    Args:
      decay: what an exponential average keeps of itself, once it is of `1 / (1 - decay)`
        parameters. Until then it is their mean, so that the first do not outweigh the others,
        as they do in `torch.optim.swa_utils`. None: the mean of all (stochastic weight
        averaging, Izmailov et al. 2018, algorithm 1).
      every: the parameters after every so-manieth step are averaged.
      begin: those of the first steps, so many, are not.

    The optimiser's state is an `Averaged`, whose `average` is what to judge and predict with.
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


def rate_at(rate: Rate, step: Any) -> Any:
    """The learning rate of the step of that number."""
    return rate(step) if callable(rate) else rate


def judged(params: Any, opt_state: Any) -> Any:
    """The average where the optimiser keeps one, and else the parameters."""
    return opt_state.average if isinstance(opt_state, Averaged) else params
