"""`Ahead`: an iterator that runs in a background thread; and iterators over what it makes.
Batches on their way from the host, which draws them, to the devices that train on them."""

from __future__ import annotations

import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from jgs import kernels
from jgs.devices import default_device, host_device, on_host
from jgs.errors import InputError
from jgs.graph import TypedRows, as_device
from jgs.ops.aggregate import rows_apart
from jgs.sampling.capacity import round_up
from jgs.sampling.loading.source import OverSource, Source
from jgs.settings import as_in, exact_integers, of_this_thread

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


_LARGE = 1 << 20  # bytes of an array that is sent by itself
_PARTS = 8
_ALIGNED = 16  # bytes
_RULE = "device must be a device of this process, or a sharding of a leading axis over devices"
_REMEDY = 'Give jax.devices()[0], or NamedSharding(mesh, PartitionSpec("data")).'


@dataclass(frozen=True)
class Destination:
    """Where batches go. A pytree of arrays on the host becomes one of arrays there.

    Fields:
      devices: the devices of this process.
      sharding: how the leading axis of an array `[D, ...]` lies on `D` devices, of which other
        processes may have some; None for one device, to which arrays go as they are.
    """

    devices: tuple[Any, ...]
    sharding: Sharding | None = None

    @classmethod
    def of(cls, device: Any, every_process: bool = False) -> Destination | None:
        """The destination that `Loader` takes as `device`; None where batches stay on the
        host. With `every_process` a sharding may have devices of other processes. Raises
        `InputError`."""
        if isinstance(device, SingleDeviceSharding):
            (device,) = device.device_set
        if device is None or isinstance(device, jax.Device):
            device = default_device() if device is None else device
            if device.process_index != jax.process_index():
                raise InputError(_RULE, f"{device}, of another process", _REMEDY)
            return None if device == host_device() else cls((device,))
        if not isinstance(device, Sharding):
            raise InputError(_RULE, repr(device), _REMEDY)
        number = len(device.device_set)
        if not (device.is_fully_addressable or every_process):
            raise InputError(_RULE, f"{device}, with devices of other processes", _REMEDY)
        try:
            places: Any = device.devices_indices_map((number,))
            first = {place[0].indices(number)[:2]: each for each, place in places.items()}
            every = [first[i, i + 1] for i in range(number)]
        except (KeyError, ValueError, IndexError):
            raise InputError(_RULE, f"{device}", _REMEDY) from None
        here = jax.process_index()
        own = tuple(device for device in every if device.process_index == here)
        if not own:
            raise InputError(_RULE, f"{device}, with no device of this process", _REMEDY)
        return cls(own, device)

    @property
    def shares(self) -> int | None:
        """Into how many shares a batch is divided; None: it is not."""
        return None if self.sharding is None else len(self.devices)

    def send(self, trees: Sequence[Any]) -> Any:
        """Starts to copy one pytree of arrays, or with a `sharding` one for each device, all of
        the same shapes. Returns the pytree there; with a `sharding` each array has a leading
        axis of devices. It does not wait for the copies. Integers keep their 64 bits."""
        with exact_integers():
            if self.sharding is None:
                return _sent(trees[0], self.devices[0])
            every = [
                _sent(tree, device, axis=True)
                for tree, device in zip(trees, self.devices, strict=True)
            ]
            return jax.tree.map(self._joined, *every)

    def _joined(self, *pieces: jax.Array) -> jax.Array:
        assert self.sharding is not None
        shape = (len(self.sharding.device_set), *pieces[0].shape[1:])
        whole = jax.make_array_from_single_device_arrays
        return whole(shape, self.sharding, list(pieces))

    def back(self, tree: Any) -> Any:
        """A pytree of arrays of one device, copied to the host."""
        with exact_integers():
            return jax.device_put(tree, host_device())


Layout = tuple[tuple[tuple[int, ...], np.dtype], ...]  # of arrays: shapes and dtypes


