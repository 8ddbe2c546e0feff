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
_TAKERS = {  # of settings, another setting and the values of it that take them
    "lr_end": ("lr_schedule", ("cosine", "exponential", "warmup_cosine")),
    "warmup_steps": ("lr_schedule", ("warmup_cosine",)),
    "average_decay": ("average", ("ema",)),
    "average_from": ("average", ("ema", "swa")),
}


def check_schedule(config: Config, steps_per_epoch: int) -> None:
    """Raises `InputError` for flags of another schedule or average, and where `learning_rate`
    does."""
    for name, (owner, takers) in _TAKERS.items():
        value, chosen = getattr(config, name), getattr(config, owner)
        if chosen not in takers and value != SETTINGS[name].default:
            what = owner.removeprefix("lr_")
            raise InputError(
                f"{flag(name)} must be for {flag(owner)} {' or '.join(takers)}",
                f"{flag(name)} {as_typed(value)} for {flag(owner)} {chosen}",
                f"Leave it out, or choose such {'an' if what[0] == 'a' else 'a'} {what}.",
            )
    learning_rate(config, steps_per_epoch)


def learning_rate(config: Config, steps_per_epoch: int) -> Rate:
    """The learning rate that Adam takes: a number, or a function of the number of Adam's
    earlier steps, each of which takes `--accumulate` batches. Raises `InputError` where the
    rise would take all steps of the run or more, and where the run has none."""
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
