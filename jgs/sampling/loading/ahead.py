"""`Ahead`: an iterator that runs in a background thread."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from jgs import kernels
from jgs.settings import as_in, of_this_thread


class Ahead:
    """Runs an iterator in a background thread, at most `size` items ahead.

    The thread traces and computes as the thread that made it: with the same settings of JAX,
    such as `jax.default_device`, and as `jgs.kernels.this_host_only` says.
    """

    def __init__(self, items: Iterator[Any], size: int):
        self._ready: queue.SimpleQueue = queue.SimpleQueue()
        self._size = size
        self._free = threading.Semaphore(size)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=_fill,
            args=(items, self._ready, self._free, self._stopping),
            kwargs={"host_only": kernels.host_only(), "settings": of_this_thread()},
            name="jgs-loader",
            daemon=True,
        )
        # Also at exit and when collected as garbage: a thread inside XLA must not outlive
        # Python.
        self.stop: Callable[[], object] = weakref.finalize(
            self, _stop, self._free, self._stopping, self._thread
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def wait_until_full(self) -> None:
        """Waits until `size` items are ready, or there are no more. Threads that draw together
        must stop after the same item."""
        while self._thread.is_alive() and self._ready.qsize() < self._size:
            time.sleep(0.001)

    def __next__(self) -> Any:
        item, error = self._ready.get()
        self._free.release()
        if error is not None:
            raise error
        return item


def _fill(
    items: Iterator[Any],
    ready: queue.SimpleQueue,
    free: threading.Semaphore,
    stopping: threading.Event,
    host_only: bool,
    settings: dict[str, Any],
) -> None:
    with as_in(settings), kernels.this_host_only(host_only):
        while True:
            free.acquire()
            if stopping.is_set():
                return
            try:
                ready.put((next(items), None))
            except StopIteration:
                return
            except BaseException as error:
                ready.put((None, error))
                return


def _stop(
    free: threading.Semaphore, stopping: threading.Event, thread: threading.Thread
) -> None:
    stopping.set()
    free.release()
    thread.join()
