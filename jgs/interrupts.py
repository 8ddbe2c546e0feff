"""Ctrl-C in a command: one line and exit status 130, wherever it finds the program.

Python raises KeyboardInterrupt between any two instructions of the main thread. Among the
imports at a program's start that prints a traceback. In a callback of the garbage collector
(JAX has one) or a `__del__` it is printed and dropped, and the program goes on.
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

STATUS = 130
_AGAIN = 0.02  # seconds between two looks at whether an interruption was dropped
_own = False  # whether this process is a command's own
_begun = False  # whether a command has taken over, which says itself that it was interrupted
_cut_short = False  # whether one was interrupted


def end_at_once() -> None:
    """Has Ctrl-C end this process, before a command runs (it takes over) and after it.

    For the first line of a program, where there is nothing to clean up. The slow imports come
    after it.
    """
    global _own
    _own = True
    signal.signal(signal.SIGINT, _end)


@contextmanager
def starting() -> Iterator[None]:
    """For a command's first imports, which take seconds: Ctrl-C ends the process at once,
    where it is the command's own and has a handler of Python's."""
    global _begun
    handler = signal.getsignal(signal.SIGINT)
    if not (_own and callable(handler)):
        yield
        return
    begun, _begun = _begun, False
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _begun = begun


def leave(status: int) -> NoReturn:
    """Ends this process.

    At once where its command was interrupted: threads of XLA may be at work, for which Python's
    orderly end waits, or crashes with them.
    """
    if _cut_short and status == STATUS:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _end(*_: object) -> None:
    try:
        if not _begun:
            os.write(2, b"interrupted\n")
    finally:  # standard error may be closed
        os._exit(STATUS)


class Pressed(KeyboardInterrupt):
    """Ctrl-C. (Python's own class takes no weak references.)"""


class Interruptible:
    """A block in which Ctrl-C raises KeyboardInterrupt, and again where that was dropped.

    An import ends first: in the middle of one C code would print a traceback.

    SIGINT is heeded also by a command that a shell script has started with `&`: shells have
    such commands ignore it, and whoever sends it by `kill` means it. Nothing is changed in
    threads other than the main one, which alone receives signals.

    Fields:
      pressed: whether it was.
    """

    def __init__(self) -> None:
        self.pressed = self._heard = False

    def __enter__(self) -> Self:
        global _begun
        _begun = True
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._handler = signal.signal(signal.SIGINT, self._press)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *exception: object) -> None:
        self._heard = True
        if self._main:
            sys.unraisablehook = self._hook
            signal.signal(signal.SIGINT, self._handler)

    def hear(self) -> None:
        """Call it once the interruption has been caught for good."""
        global _cut_short
        self._heard = _cut_short = True

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        if _is_importing(frame):
            _thread.start_new_thread(self._insist, ())
        else:
            raise self._interruption()

    def _interruption(self) -> Pressed:
        error = Pressed()
        # Not threading.Thread: the handler may have interrupted a holder of its locks.
        _thread.start_new_thread(self._insist, (weakref.ref(error),))
        return error

    def _insist(self, error: Callable[[], Pressed | None] = lambda: None) -> None:
        """Signals again, once the exception has gone, if nobody has heard it."""
        time.sleep(_AGAIN)
        while error() is not None and not self._heard:
            time.sleep(_AGAIN)
        if not self._heard:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

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
