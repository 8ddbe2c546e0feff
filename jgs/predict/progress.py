"""A bar on a terminal while a long prediction runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

_PATIENCE = 1.0  # seconds after which a prediction is long
Advance = Callable[[int, int], None]


@contextmanager
def bar(name: str, enabled: bool) -> Iterator[Advance]:
    """A block that yields `advance(done, total)`, which moves a bar on standard error if that
    is a terminal and `enabled`. The bar appears after a second and is removed at the end."""
    console = Console(stderr=True)
    shown = enabled and console.is_terminal
    made = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*made, console=console, transient=True, disable=not shown)
    task = progress.add_task(name, total=None)
    begun, started = time.monotonic(), False

    def advance(done: int, total: int) -> None:
        nonlocal started
        if not started and time.monotonic() - begun >= _PATIENCE:
            progress.start()
            started = True
        if started:
            progress.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if started:
            progress.stop()
