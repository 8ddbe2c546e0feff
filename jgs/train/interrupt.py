"""Ctrl-C during a training step or a checkpoint: what is under way is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jgs.command import say


@contextmanager
def stop_flag(after: str, speak: bool) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, which says so at once if it may `speak`; again, it does what
    it did before this block: in a command it raises KeyboardInterrupt."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def press(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, again)
        if speak:
            say(f"stopping after this {after} (Ctrl-C again: at once)")

    before = signal.getsignal(signal.SIGINT)
    again = before if callable(before) else signal.default_int_handler
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
