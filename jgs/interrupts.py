"""Ctrl-C and SIGTERM in a command: one line, and exit status 130 or 143, wherever they find it.

SIGTERM is how Slurm and Kubernetes end a program some time before they kill it. Python raises
KeyboardInterrupt, for SIGTERM here as well, between any two instructions of the main thread.
Among the imports at a program's start that prints a traceback. In a callback of the garbage
collector (JAX has one) or a `__del__` it is printed and dropped, and the program goes on.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Self

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""What each signal that stops a command has done to it."""

_AGAIN = 0.02  # seconds between two looks at whether an interruption was dropped
_own = False  # whether this process is a command's own
_begun = False  # whether a command has taken over, which says itself that it was interrupted
_cut_short: int | None = None  # the exit status of one that was interrupted
_told: list[Callable[[int], None]] = []  # who is told of a signal that ends the process at once


def status_of(number: int) -> int:
    """The exit status of a command that a signal has stopped, as shells say it."""
    return 128 + number


def number_of(error: BaseException) -> int:
    """The signal that a KeyboardInterrupt is of."""
    return getattr(error, "number", signal.SIGINT)


def end_at_once() -> None:
    """Has Ctrl-C and SIGTERM end this process, before a command runs (it takes over) and after
    it.

    For the first line of a program, where there is nothing to clean up. The slow imports come
    after it.
    """
    global _own
    _own = True
    for number in WORDS:
        signal.signal(number, _end)


def tell(function: Callable[[int], None]) -> None:
    """Calls `function` with the signal that ends this process at once, from now on. It runs in
    the signal's handler."""
    _told[:] = [function]


@contextmanager
def starting() -> Iterator[None]:
    """For a command's first imports, which take seconds: Ctrl-C and SIGTERM end the process at
    once, where it is the command's own and has handlers of Python's."""
    global _begun
    handlers = {number: signal.getsignal(number) for number in WORDS}
    if not (_own and all(map(callable, handlers.values()))):
        yield
        return
    begun, _begun = _begun, False
    for number in handlers:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _begun = begun


def leave(status: int) -> NoReturn:
    """Ends this process.

    At once where its command was interrupted: threads of XLA may be at work, for which Python's
    orderly end waits, or crashes with them.
    """
    if _cut_short is not None and status == _cut_short:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _end(number: int, _: object) -> None:
    try:
        if not _begun:
            os.write(2, f"{WORDS[signal.Signals(number)]}\n".encode())
        for function in _told:
            function(number)
    finally:  # standard error may be closed
        os._exit(status_of(number))


class Pressed(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: `number`. (Python's own class takes no weak references.)"""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class Interruptible:
    """A block in which Ctrl-C and SIGTERM raise KeyboardInterrupt, and again where that was
    dropped.

    An import ends first: in the middle of one C code would print a traceback. Launchers send
    SIGTERM twice, to the ranks and to mpiexec, which passes it on: the second one is ignored.

    SIGINT is heeded also by a command that a shell script has started with `&`: shells have
    such commands ignore it, and whoever sends it by `kill` means it. Nothing is changed in
    threads other than the main one, which alone receives signals.

    Fields:
      pressed: the signal that has come, or 0.
    """

    def __init__(self) -> None:
        self.pressed, self._heard, self._insisted = 0, False, False

    def __enter__(self) -> Self:
        global _begun
        _begun = True
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._handlers = {n: signal.signal(n, self._press) for n in WORDS}
            self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *exception: object) -> None:
        self._heard = True
        if self._main:
            sys.unraisablehook = self._hook
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def hear(self) -> int:
        """Call it once the interruption has been caught for good; returns the signal."""
        global _cut_short
        self._heard, number = True, self.pressed or signal.SIGINT
        _cut_short = status_of(number)
        return number

    def _press(self, number: int, frame: FrameType | None) -> None:
        if number == self.pressed == signal.SIGTERM and not self._insisted:
            return
        self.pressed, self._insisted = number, False
        if _is_importing(frame):
            _thread.start_new_thread(self._insist, (number,))
        else:
            raise self._interruption(number)

    def _interruption(self, number: int) -> Pressed:
        error = Pressed(number)
        # Not threading.Thread: the handler may have interrupted a holder of its locks.
        _thread.start_new_thread(self._insist, (number, weakref.ref(error)))
        return error

    def _insist(self, number: int, error: Callable[[], Pressed | None] = lambda: None) -> None:
        """Signals again, once the exception has gone, if nobody has heard it."""
        time.sleep(_AGAIN)
        while error() is not None and not self._heard:
            time.sleep(_AGAIN)
        if not self._heard:
            self._insisted = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def _dropped(self, unraisable: Any) -> None:
        """`sys.unraisablehook`: no traceback for what is raised again."""
        if not isinstance(unraisable.exc_value, Pressed):
            self._hook(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
