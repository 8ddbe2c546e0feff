"""`Spilled`: rows of nodes that exceed evaluation's memory, in an unnamed file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.files.row_file import FilePart, RowFiles
from jgs.files.writing import mib, reserve
from jgs.graph import as_device
from jgs.graph.device import aligned_empty

_AT_ONCE = 1 << 20  # rows: their numbers take 4 MiB
_GAP = 4  # rows between two rows that are rather written, as zeros, than passed over
_MOST_PARTS = 64  # more of them would read the graph's edges too often


class Spilled:
    """A float32 matrix `[n, W]` in an unnamed file, divided into parts of some columns each.

    A part has its columns of all rows, one row after the other. So it is read in one go, where
    a matrix of all columns would be read in full for some of them. `RowFiles` reads them, past
    the page cache.

    Args:
      shape: `(n, W)`.
      width: the columns in a part, `W` for one part.
      scratch: the folder of the file; None: the system's folder for temporary files.

    Attributes:
      shape, dtype: `(n, W)` and float32.
      columns: a slice for each part, its columns.

    Raises `InputError` where there is too little room; all of it is reserved.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, shape: tuple[int, int], width: int, scratch: Path | None):
        self.shape = shape
        bounds = [*range(0, shape[1], width), shape[1]]
        self.columns = [slice(*pair) for pair in pairwise(bounds)]
        self._begin = [4 * shape[0] * columns.start for columns in self.columns]
        with scratch_file(4 * shape[0] * shape[1], scratch) as file:
            path = Path(file.name)
            self._parts = [
                RowFiles([FilePart(path, begin, shape[0])], part.stop - part.start, self.dtype)
                for begin, part in zip(self._begin, self.columns, strict=True)
            ]
            self._file = open(os.dup(file.fileno()), "wb", buffering=0)  # noqa: SIM115

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self._parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self._parts)

    def write(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Writes the rows `[n, W]` of `ids`, which ascend. Rows between them become zeros."""
        cuts = np.flatnonzero(np.diff(ids) > _GAP) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(ids)]):
            near, some = ids[first:last], rows[first:last]
            if near[-1] - near[0] + 1 > len(near):
                filled = np.zeros((near[-1] - near[0] + 1, rows.shape[1]), np.float32)
                filled[near - near[0]] = some
                some = filled
            for number, columns in enumerate(self.columns):
                self.write_part(number, int(near[0]), some[:, columns])

    def write_part(self, number: int, first: int, rows: np.ndarray) -> None:
        """Writes rows of one part, from the row `first` on."""
        columns = self.columns[number]
        at = self._begin[number] + 4 * first * (columns.stop - columns.start)
        left = np.ascontiguousarray(rows, np.float32).data.cast("B")
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise InputError(
                "evaluation must be able to write its rows to the disk of --scratch",
                error.strerror,
                "Choose another disk by --scratch (in jgs.predict by TMPDIR).",
            ) from None

    def read(self, ids: np.ndarray, out: np.ndarray) -> None:
        """Reads the rows of `ids`, which ascend, each once, to the first rows of `out`."""
        if len(self._parts) == 1:
            return self._parts[0].read(ids, out)
        for part, columns in zip(self._parts, self.columns, strict=True):
            rows = np.empty((len(ids), part.shape[1]), np.float32)
            part.read(ids, rows)
            out[: len(ids), columns] = rows

    def part(self, number: int) -> jax.Array:
        """float32 `[n, w]`: all rows of a part."""
        part, (num, width) = self._parts[number], self._parts[number].shape
        rows = aligned_empty(num * width, np.float32).reshape(num, width)
        for first in range(0, num, _AT_ONCE):
            ids = np.arange(first, min(first + _AT_ONCE, num), dtype=np.int32)
            part.read(ids, rows[first : first + _AT_ONCE])
        return as_device(rows)


def mapped_at_most(memory: int) -> int:
    """The most bytes of rows in a file that is memory-mapped and read at random: evaluation's
    memory, or half of the machine's free memory if that is more, where the file's pages stay.
    Larger files are read in order."""
    from jgs.partition.memory import machine  # a slow import

    has = machine()
    return sys.maxsize if has is None else max(memory, has.free // 2)


def columns_at_once(num_rows: int, width: int, memory: int) -> int:
    """The columns of a matrix `[num_rows, width]` that three quarters of the memory hold, made
    even among its parts; 0 if there would be too many parts."""
    fit = 3 * memory // (16 * max(num_rows, 1))
    if fit == 0 or -(-width // fit) > _MOST_PARTS:
        return 0
    return -(-width // -(-width // fit))


@contextmanager
def scratch_file(size: int, scratch: Path | None) -> Iterator[Any]:
    """A file in `scratch`, by default in the system's folder for temporary files, whose name
    goes at the end. Its `size` bytes are reserved first, because a write to a memory map that
    the disk cannot hold would end the process. Raises `InputError` where there is no room."""
    folder = tempfile.gettempdir() if scratch is None else scratch
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            reserve(file.fileno(), max(size, 1), folder)
            yield file
    except OSError as error:
        raise InputError(
            f"evaluation must have room for {mib(size)} MiB in {folder}: a layer's rows exceed "
            "its working memory",
            error.strerror,
            "Free space there, choose another disk by --scratch (in jgs.predict by TMPDIR), or "
            f"keep the rows in memory with --eval-memory {mib(size)} or more.",
        ) from None
