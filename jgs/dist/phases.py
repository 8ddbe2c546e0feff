"""Where this process is: the phase and step that its watchdog tells of it.

Two threads count: the main one, and the one that draws batches ahead. Ranks enter phases and
call programs in the same order, so of two ranks the one that has counted less is behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WAITING = "waiting for a batch"
_main: list[Any] = [0, "starting"]  # how far, and the phase
_drawing: list[Any] = [0, None]
_told: list[Callable[[], None]] = []


def tell(function: Callable[[], None]) -> None:
    """Calls `function` from now on whenever a phase has changed, in the thread that does."""
    _told[:] = [function]


def _own() -> list[Any]:
    return _main if threading.current_thread() is threading.main_thread() else _drawing


def tick() -> None:
    """This thread goes on; every program between ranks says so before it waits for others."""
    _own()[0] += 1


def enter(name: str | None) -> str | None:
    """This thread is in phase `name` from now on, or in none. Returns the phase before."""
    own = _own()
    own[0] += 1
    before, own[1] = own[1], name
    for function in _told:
        function()
    return before


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A block that is phase `name`, whether it succeeds or not."""
    before = enter(name)
    try:
        yield
    finally:
        enter(before)


def seen() -> tuple[str | None, list[int]]:
    """The phase, and how far the two threads are. A main thread that waits for a batch is where
    the batch is drawn."""
    name = _main[1]
    if name == WAITING and _drawing[1]:
        name = _drawing[1]
    return name, [_main[0], _drawing[0]]
