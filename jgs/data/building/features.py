"""Features from parts: `.npy` files `[n, F]`, tables, or a user's own arrays, one after the
other, in the order of the nodes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.building.shards import FixedRows, stamp_of
from jgs.data.building.spreading import KEEP_EVERY
from jgs.data.building.table_pieces import TABLES, TableFile
from jgs.data.building.work import GrowingFile, Work, ahead
from jgs.data.values import Digits, as_features, check_finite
from jgs.errors import InputError, refusing
from jgs.files.npy import map_npy, plain_file

_BYTES = 1 << 25  # of a piece
_ALIKE = "Write them with one dtype and one width."


class Parts:
    """Rows of features, read piece by piece.

    Fields:
      what: what messages call them.
      rows: how many there are, or None where only reading tells.
      width, dtype: `F`, and float16 or float32.
      stamp: what tells that they are the same and unchanged, as JSON can hold it.
    """

    def __init__(self, what: str, given: Any):
        if isinstance(given, str | Path):
            given = [given]
        self.what = what
        self.rows: int | None = 0
        self._read: list[Callable[[int], Iterator[np.ndarray]]] = []
        self._counts: list[int | None] = []
        self.stamp: list[Any] = []
        shapes: list[tuple[str, int, np.dtype]] = []
        if isinstance(given, list | tuple) and all(isinstance(g, str | Path) for g in given):
            for path in map(Path, given):
                shapes.append((str(path), *self._open(path)))
                self.stamp.append(stamp_of(path))
        elif isinstance(given, np.ndarray):
            shapes.append((what, *self._take([given], given, len(given))))
        elif isinstance(given, Iterable):
            arrays = iter(given)
            first = next(arrays, np.empty((0, 0), np.float32))
            shapes.append((what, *self._take(chain([first], arrays), first, None)))
        else:
            raise InputError(
                f"the {what} must be files, an array, or an iterable of arrays",
                f"a {type(given).__name__}",
                "Give arrays of numbers [n, F].",
            )
        if not shapes:
            raise InputError(f"the {what} must have parts", "none", "Name their files.")
        first_name, self.width, self.dtype = shapes[0]
        for name, width, dtype in shapes[1:]:
            if (width, dtype) != (self.width, self.dtype):
                raise InputError(
                    f"all parts of the {what} must be {self.dtype}[n, {self.width}], as "
                    f"{first_name} is",
                    f"{dtype}[n, {width}] in {name}",
                    _ALIKE,
                )
        known = [count for count in self._counts if count is not None]
        self.rows = sum(known) if len(known) == len(self._counts) else None

    def _take(self, arrays: Iterable, first: Any, rows: int | None) -> tuple[int, np.dtype]:
        checked = as_features(self.what, np.asarray(first)[:0])
        self.stamp.append(secrets.token_hex(8))
        self._counts.append(rows)
        self._read.append(lambda _: map(np.asarray, arrays))
        return checked.shape[1], checked.dtype

    def _open(self, path: Path) -> tuple[int, np.dtype]:
        if not plain_file(path).exists():
            raise InputError(f"{path} must exist", "no such file", "Correct the path.")
        if path.name.endswith(TABLES):
            return self._open_table(path)
        if not path.name.endswith(".npy"):
            raise InputError(
                f"a part of the {self.what} must end in .npy, {', '.join(TABLES)}",
                path,
                "Convert or rename it.",
            )
        with refusing((OSError, ValueError), f"{path} must be a whole .npy file", "Write it."):
            array = map_npy(path)
        checked = as_features(str(path), array[:0])
        rows = FixedRows(path, array.dtype, getattr(array, "offset", 0), array.shape[1:])
        step = max(1, _BYTES // max(1, array.dtype.itemsize * array.shape[1]))

        def read(first: int) -> Iterator[np.ndarray]:
            for at in range(first, len(array), step):
                stop = min(at + step, len(array))
                yield rows.read(at, stop - at) if array.flags.c_contiguous else array[at:stop]

        self._counts.append(len(array))
        self._read.append(read)
        return checked.shape[1], checked.dtype

    def _open_table(self, path: Path) -> tuple[int, np.dtype]:
        table = TableFile(path, None)
        first = next(table.chunks(0, 1), None)
        names = table.names
        if first is None:
            raise InputError(f"{path} must have rows", "none", "Leave it out.")
        step = max(1, _BYTES // max(1, 8 * sum(each[0].size for each in first.values())))

        def read(row: int) -> Iterator[np.ndarray]:
            for chunk in table.chunks(row, step):
                yield _stacked(path, [chunk[name] for name in names])

        self._counts.append(table.rows)
        self._read.append(read)
        return _stacked(path, list(first.values())).shape[1], np.dtype(np.float32)

    def pieces(self, first: int) -> Iterator[np.ndarray]:
        """The rows from number `first` on; checked. Raises `InputError`."""
        at, row, digits = 0, 0, Digits(f"the {self.what}")
        for count, read in zip(self._counts, self._read, strict=True):
            if count is not None and first >= row + count:
                row += count
                continue
            for piece in read(max(0, first - row) if count is not None else 0):
                made = as_features(self.what, piece, digits)
                what = f"the {self.what} from row {at + first:,} on"
                require_array(what, made, f"{self.dtype} [n, F]", _ALIKE, F=self.width)
                check_finite(self.what.removeprefix("features of "), made, first + at)
                at += len(made)
                yield made
            row = first + at
        digits.check()


def _stacked(path: Path, columns: list[np.ndarray]) -> np.ndarray:
    for column in columns:
        what, form = f"the columns of {path}", "numbers [n] or [n, F], equally long lists"
        require_array(what, column, form, "Convert or remove the column.")
    return np.column_stack([column.astype(np.float64) for column in columns])


def copy(
    work: Work, name: str, parts: Parts, rows: int, advance: Callable[[int], None]
) -> GrowingFile:
    """Writes the features as the array `name` of `work.new`, and returns its file.

    `work.state["features"][name]` is how many rows are on the disk already. There must be as
    many `rows`. `advance` gets the number of rows done. Raises `InputError`.
    """
    done = 0 if parts.rows is None else work.state["features"].get(name, 0)
    file = GrowingFile(work.new, name, (rows, parts.width), parts.dtype, done)
    kept = time.monotonic()

    def keep() -> None:
        file.sync()
        work.save(features=work.state["features"] | {name: done})

    with file:
        for piece in ahead(parts.pieces(done)) if done < rows else ():
            if done + len(piece) > rows:
                raise another_number(parts.what, rows, "more")
            file.append(piece)
            done += len(piece)
            advance(done)
            if time.monotonic() - kept >= KEEP_EVERY:
                keep()
                kept = time.monotonic()
        if done < rows:
            raise another_number(parts.what, rows, f"{done:,}")
        keep()
    return file


def another_number(what: str, rows: int, found: str) -> InputError:
    """The error for features that have not a row for each of these nodes."""
    return InputError(
        f"the {what} must have a row for each of the {rows:,} nodes",
        found,
        "Correct the number of nodes, or the parts.",
    )
