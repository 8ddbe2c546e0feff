"""`.npy` files and zip archives of them, whose headers are checked before they are believed.
`with_room` and `with_rows`: an array with rows appended, whose own bytes are not copied."""

from __future__ import annotations

import ctypes
import lzma
import math
import mmap
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jgs.errors import InputError, refusing

# The exceptions that zipfile raises for a damaged archive.
NOT_ZIP = (
    *(OSError, EOFError, ValueError, IndexError, KeyError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(RuntimeError, NotImplementedError),  # encrypted, or a compression that Python lacks
    MemoryError,  # of the decompressor, or for an array that is too large
)
# The largest growth of an unpacked member; LZMA and BZIP2 have no useful limit.
_MOST_GROWTH = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def plain_file(path: str | os.PathLike) -> Path:
    """`path`, which must not be a pipe, a device or a folder: reading one could wait for ever.

    A missing file is not an error here; the caller must report it. Raises `InputError`.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} must be a plain file",
            "a folder" if path.is_dir() else "a pipe or device",
            "Name the file itself, or copy what the pipe gives into one.",
        )
    return path


def map_npy(path: Path) -> np.ndarray:
    """The array in a `.npy` file, memory-mapped read-only; an empty array is not mapped.

    Raises `OSError`, or `ValueError` for a file that is not one whole array of plain values.
    """
    with open(plain_file(path), "rb") as file:
        shape, fortran, dtype = _read_header(file, path.stat().st_size)
        if math.prod(shape) * dtype.itemsize == 0:  # zero bytes cannot be mapped
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def npy_layout(path: Path) -> tuple[tuple[int, ...], np.dtype, int]:
    """The shape and the dtype of the array in a `.npy` file, and the byte at which it begins.

    Raises `InputError` for a file that is not one whole array of plain values in C's order.
    """
    rule = f"{path} must be a whole .npy file of numbers"
    again = "Write it again, with numpy.save."
    with refusing((ValueError, OSError), rule, again), open(plain_file(path), "rb") as file:
        shape, fortran, dtype = _read_header(file, path.stat().st_size)
        if fortran and len(shape) > 1:
            raise ValueError("columns that lie one after the other")
        return shape, dtype, file.tell()


class Members(Mapping[str, np.ndarray]):
    """The arrays of an open NumPy archive by name; each is read when it is accessed.

    Reading raises one of `NOT_ZIP` for a member that is not one whole array of plain values,
    before the memory that its header states is allocated.
    """

    def __init__(self, archive: zipfile.ZipFile):
        self._archive = archive
        self._infos = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._infos[name]
        growth = _MOST_GROWTH.get(info.compress_type, math.inf)
        with self._archive.open(info) as file:
            _read_header(file, min(info.file_size, growth * info.compress_size))
        with self._archive.open(info) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)


def _read_header(file: IO[bytes], size: float) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape, Fortran's order and dtype of an array that `size` bytes must hold."""
    try:
        shape, fortran, dtype = _READERS[np.lib.format.read_magic(file)](file)
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal: a crafted one raises anything
        raise ValueError(f"a header that no array has: {error}") from None
    if dtype.hasobject or dtype.subdtype or dtype.itemsize == 0:
        raise ValueError(f"values of the type {dtype}, which need pickles or are none")
    if any(type(n) is not int or not 0 <= n < 2**63 for n in shape):
        raise ValueError(f"a shape that no array has, {shape}")
    if (needed := math.prod(shape) * dtype.itemsize) > (left := size - file.tell()):
        raise ValueError(f"{left:,.0f} bytes where its shape says {needed:,}")
    return shape, fortran, dtype


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
