"""`run`: the processes of a run, from their start to the end of all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

from jgs.command import say
from jgs.launch.hosts import end_with_this
from jgs.launch.rank import GRACE

LAST_WORDS = 10.0
"""Seconds that the other processes have to report and to end after one has ended badly."""

_LOOK = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The status of a rank that was told to stop: others may still be writing a checkpoint.
_STOPPED = (130, 143)
_EXPLAINED = (2, 3, *_STOPPED)  # a rank has written a line about bad input or a lost rank


@dataclass(frozen=True)
class Start:
    """A process to be started.

    Fields:
      name: its name in messages.
      command: the program and its arguments.
      control: whether the process obeys lines on its standard input, as `jgs.launch.rank` does.
        Otherwise it gets signals, as mpiexec does, which passes them on.
    """

    name: str
    command: list[str]
    control: bool = True


class _Running:
    def __init__(self, start: Start):
        self.name, self._control = start.name, start.control
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            start.command,
            stdin=subprocess.PIPE if start.control else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C reaches the launcher alone
            # A process with control ends by itself when the launcher's end closes its input.
            preexec_fn=None if start.control else end_with_this,
        )
        streams = (self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr)
        self._readers = [
            threading.Thread(target=_pass_on, args=s, daemon=True) for s in streams
        ]
        for reader in self._readers:
            reader.start()

    def signal(self, number: int) -> None:
        number = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        if not self._control:
            self.process.send_signal(number)
        elif self.process.stdin is not None:
            with suppress(OSError):  # the process may have ended
                self.process.stdin.write(b"INT\n" if number == signal.SIGINT else b"TERM\n")
                self.process.stdin.flush()

    def end(self) -> None:
        """Ends the process at once, or `GRACE` seconds later if it ignores SIGTERM."""
        if self._control and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        else:
            self.process.kill()  # mpiexec's proxies end their ranks

    def status(self) -> int | None:
        """The exit status; None while the process runs. After an end by a signal it is 128 plus
        the signal's number, as shells have it."""
        if (status := self.process.poll()) is None:
            return None
        for reader in self._readers:
            reader.join(GRACE)
        return status if status >= 0 else 128 - status


def run(starts: Sequence[Start]) -> int:
    """Starts all processes and waits until all have ended. Returns the status of the first that
    ended badly, or 0.

    What the processes write is passed on line by line. When one ends badly, the others have
    `LAST_WORDS` seconds to end. SIGINT (Ctrl-C) and SIGTERM are passed on to all, SIGHUP as
    SIGTERM. A second signal ends all of them at once.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    running: list[_Running] = []
    try:
        for start in starts:
            running.append(_Running(start))
        return _until_all_end(running, heard)
    finally:
        for one in running:
            one.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_all_end(running: list[_Running], heard: list[int]) -> int:
    result, passed_on, end_at = 0, False, float("inf")
    left = list(running)
    while left:
        time.sleep(_LOOK)
        for one in list(left):
            if (status := one.status()) is None:
                continue
            left.remove(one)
            if status and not result and status not in _EXPLAINED and not heard:
                others = "; the others end too" if left else ""
                say(f"{one.name} ended with status {status}{others}")
            if status and status not in _STOPPED:
                end_at = min(end_at, time.monotonic() + LAST_WORDS)
            result = result or status
        if heard and not passed_on:
            passed_on = True
            for one in left:
                one.signal(heard[0])
        if len(heard) > 1:
            end_at = min(end_at, time.monotonic())
        if time.monotonic() > end_at:
            for one in left:
                one.end()
            if time.monotonic() > end_at + 2 * GRACE:  # ssh hangs, or the other host is silent
                for one in left:
                    one.process.kill()
    return result


_WRITING = threading.Lock()


def _pass_on(read: IO[bytes], to: Any) -> None:
    for line in read:
        with _WRITING, suppress(OSError, ValueError, AttributeError):
            to.write(line.decode(errors="replace"))
            to.flush()
