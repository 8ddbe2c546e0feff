"""The learning rate of a run: Optax's schedules by name, over the steps of all its epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import optax

from jgs.errors import InputError
from jgs.options import as_typed, flag
from jgs.train.config import SETTINGS, Config

Rate: TypeAlias = float | Callable[[Any], Any]  # the second: an `optax.Schedule`


# Each makes the schedule from (first rate, last rate, steps, steps of the rise).
SCHEDULES: dict[str, Callable[[float, float, int, int], Rate]] = {
    "constant": lambda rate, last, steps, rise: rate,
    "cosine": lambda rate, last, steps, rise: optax.cosine_decay_schedule(
        rate, steps, last / rate
    ),
    "exponential": lambda rate, last, steps, rise: optax.exponential_decay(
        rate, steps, last / rate
    ),
    "warmup_cosine": lambda rate, last, steps, rise: optax.warmup_cosine_decay_schedule(
        0.0, rate, rise, steps, last
    ),
}
_TAKERS = {  # of settings, the schedules that take them
    "lr_end": ("cosine", "exponential", "warmup_cosine"),
    "warmup_steps": ("warmup_cosine",),
}


def check_schedule(config: Config, steps_per_epoch: int) -> None:
    """Raises `InputError` for flags of another schedule, and where `learning_rate` does."""
    for name, takers in _TAKERS.items():
        value = getattr(config, name)
        if config.lr_schedule not in takers and value != SETTINGS[name].default:
            raise InputError(
                f"{flag(name)} must be for --lr-schedule {' or '.join(takers)}",
                f"{flag(name)} {as_typed(value)} for --lr-schedule {config.lr_schedule}",
                "Leave it out, or choose such a schedule.",
            )
    learning_rate(config, steps_per_epoch)


def learning_rate(config: Config, steps_per_epoch: int) -> Rate:
    """The learning rate that Adam takes: a number, or a function of the number of earlier
    steps. Raises `InputError` where the rise would take all steps of the run or more."""
    steps = config.epochs * steps_per_epoch
    rise = config.warmup_steps
    if rise is not None and rise >= steps:
        raise InputError(
            f"--warmup-steps must be fewer than the run's steps, {steps}",
            rise,
            "Lower it, or train for more --epochs.",
        )
    rise = steps // 10 if rise is None else rise
    return SCHEDULES[config.lr_schedule](config.lr, config.lr * config.lr_end, steps, rise)
