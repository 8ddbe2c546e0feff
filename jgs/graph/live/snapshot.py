"""`Snapshot`: arrays that change in place, as JAX arrays until they change. `Turns`: threads
that read, together, and threads that change, each alone."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.graph.device import as_device

_WAIT = 1.0  # seconds for programs that read the arrays to end
_LITTLE = np.zeros(1, np.int32)


class _Reader:
    """A NumPy array as JAX holds it: it lives as long as JAX or a program reads the array."""

    def __init__(self, array: np.ndarray):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Snapshot:
    """JAX arrays of NumPy ones, without a copy on a CPU.

    `release` ends it: the JAX arrays are deleted, as donated ones are, so that whoever uses
    them afterwards gets JAX's error instead of other numbers.
    """

    def __init__(self, arrays: Any):
        """`arrays` is a pytree, as the field `arrays` is then."""
        readers = jax.tree.map(_Reader, arrays)
        self.arrays = as_device(jax.tree.map(np.asarray, readers))
        self._alive = [weakref.ref(reader) for reader in jax.tree.leaves(readers)]

    def release(self) -> bool:
        """Deletes the arrays, and waits until the programs that read them have ended. False
        if something still reads them after a while, such as a NumPy array made of one."""
        for array in jax.tree.leaves(self.arrays):
            if not array.is_deleted():
                array.delete()
        self.arrays = ()
        end = time.monotonic() + _WAIT
        while any(reader() is not None for reader in self._alive):
            if time.monotonic() > end:
                log = logging.getLogger("jgs")
                log.warning("a live graph is copied, for its arrays are still read")
                return False
            # JAX gives up what it holds when it is called next.
            jax.device_put(_LITTLE)
        return True


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