def _sent(tree: Any, device: Any, axis: bool = False) -> Any:
    """A pytree of arrays of the host on `device`, with `axis` each as `[1, ...]`.

    Small arrays go in one piece, since each copy takes tens of microseconds to start. Large
    ones go in parts: 50 MB take 7 ms in one part and 2.5 ms in eight, from a host with 16 cores
    to an H100.
    """
    leaves, form = jax.tree_util.tree_flatten(tree)
    arrays = [_memory(leaf) for leaf in leaves]
    small = [array for array in arrays if array.nbytes < _LARGE]
    layout = tuple((array.shape, array.dtype) for array in small)
    begins = _begins(layout)
    piece = np.empty(begins[-1], np.uint8)
    for array, begin in zip(small, begins, strict=False):
        piece[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
    large = [_split(array) for array in arrays if array.nbytes >= _LARGE]
    piece, large = jax.device_put((piece, large), device)
    there, whole = _unpacked(piece, large, layout, axis)
    there, others = iter(there), iter(whole)
    found = [next(there if a.nbytes < _LARGE else others) for a in arrays]
    return jax.tree_util.tree_unflatten(form, found)


def _memory(leaf: Any) -> np.ndarray:
    """An array of the host as NumPy sees it, without a copy; raises `InputError`."""
    kind = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    known = isinstance(kind, np.dtype) and kind.kind in "biuf"
    if not known and kind not in (jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        raise InputError(
            "what is sent to a device must be arrays of real numbers",
            f"{kind} in what `read` or `after` returned",
            "Leave it out; of a key send jax.random.key_data(key).",
        )
    return np.asarray(leaf)


@lru_cache(maxsize=256)
def _begins(layout: Layout) -> list[int]:
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in layout]
    return np.cumsum([0, *(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]).tolist()


def _split(array: np.ndarray) -> list[np.ndarray]:
    """The rows of a large array in up to `_PARTS` parts: several threads then copy them to the
    memory from which the device reads."""
    if array.ndim == 0 or array.nbytes < 2 * _LARGE:
        return [array]
    return np.array_split(array, min(_PARTS, array.nbytes // _LARGE, len(array)))


@partial(jax.jit, static_argnums=(2, 3))
def _unpacked(
    piece: jax.Array, large: list[list[jax.Array]], layout: Layout, axis: bool
) -> tuple[list[jax.Array], list[jax.Array]]:
    """The arrays in a piece, uint8 `[n]`, and those that came in parts."""
    found = []
    for (shape, dtype), begin in zip(layout, _begins(layout), strict=False):
        flat = piece[begin : begin + math.prod(shape) * dtype.itemsize]
        if dtype.kind == "b":
            flat = flat != 0
        elif dtype.itemsize == 8 and dtype.kind in "iu":  # TPUs cannot make 64 bits of bytes
            low, high = jax.lax.bitcast_convert_type(flat.reshape(-1, 2, 4), jnp.uint32).T
            flat = (high.astype(jnp.uint64) << jnp.uint64(32) | low).astype(dtype)
        elif dtype.itemsize > 1:
            flat = jax.lax.bitcast_convert_type(flat.reshape(-1, dtype.itemsize), dtype)
        else:
            flat = jax.lax.bitcast_convert_type(flat, dtype)
        found.append(flat.reshape((1, *shape) if axis else shape))
    joined = [parts[0] if len(parts) == 1 else jnp.concatenate(parts) for parts in large]
    return found, [array[None] if axis else array for array in joined]


_rows_apart = jax.jit(rows_apart)


class RowsTogether:
    """Copies the rows that `TypedRows` name, so that they can be sent without the tables.

    Called with a pytree, it returns it with other `TypedRows`. The table of each type then has
    `K` rows: those of the batch's nodes of that type in their order, kept as they are stored.
    Sparse rows are made dense. A node of a type without features keeps its place.

    `K` has some room to spare. Where a batch needs more, `K` grows from then on, so that there
    are few shapes.
    """

    def __init__(self) -> None:
        self._room: dict[int, int] = {}

    def __call__(self, tree: Any) -> Any:
        def is_rows(value: Any) -> bool:
            return isinstance(value, TypedRows)

        return jax.tree.map(lambda v: self._of(v) if is_rows(v) else v, tree, is_leaf=is_rows)

    def _of(self, rows: TypedRows) -> TypedRows:
        kind, place = np.asarray(rows.kind), np.array(rows.place)  # the latter is a copy
        tables: list[Any] = []
        for number, table in enumerate(rows.tables):
            if table is not None:
                mine = np.flatnonzero(kind == number)
                asked = np.full(self._room_for(number, mine.size), -1, np.int32)
                asked[: mine.size] = place[mine]
                place[mine] = np.arange(mine.size, dtype=np.int32)
                table = _rows_apart(jax.tree.map(as_device, table), asked)
            tables.append(table)
        return rows._replace(tables=tuple(tables), place=as_device(place))

    def _room_for(self, number: int, size: int) -> int:
        if size > self._room.get(number, 0):
            self._room[number] = round_up(size + size // 8)
        return max(self._room.get(number, 0), 1)


def shapes(tree: Any) -> tuple[tuple[int, ...], ...]:
    """Those of the arrays of a pytree."""
    return tuple(np.shape(leaf) for leaf in jax.tree.leaves(tree))


class SentSource(OverSource):
    """Sends what another source draws.

    Args:
      source: draws the batches; with `destination.shares` lists of so many a step.
        `RankSource` draws lists in any case, of pairs of a batch and its rows.
      destination: where they go.
      read: as in `Loader`; it is called on the host.
      ahead: as in `OverSource`.
    """

    def __init__(
        self,
        source: Source,
        destination: Destination,
        read: Callable[[Any], Any] | None = None,
        ahead: bool = False,
    ):
        super().__init__(source, ahead)
        self._destination, self._read, self._rows_together = destination, read, RowsTogether()

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        """As of the source, one step at a time: so a loader can bound what waits there."""
        with run_ahead(self.source.drawn(epoch, first), self._ahead) as calls:
            yield from map(lambda step: [self._sent(step)], each(calls))  # keeps no step

    def _sent(self, drawn: Any) -> Any:
        began = time.perf_counter()
        every = drawn if isinstance(drawn, list) else [drawn]
        if self._read is not None:
            read = [self._rows(batch) for batch in every]
            if len({shapes(one) for one in read}) > 1:  # the reader has got more room
                read = [self._rows(batch) for batch in every]
            every = list(zip(every, read, strict=True))
        sent = self._destination.send(every)
        self._seconds += time.perf_counter() - began
        return sent

    def _rows(self, batch: Any) -> Any:
        assert self._read is not None
        return jax.block_until_ready(self._rows_together(self._read(batch)))
