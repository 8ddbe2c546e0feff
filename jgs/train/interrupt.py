"""Ctrl-C during a training step or a checkpoint: what is under way is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from jgs.command import say


@contextmanager
def stop_flag(after: str, speak: bool) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, which says so at once if it may `speak`; again, it raises
    KeyboardInterrupt."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def press(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not speak:
            return
        with suppress(RuntimeError):  # pressed in the middle of another line's output
            say(f"stopping after this {after} (Ctrl-C again: at once)")

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
