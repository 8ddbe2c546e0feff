"""Where this process is: the phase that its watchdog tells the others, and how far it has come.

Two threads count: the main thread, and the one that draws batches ahead. Ranks enter phases and
call programs in the same order. So of two ranks the one that has counted less is behind.
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
    """From now on calls `function` whenever a phase changes, in the thread that changes it."""
    _told[:] = [function]


def _own() -> list[Any]:
    return _main if threading.current_thread() is threading.main_thread() else _drawing


def tick() -> None:
    """This thread goes on. Every program of several ranks says so before it waits for them."""
    _own()[0] += 1


def enter(name: str | None) -> str | None:
    """From now on this thread is in the phase `name`, or in none. Returns the phase before."""
    own = _own()
    own[0] += 1
    before, own[1] = own[1], name
    for function in _told:
        function()
    return before


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A block in which this thread is in the phase `name`. It ends however the block ends."""
    before = enter(name)
    try:
        yield
    finally:
        enter(before)


def seen() -> tuple[str | None, list[int]]:
    """The phase, and how far the two threads have counted. A main thread that waits for a batch
    is in the phase of the thread that draws it."""
    name = _main[1]
    if name == WAITING and _drawing[1]:
        name = _drawing[1]
    return name, [_main[0], _drawing[0]]
