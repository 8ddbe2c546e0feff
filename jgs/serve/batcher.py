"""`Batcher`: one thread that computes, for all requests that wait together."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from jgs.errors import InputError
from jgs.graph.live import Change
from jgs.serve.engine import Engine
from jgs.serve.questions import Question

log = logging.getLogger("jgs")
_POLL = 0.02  # seconds between two looks at a log that another process writes


class Full(Exception):
    """There is no place in the queue, or the server is ending."""


class Batcher(threading.Thread):
    """A thread that answers questions and makes changes with an engine.

    It takes all that wait at once: first the changes, in the order in which they came, then the
    questions, of the graph as it is after these.

    Args:
      places: how many may wait.
      delay: seconds to wait for more, from the moment when the first one came.
      batch: called with the number of those that are taken at once.
    """

    def __init__(self, engine: Engine, places: int, delay: float, batch: Callable[[int], Any]):
        super().__init__(name="jgs-serve", daemon=True)
        self.engine, self._places, self._delay, self._batch = engine, places, delay, batch
        self._waiting: deque[tuple[Question | Change, Future]] = deque()
        self._turn, self._ending = threading.Condition(), False
        self.failure: InputError | None = None  # of following the log

    @property
    def _follows(self) -> bool:
        return self.engine.live is not None and not self.engine.writes

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def submit(self, asked: Question | Change) -> Future:
        """The future of the answer, a dict or an `InputError`. A cancelled one leaves its place
        at once. Raises `Full`."""
        future: Future = Future()
        with self._turn:
            if self._ending or len(self._waiting) >= self._places:
                raise Full
            self._waiting.append((asked, future))
            self._turn.notify()
        future.add_done_callback(self._leave)
        return future

    def close(self) -> None:
        """Ends the thread after what waits is done."""
        with self._turn:
            self._ending = True
            self._turn.notify()
        self.join()

    def run(self) -> None:
        while (entries := self._taken()) is not None:
            taken = [(a, f) for a, f in entries if f.set_running_or_notify_cancel()]
            try:
                self._follow()
                self._compute(taken)
            except Exception as error:  # a fault of jgs: those who wait are told
                log.exception("jgs serve failed to answer")
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)

    def _compute(self, taken: list[tuple[Any, Future]]) -> None:
        if not taken:
            return
        self._batch(len(taken))
        methods: Any = (Change, self.engine.changed), (Question, self.engine.answers)
        for kind, method in methods:
            some = [(asked, future) for asked, future in taken if isinstance(asked, kind)]
            if some:
                answers = method([asked for asked, _ in some])
                for (_, future), answer in zip(some, answers, strict=True):
                    future.set_result(answer)

    def _follow(self) -> None:
        if not self._follows or self.failure is not None:
            return
        try:
            if self.engine.lag >= _POLL:
                self.engine.follow()
        except InputError as error:
            log.error("the log cannot be followed any more: %s", error)
            self.failure = error

    def _taken(self) -> list[tuple[Any, Future]] | None:
        """Those that wait, once there are some, or none after a while; None at the end."""
        with self._turn:
            if not self._waiting and not self._ending:
                self._turn.wait(_POLL if self._follows else None)
            elif not self._waiting:
                return None
            if self._waiting and self._delay and not self._ending:
                self._turn.wait_for(lambda: self._ending, self._delay)
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def _leave(self, future: Future) -> None:
        if future.cancelled():
            with self._turn:
                self._waiting = deque(each for each in self._waiting if each[1] is not future)
