"""Ctrl-C and SIGTERM while a run trains: the step or checkpoint under way is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jgs.command import say


@contextmanager
def stop_flag(after: str, speak: bool) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether Ctrl-C has been pressed. A second Ctrl-C does as
    before this block: in a command it raises KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    again = before if callable(before) else signal.default_int_handler
    said = f"stopping after this {after} (Ctrl-C again: at once)" if speak else ""
    with _noted(signal.SIGINT, said, again) as pressed:
        yield pressed


@contextmanager
def terminated_flag(speak: bool) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether SIGTERM has come. A second one is ignored, as
    launchers send it twice: to the ranks, and to mpiexec, which passes it on."""
    said = "terminated: stopping after this step, evaluation or checkpoint" if speak else ""
    with _noted(signal.SIGTERM, said, _ignore) as terminated:
        yield terminated


def _ignore(*_: object) -> None:
    """Python prints a traceback of a signal that comes just when SIG_IGN becomes its handler,
    as a launcher's second SIGTERM may. A function has no such moment."""


@contextmanager
def _noted(
    number: int, said: str, again: Callable[..., object]
) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether signal `number` has come. When it comes, `said`
    is written, and `again` is the signal's handler until the end of the block. As it may come
    again meanwhile, `note` takes no lock, for which its second call would wait for ever."""
    came: list[bool] = []

    def has_come() -> bool:
        return bool(came)

    if threading.current_thread() is not threading.main_thread():
        yield has_come
        return

    def note(*_: object) -> None:
        signal.signal(number, again)
        if came:
            return
        came.append(True)
        if said:
            say(said)

    before = signal.signal(number, note)
    try:
        yield has_come
    finally:
        signal.signal(number, before)
