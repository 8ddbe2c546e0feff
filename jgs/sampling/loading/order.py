"""`Epochs`: how epochs go over items. `Order`: in which order, a function for each order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jgs.arrays import described
from jgs.errors import InputError
from jgs.sampling.checks import require_int
from jgs.sampling.loading.items import name_of

Order = Callable[[Any, np.ndarray, int], Any]
"""`order(items, bits, epoch)`: the positions int `[n]` of the items, each once, in the order in
which batches take them. `items` is the pytree of arrays `[n, ...]`. `bits` uint64 `[n]` are
random, and others in each epoch, by the loader's key."""


def shuffled(items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
    """Any order is as likely."""
    return np.argsort(bits, kind="stable")


def in_time(items: Any, within: int) -> Order:
    """The order of the items' column `time`, where `within` that follow each other are shuffled
    among themselves. Raises `InputError`."""
    within = require_int("by_time", within, 1)
    time = items.get("time") if isinstance(items, Mapping) else None
    if time is None or time.ndim != 1:
        raise InputError(
            "items in the order of time must have a column time",
            ", ".join(map(str, items)) if isinstance(items, Mapping) else "ids alone",
            "Give a dict with nodes, or src and dst, and time.",
        )
    sorted_by_time = np.argsort(time, kind="stable")

    def order(items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
        return sorted_by_time[np.lexsort((bits, np.arange(bits.size) // within))]

    return order


def positions(order: Order, items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
    """What an order says. Raises `InputError` unless each item comes once."""
    found = np.asarray(order(items, bits, epoch))
    there = np.zeros(bits.size, bool)
    good = found.shape == bits.shape and found.dtype.kind in "iu"
    if good and found.size and found.min() >= 0 and found.max() < bits.size:
        there[found] = True
    if not good or not there.all():
        raise InputError(
            f"an order must give each of the {bits.size} positions once, as integers",
            "others of them" if good else described(found),
            "Sort the items, e.g. by numpy.lexsort((bits, level)).",
        )
    return found


@dataclass(frozen=True)
class Epochs:
    """How epochs go over the items of a loader. The fields are arguments of `Loader`."""

    shuffle: bool | Order = True
    drop_last: bool = False
    by_time: int | None = None
    one_key: bool = False

    def order_of(self, items: Any) -> Order | None:
        """The order of the items; None: as they are. Raises `InputError`."""
        if self.by_time is None:
            order = shuffled if self.shuffle else None
            return self.shuffle if callable(self.shuffle) else order
        if callable(self.shuffle):
            raise InputError(
                "by_time must be without an order of its own",
                f"by_time={self.by_time} and {name_of(self.shuffle)}",
                "Leave one out.",
            )
        return in_time(items, self.by_time)

    @property
    def named(self) -> str:
        """How a loader's state names all of it, but whether items are shuffled."""
        names = [name for name in ("drop_last", "one_key") if getattr(self, name)]
        if callable(self.shuffle):
            names.append(f"order={name_of(self.shuffle)}")
        if self.by_time is not None:
            names.append(f"by_time={self.by_time}")
        return "".join(f" {name}" for name in names)


SHUFFLED = Epochs()
