"""`Ahead`: an iterator that runs in a background thread; and iterators over what it makes."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from jgs import kernels
from jgs.devices import on_host
from jgs.settings import as_in, of_this_thread

# Of a thread of an `Ahead`: `draws`, True; `stopping`, whether it has been told to stop.
_own = threading.local()


class Stopped(Exception):
    """Ends an iterator whose `Ahead` has been told to stop."""


def go_on() -> None:
    """Raises `Stopped` in a thread of an `Ahead` that has been told to stop. An iterator that
    takes long between two items calls it now and then."""
    if getattr(_own, "draws", False) and _own.stopping.is_set():
        raise Stopped


class Ahead:
    """Runs an iterator in a background thread, at most `size` items ahead.

    The thread traces and computes as the thread that made it: with the same settings of JAX,
    such as `jax.default_device`. Only the thread runs what it traces, so
    `jgs.kernels.this_host_only` holds there.
    """

    def __init__(self, items: Iterator[Any], size: int):
        # The thread has these, and not `self`, so that `self` can be collected as garbage.
        ready: queue.SimpleQueue = queue.SimpleQueue()
        free, stopping = threading.Semaphore(size), threading.Event()
        settings = of_this_thread()

        def fill() -> None:
            _own.draws, _own.stopping = True, stopping
            with as_in(settings), kernels.this_host_only():
                try:
                    while free.acquire() and not stopping.is_set():
                        ready.put((next(items), None))
                    ready.put((None, StopIteration()))  # for who still waits
                except Stopped:
                    ready.put((None, StopIteration()))
                except BaseException as error:  # StopIteration too
                    ready.put((None, error))
                finally:
                    if isinstance(items, Generator):
                        items.close()

        def stop() -> None:
            stopping.set()
            free.release()
            # A loader may be collected as garbage in a thread of one: that waits for none.
            if not getattr(_own, "draws", False):
                thread.join()

        thread = threading.Thread(target=fill, name="jgs-loader", daemon=True)
        self._ready, self._size, self._free, self._thread = ready, size, free, thread
        # Also at exit and when collected: a thread inside XLA must not outlive Python.
        self.stop: Callable[[], object] = weakref.finalize(self, stop)
        thread.start()

    def end(self) -> None:
        """Stops, and waits for the thread, also in a thread of another `Ahead`."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

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


@contextmanager
def run_ahead(items: Iterator[Any], ahead: bool) -> Iterator[Iterator[Any]]:
    """The same items within the block, with `ahead` one more of them made in a thread."""
    running = Ahead(items, 1) if ahead else None
    try:
        yield items if running is None else running
    finally:
        if running is not None:
            running.end()


def on_host_each(calls: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """The same items, each computed on the host device."""
    while True:
        with on_host():  # not around the `yield`, which would leave it to the caller
            items = next(calls, None)
        if items is None:
            return
        yield items


def each(calls: Iterator[list[Any]]) -> Iterator[Any]:
    """The items of all lists, one after the other."""
    for items in calls:
        while items:
            yield items.pop(0)  # and keep no reference to it
