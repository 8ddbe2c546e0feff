"""`PackedRows`: rows that are needed step by step, brought together for each step on disk."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from jgs.files.row_file import DiskError, FilePart, RowFiles, copy_rows

_CHUNK = 64 << 20  # bytes of rows that are read before some are written
_MOST_SPOOLED = 256 << 20  # bytes, after which a spool begins another file
_ALIGN = 4096


class PackedRows:
    """The rows of a matrix in files that each of `K` steps needs, in a scratch file.

    Rows of one step lie far apart, and a disk that gives a gigabyte a second in order gives a
    fraction of it at random. So the matrix is read once, in order, and written step by step
    within some megabytes of rows. A step reads its pieces. (DiskGNN, SIGMOD 2025, packs a whole
    epoch before training.) The scratch file, of `nbytes` bytes in the existing `folder`, has no
    name: it is gone when this object or the process is.

    Args:
      files: the matrix.
      steps: for each step int32 `[m]`, the rows that it needs, ascending, each once.
      between: called after each of the pieces in which the matrix is read; it may raise.

    Raises `DiskError` where the matrix cannot be read, or there is no room.
    """

    def __init__(
        self,
        files: RowFiles,
        steps: Sequence[np.ndarray],
        folder: Path,
        between: Callable[[], object] = lambda: None,
    ):
        self._files, self.nbytes = files, 0
        self._pieces: list[list[FilePart]] = [[] for _ in steps]
        self._folder = folder
        try:
            self._file = _scratch_file(folder)
        except OSError as error:
            _no_room(folder, error)
        self._end = weakref.finalize(self, os.close, self._file)
        self._path = Path(f"/proc/self/fd/{self._file}")
        rows = np.concatenate([np.empty(0, np.int32), *steps])
        kind = np.uint8 if len(steps) <= 256 else np.uint32  # NumPy sorts short ones faster
        step = np.repeat(np.arange(len(steps), dtype=kind), [each.size for each in steps])
        order = np.argsort(rows, kind="stable")
        rows, step = rows[order], step[order]
        size = max(1, _CHUNK // max(files.row_bytes, 1))
        room = np.empty((min(size, rows.size), files.shape[1]), files.dtype)
        most = room.nbytes + (len(steps) + 1) * _ALIGN
        with mmap.mmap(-1, most) as buffer:
            for begin in range(0, rows.size if files.row_bytes else 0, size):
                chunk = slice(begin, begin + size)
                self._pack(rows[chunk], step[chunk], room, buffer)
                between()

    def _pack(
        self, rows: np.ndarray, step: np.ndarray, room: np.ndarray, buffer: mmap.mmap
    ) -> None:
        new = np.diff(rows, prepend=-1) != 0
        self._files.read(rows[new], room)
        where = np.cumsum(new, dtype=np.int32) - np.int32(1)
        order = np.argsort(step, kind="stable")
        counts, end, first = np.bincount(step, minlength=len(self._pieces)), 0, 0
        row_bytes = self._files.row_bytes
        for number in np.flatnonzero(counts).tolist():
            count = int(counts[number])
            piece = np.frombuffer(buffer, self._files.dtype, count * room.shape[1], end)
            source = where[order[first : first + count]]
            target = np.arange(count, dtype=np.int32)
            copy_rows(room, source, target, piece.reshape(count, -1))
            del piece  # else the buffer could not be closed
            part = FilePart(self._path, self.nbytes + end, count)
            self._pieces[number].append(part)
            first, end = first + count, -(-(end + count * row_bytes) // _ALIGN) * _ALIGN
        with memoryview(buffer) as view:
            done = 0
            while done < end:
                try:
                    with view[done:end] as left:
                        done += os.pwrite(self._file, left, self.nbytes + done)
                except OSError as error:
                    _no_room(self._folder, error)
        self.nbytes += end

    def read(self, step: int, out: np.ndarray) -> None:
        """Reads the rows of the step, in their order, to the first rows of `out`. Raises
        `DiskError`."""
        parts = self._pieces[step]
        files = RowFiles(parts, self._files.shape[1], self._files.dtype)
        try:
            files.read(np.arange(files.shape[0], dtype=np.int32), out)
        except DiskError as error:
            raise _unreadable(self._folder, error.value) from None


class Spool:
    """Puts arrays on disk, in files without names in `folder`. A file is gone when no array of
    it is known any more. Raises `DiskError`."""

    def __init__(self, folder: Path):
        self._folder, self._end = folder, 0
        self._file = self._fresh()

    def append(self, array: np.ndarray) -> Spooled:
        if self._end >= _MOST_SPOOLED:
            self._file, self._end = self._fresh(), 0
        begin, data = (self._end, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        with _refusing(self._folder):
            while len(data):
                data = data[self._file.write(data) :]
        self._end += array.nbytes
        return Spooled(self._file, begin, array.shape, array.dtype, self._folder)

    def _fresh(self) -> Any:
        with _refusing(self._folder):
            folder, name = self._folder, ".jgs-plans-"
            return tempfile.TemporaryFile(prefix=name, dir=folder, buffering=0)


class Spooled(NamedTuple):
    """An array that a `Spool` has put on disk."""

    file: Any
    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype
    folder: Path

    def read(self, empty: Callable[[int, np.dtype], np.ndarray] = np.empty) -> np.ndarray:
        """The array, in memory that `empty` makes for a number of elements. Raises
        `DiskError`."""
        found = empty(math.prod(self.shape), self.dtype)
        left, begin = found.view(np.uint8).data, self.begin
        while len(left):
            try:
                size = os.preadv(self.file.fileno(), [left], begin)
            except OSError as error:
                raise _unreadable(self.folder, error.strerror) from None
            if not size:
                raise _unreadable(self.folder, "it has become shorter")
            left, begin = left[size:], begin + size
        return found.reshape(self.shape)


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _no_room(folder, error)


def _no_room(folder: Path, error: OSError) -> NoReturn:
    raise DiskError(
        f"{folder} must have room for the rows of coming steps",
        error.strerror,
        "Free space, or name another folder.",
    ) from None


def _unreadable(folder: Path, value: object) -> DiskError:
    rule = f"the scratch file in {folder} must stay readable"
    return DiskError(rule, value, "Mend its disk, or name another folder.")


def _scratch_file(folder: Path) -> int:
    number, path = tempfile.mkstemp(prefix=".jgs-rows-", dir=folder)
    try:
        if hasattr(os, "O_DIRECT"):
            try:
                direct = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
            except OSError:
                return number  # this file system has none
            os.close(number)
            return direct
        return number
    finally:
        os.unlink(path)
