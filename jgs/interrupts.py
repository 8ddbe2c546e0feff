"""Ctrl-C and SIGTERM end a command with one line and exit status 130 or 143, at any moment.

SIGTERM is how Slurm and Kubernetes end a program some time before they kill it. Python raises
KeyboardInterrupt between any two instructions of the main thread; this module does so for
SIGTERM too. During the imports at a program's start the exception prints a traceback. In a
callback of the garbage collector (JAX has one) or in a `__del__` Python prints the exception
and drops it, and the program goes on. This module prevents both.
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
"""The signals that stop a command, each with the word for what it has done."""

_AGAIN = 0.02  # seconds between two checks of whether an interruption was dropped
_own = False  # whether this process runs a command and nothing else
_begun = False  # whether a command has taken over: it says itself that it was interrupted
_cut_short: int | None = None  # the exit status of a command that was interrupted
_told: list[Callable[[int], None]] = []  # called with a signal that ends the process at once


def status_of(number: int) -> int:
    """The exit status of a command that signal `number` has stopped, as shells have it."""
    return 128 + number


def number_of(error: BaseException) -> int:
    """The number of the signal that raised a KeyboardInterrupt."""
    return getattr(error, "number", signal.SIGINT)


def end_at_once() -> None:
    """Makes Ctrl-C and SIGTERM end this process at once, until a command takes over and again
    after it.

    A program calls this in its first line, before its slow imports, when there is nothing to
    clean up.
    """
    global _own
    _own = True
    for number in WORDS:
        signal.signal(number, _end)


def tell(function: Callable[[int], None]) -> None:
    """From now on calls `function` with the number of a signal that ends this process at once.
    The call runs in the signal's handler."""
    _told[:] = [function]


@contextmanager
def starting() -> Iterator[None]:
    """A block for a command's first imports, which take seconds. In it Ctrl-C and SIGTERM end
    the process at once, provided that the process runs the command alone and the handlers of
    both signals are Python functions."""
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
    """Ends this process with exit status `status`.

    After an interrupted command it ends at once. Threads of XLA may still be at work then, and
    Python's orderly end would wait for them or crash with them.
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
    """Ctrl-C or SIGTERM; `number` says which. (Python's own KeyboardInterrupt takes no weak
    references.)"""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class Interruptible:
    """A block in which Ctrl-C and SIGTERM raise KeyboardInterrupt, again and again until the
    exception has been caught for good. In a thread other than the main one, which alone
    receives signals, it changes nothing. `pressed` is the signal that has come, or 0.

    A signal that comes during an import raises only after the import: in the middle of one, C
    code would print a traceback. Launchers send SIGTERM twice, to the ranks and to mpiexec,
    which passes it on; the second SIGTERM is ignored. The block heeds SIGINT even in a command
    that a shell script has started with `&`: shells make such a command ignore SIGINT, but
    whoever sends it by `kill` means it.
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
        """To be called once the interruption has been caught for good; returns the signal's
        number."""
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
        """No local variable of `_press` holds it: its traceback has that frame, so it would
        live in a cycle, and `_insist` would wait for the garbage collector."""
        error = Pressed(number)
        # Not threading.Thread: the handler may have interrupted a holder of its locks.
        _thread.start_new_thread(self._insist, (number, weakref.ref(error)))
        return error

    def _insist(self, number: int, error: Callable[[], Pressed | None] = lambda: None) -> None:
        """Sends the signal again after the exception is gone, unless `hear` was called."""
        time.sleep(_AGAIN)
        while error() is not None and not self._heard:
            time.sleep(_AGAIN)
        if not self._heard:
            self._insisted = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def _dropped(self, unraisable: Any) -> None:
        """`sys.unraisablehook`: prints no traceback of an interruption, which comes again."""
        if not isinstance(unraisable.exc_value, Pressed):
            self._hook(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
