"""A bar on a terminal while a data set is built."""

from __future__ import annotations

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

Advance = Callable[[int], None]


@contextmanager
def bar(name: str, total: int | None, enabled: bool) -> Iterator[Advance]:
    """A block that yields `advance(done)`, which moves a bar on standard error if that is a
    terminal and `enabled`. The bar is removed at the end."""
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    shown = enabled and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)
