"""`.npy` files and zip archives of them, whose headers are checked before they are believed."""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

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
