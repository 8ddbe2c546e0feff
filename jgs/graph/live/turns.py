"""`Turns`: threads that read, together, and threads that change, each alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jgs.errors import InputError


class Turns:
    """Who reads a graph, and who changes it.

    Fields:
      turn: held while something is looked at or changed. A thread may hold it several times.
      waiting: how many threads wait to change, or do.
    """

    def __init__(self) -> None:
        self.turn, self.waiting = threading.Condition(threading.RLock()), 0
        self._readers: Counter[int] = Counter()  # by thread

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context in which no other thread changes."""
        thread = threading.get_ident()
        with self.turn:
            # Changes go first, so that threads that read by turns cannot keep them away.
            self.turn.wait_for(lambda: not self.waiting or self._readers[thread])
            self._readers[thread] += 1
        try:
            yield
        finally:
            with self.turn:
                self._readers -= Counter([thread])
                self.turn.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context that no thread reads in. Raises `InputError` for a thread that reads."""
        with self.turn:
            if self._readers[threading.get_ident()]:
                raise InputError(
                    "a live graph must not be changed by a thread that is reading it",
                    "a change within live.reading()",
                    "Leave that context first.",
                )
            self.waiting += 1
            try:
                self.turn.wait_for(lambda: not self._readers.total())
                yield
            finally:
                self.waiting -= 1
                self.turn.notify_all()
