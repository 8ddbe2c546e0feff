"""`with_room` and `with_rows`: an array with rows appended, whose own bytes are not copied."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

_MAYMOVE, _FIXED, _NORESERVE = 1, 2, 0x4000  # flags of Linux


def with_room(array: Any, length: int) -> np.ndarray:
    """`array` `[n, ...]`, read-only, with zeros up to `length` rows; unchanged if it has as
    many.

    The pages of a memory-mapped file are neither copied nor read: they are mapped once more,
    with pages of zeros after them. So ranks whose arrays must have equal shapes share a file's
    pages with all its readers. Any other array is copied, and so is every array outside Linux.

    Args:
      array: an array of NumPy or JAX, on the CPU.
      length: int, the number of rows of the result.
    """
    array = np.asarray(array)
    if len(array) >= length:
        return array
    out = _with_room(array, length) if _is_shared(array) else _padded(array, length)
    out.flags.writeable = False
    return out


def shared(array: Any) -> np.ndarray:
    """`array` itself where it is in pages that can be mapped once more, as those of a
    memory-mapped file are; or else a copy in such pages. `with_rows` takes the result."""
    array = np.asarray(array)
    if array.nbytes == 0 or _is_shared(array):
        return array
    out = np.frombuffer(mmap.mmap(-1, array.nbytes), array.dtype).reshape(array.shape)
    out[...] = array
    return out


def with_rows(array: np.ndarray, rows: np.ndarray, length: int) -> np.ndarray:
    """`array` `[n, ...]`, which `shared` returned, then `rows` `[m, ...]`, then zeros up to
    `length` rows. It takes time and memory for `rows` alone, on Linux. Nothing of `array` is
    read; `array` must not change while the result is in use."""
    if len(array) + len(rows) > length:
        raise ValueError(f"{len(array)} and {len(rows)} rows for {length}")
    out = _with_room(array, length)
    out[len(array) : len(array) + len(rows)] = rows
    out.flags.writeable = False
    return out


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    return np.pad(array, [(0, length - len(array)), *[(0, 0)] * (array.ndim - 1)])


def _with_room(array: np.ndarray, length: int) -> np.ndarray:
    """`array`, in shared pages, with zeros up to `length` rows."""
    address = array.ctypes.data
    before = address % mmap.PAGESIZE
    # The last page may hold other bytes after the array: its part of the array is copied.
    full_pages = (before + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if full_pages == 0 or not sys.platform.startswith("linux"):
        return _padded(array, length)
    shape = (length, *array.shape[1:])
    count = int(np.prod(shape, dtype=np.int64))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    room = mmap.mmap(-1, before + count * array.itemsize, flags=flags)
    out = np.frombuffer(room, array.dtype, count, before)
    start = out.ctypes.data - before
    remap = ctypes.CDLL(None, use_errno=True).mremap
    remap.restype = ctypes.c_void_p
    remap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
    # With an old size of 0, mremap maps shared pages once more.
    if remap(address - before, 0, full_pages, _MAYMOVE | _FIXED, start) != start:
        number = ctypes.get_errno()
        raise OSError(number, f"mremap: {os.strerror(number)}")
    done = full_pages - before
    out.view(np.uint8)[done : array.nbytes] = array.reshape(-1).view(np.uint8)[done:]
    return out.reshape(shape)


def _is_shared(array: np.ndarray) -> bool:
    """Whether the bytes lie in one shared map, as of a file that NumPy maps read-only."""
    found = map_of(array)
    return found is not None and found[1].endswith("s")


def map_of(array: np.ndarray) -> list[str] | None:
    """The words of the line of `/proc/self/maps` with all bytes of a contiguous array: bounds,
    access, place in the file, device, inode and path. None for others, and outside Linux."""
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    if not array.flags.c_contiguous:
        return None
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split(maxsplit=5)
        first, last = (int(bound, 16) for bound in words[0].split("-"))
        if first <= begin and end <= last:
            return words
    return None
