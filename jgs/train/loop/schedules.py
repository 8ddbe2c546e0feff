"""The learning rate of a run: Optax's schedules by name, over the steps of all its epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import optax

from jgs.errors import InputError
from jgs.options import as_typed, flag
from jgs.train.config import SETTINGS, Config

Rate: TypeAlias = float | Callable[[Any], Any]  # the second: an `optax.Schedule`


class Entry(NamedTuple):
    """A schedule of the command.

    Fields:
      make: makes the schedule from (first rate, last rate, steps, steps of the rise).
      flags: the configuration's fields that belong to this schedule.
    """

    make: Callable[[float, float, int, int], Rate]
    flags: tuple[str, ...]


def _warmup_cosine(rate: float, last: float, steps: int, rise: int) -> Rate:
    return optax.warmup_cosine_decay_schedule(0.0, rate, rise, steps, last)


SCHEDULES = {
    "constant": Entry(lambda rate, last, steps, rise: rate, ()),
    "cosine": Entry(
        lambda rate, last, steps, rise: optax.cosine_decay_schedule(rate, steps, last / rate),
        ("lr_end",),
    ),
    "exponential": Entry(
        lambda rate, last, steps, rise: optax.exponential_decay(rate, steps, last / rate),
        ("lr_end",),
    ),
    "warmup_cosine": Entry(_warmup_cosine, ("lr_end", "warmup_steps")),
}


def check_schedule(config: Config, steps_per_epoch: int) -> None:
    """Raises `InputError` for flags of another schedule, and where `learning_rate` does."""
    for name in ("lr_end", "warmup_steps"):
        value = getattr(config, name)
        if name not in SCHEDULES[config.lr_schedule].flags and value != SETTINGS[name].default:
            takers = [each for each, entry in SCHEDULES.items() if name in entry.flags]
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
    return SCHEDULES[config.lr_schedule].make(config.lr, config.lr * config.lr_end, steps, rise)
