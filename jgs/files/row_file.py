"""`RowFiles`: rows of a matrix that lies in files, read past the page cache. `PackedRows`: rows
that are needed step by step, brought together for each step on disk."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.files.npy import map_of, npy_layout

THREADS = 32
_GAP = 16 << 10  # bytes between rows that are rather read than passed over
_MOST = 256 << 10  # bytes of a request
_PAGE = 4096
_SHORT, _NO_MEMORY = -1, -2  # what the kernel returns beside numbers of errors


class DiskError(InputError):
    """A file can no longer be read, or written."""


class FilePart(NamedTuple):
    """`rows` rows of a matrix, in a file from the byte `begin` on."""

    path: Path
    begin: int
    rows: int


class _Files(ctypes.Structure):
    """See `jgs/kernels/read_rows.h`."""

    _fields_ = (
        ("num_files", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("file", ctypes.c_void_p),
        ("begin", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("align", ctypes.c_int64),
        ("gap", ctypes.c_int64),
        ("most", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )


class RowFiles:
    """A matrix `[N, F]` whose rows lie in files, in order.

    Files are opened with O_DIRECT where the file system has it, so that reading takes no memory
    for pages and the rates are the disk's. Rows that lie close together are read in one
    request, and `threads` requests are under way at once.

    Args:
      parts: the files, of which each has some of the rows.
      width: `F`.
      dtype: of the numbers, as they lie in the files.
      threads: int, at least 1.

    Attributes:
      shape, dtype: `(N, F)`, and that of the numbers.
      row_bytes: those of a row.
      direct: whether files are read past the page cache.
      requests, bytes: how many requests were made so far, and the bytes that they read.

    Raises `InputError` where a file cannot be opened.
    """

    def __init__(
        self, parts: Sequence[FilePart], width: int, dtype: Any, threads: int = THREADS
    ):
        self._parts, self.dtype = tuple(parts), np.dtype(dtype)
        self._first = np.cumsum([0, *(part.rows for part in parts)], dtype=np.int64)
        self.shape = int(self._first[-1]), width
        self.requests = self.bytes = 0
        self.row_bytes = width * self.dtype.itemsize
        opened = {path: _opened(path) for path in {part.path for part in parts}}
        self._close = weakref.finalize(self, _close, [file for file, _ in opened.values()])
        self._align = max((align for _, align in opened.values()), default=1)
        self.direct = self._align > 1
        # Kept, for the kernel has their addresses.
        self._file = np.array([opened[part.path][0] for part in parts], np.int32)
        self._begin = np.array([part.begin for part in parts], np.int64)
        addresses = (each.ctypes.data for each in (self._file, self._begin, self._first))
        most = max(_MOST, self.row_bytes + 2 * _PAGE)
        self._files = _Files(
            len(self._parts), self.row_bytes, *addresses, self._align, _GAP, most, threads
        )

    @classmethod
    def of_npy(cls, paths: Sequence[str | os.PathLike], dtype: Any = None, **options: Any):
        """The matrix of `.npy` files `[n_i, F]` of one dtype, one below the other. `dtype`: how
        their numbers are read, where NumPy has no name for it, such as `jax.numpy.bfloat16`.
        Raises `InputError`."""
        parts, kinds = [], set()
        for path in map(Path, paths):
            shape, kind, begin = npy_layout(path)
            if len(shape) != 2:
                raise InputError(
                    f"{path} must be a matrix, a row for each node", list(shape), "Reshape it."
                )
            parts.append(FilePart(path, begin, shape[0]))
            kinds.add((shape[1], kind))
        if len(kinds) != 1:
            raise InputError(
                "files of one table must have the same width and dtype",
                ", ".join(f"{kind}[n, {width}]" for width, kind in sorted(kinds, key=str)),
                "Give the parts of one matrix, in order.",
            )
        ((width, kind),) = kinds
        if dtype is not None and np.dtype(dtype).itemsize != kind.itemsize:
            raise InputError(
                f"dtype must be one of {kind.itemsize} bytes, as the files have",
                np.dtype(dtype),
                "Give that of the numbers in the files.",
            )
        return cls(parts, width, dtype or kind, **options)

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Reads `rows`, int32 `[n]`, ascending, each once, to the first `n` rows of `out`
        `[>= n, F]`, contiguous. Raises `DiskError` where a file cannot be read, or ends."""
        assert out.flags.c_contiguous
        assert out.dtype == self.dtype
        assert len(out) >= len(rows)
        assert not len(rows) or (rows[0] >= 0 and rows[-1] < self.shape[0])
        read = self._read_kernel if kernels.available() else self._read_plain
        error, file = read(np.ascontiguousarray(rows, np.int32), out)
        if error == _NO_MEMORY:
            raise MemoryError("reading rows")
        if error:
            raise DiskError(
                f"{self._parts[file].path} must stay readable, with all of its rows",
                "a file that ends before" if error == _SHORT else os.strerror(error),
                "Restore the file, or its disk.",
            )

    def _read_kernel(self, rows: np.ndarray, out: np.ndarray) -> tuple[int, int]:
        found = np.zeros(3, np.int64)
        error = kernels.function("JgsReadRows", ctypes.c_int64)(
            ctypes.byref(self._files), ctypes.c_void_p(rows.ctypes.data),
            ctypes.c_int64(rows.size), ctypes.c_void_p(out.ctypes.data),
            ctypes.c_void_p(found.ctypes.data),
        )  # fmt: skip
        self.requests, self.bytes = self.requests + int(found[1]), self.bytes + int(found[2])
        return error, int(found[0])

    def _read_plain(self, rows: np.ndarray, out: np.ndarray) -> tuple[int, int]:
        size, align, first = self.row_bytes, self._align, self._first.tolist()

        def read(which: int) -> tuple[int, int, int]:
            row = int(rows[which])
            file = bisect_right(first, row) - 1
            begin = self._parts[file].begin + (row - first[file]) * size
            start = begin // align * align
            want = -(-(begin + size - start) // align) * align
            with mmap.mmap(-1, max(want, 1)) as buffer:  # as aligned as O_DIRECT asks for
                try:
                    got = os.preadv(self._file[file], [buffer], start)
                except OSError as error:
                    return error.errno or _SHORT, file, 0
                if start + got < begin + size:
                    return _SHORT, file, 0
                row_bytes = buffer[begin - start : begin - start + size]
            out[which] = np.frombuffer(row_bytes, self.dtype)
            return 0, file, want

        if size == 0:
            return 0, 0
        with ThreadPoolExecutor(self._files.threads) as pool:
            found = list(pool.map(read, range(rows.size)))
        self.requests += len(found)
        self.bytes += sum(want for _, _, want in found)
        return next(((error, file) for error, file, _ in found if error), (0, 0))


def copy_rows(rows: np.ndarray, source: np.ndarray, target: np.ndarray, table: np.ndarray):
    """Copies `rows[source]` to `table[target]`; both int32 `[n]`, and no target is twice."""
    if not kernels.available():
        table[target] = rows[source]
        return
    assert rows.flags.c_contiguous
    assert table.flags.c_contiguous
    pointers = (ctypes.c_void_p(each.ctypes.data) for each in (rows, source, target))
    sizes = ctypes.c_int64(source.size), ctypes.c_int64(rows[:1].nbytes)
    kernels.function("JgsCopyRows", None)(*pointers, *sizes, ctypes.c_void_p(table.ctypes.data))


def part_of_mapped(array: Any) -> FilePart | None:
    """Where the rows of an array lie whose memory is a mapping of a file: a NumPy memory map,
    or a JAX array of one on the CPU. None for others."""
    view = np.asarray(array)
    words = map_of(view) if view.ndim and view.nbytes else None
    if words is None or len(words) < 6 or words[5][0] != "/":
        return None
    path, first = Path(words[5]), int(words[0].split("-")[0], 16)
    here = path.is_file() and path.stat().st_ino == int(words[4])
    place = int(words[2], 16) + view.ctypes.data - first
    return FilePart(path, place, len(view)) if here else None


def _opened(path: Path) -> tuple[int, int]:
    """A descriptor of the file, and of what its requests must be multiples."""
    try:
        if hasattr(os, "O_DIRECT"):
            for align in (512, _PAGE):
                try:
                    file = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
                except OSError:
                    break  # this file system has none; or a fault, which is met below
                with mmap.mmap(-1, _PAGE) as buffer, memoryview(buffer) as view:
                    try:
                        with view[:align] as part:
                            os.preadv(file, [part], 0)
                        return file, align
                    except OSError:
                        os.close(file)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), 1
    except OSError as error:
        raise InputError(
            f"{path} must be a file that can be read", error.strerror, "Check the path."
        ) from None


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


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
