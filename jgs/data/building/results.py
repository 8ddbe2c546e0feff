"""Files of the built data set, which grow at their end and can be continued."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from jgs.files.storage import ArrayFile
from jgs.files.verified import sha256

_AT_ONCE = 1 << 24  # bytes


class GrowingFile(ArrayFile):
    """An `ArrayFile` that goes on where it stood, and whose length may be known only at its
    end.

    Args:
      shape: of the whole array; None for its length where that is not known.
      done: how many rows are in the file already. What is behind them is cut off.
    """

    def __init__(
        self, folder: Path, name: str, shape: tuple[int | None, ...], dtype: Any, done: int
    ):
        self._known = shape[0] is not None
        super().__init__(folder, name, (shape[0] or 0, *shape[1:]), dtype)  # type: ignore[arg-type]
        self._done, self._digest = done, ""
        self._row = self.dtype.itemsize * math.prod(self.shape[1:])

    def is_there(self) -> bool:
        """Whether the file has the rows that are done."""
        least = len(self._header()) + self._done * self._row
        return self._done == 0 or (self.path.exists() and self.path.stat().st_size >= least)

    def __enter__(self) -> Self:
        header = self._header()
        fresh = self._done == 0
        self._file: Any = open(self.path, "wb" if fresh else "r+b")
        if fresh:
            self._write(header)
        else:
            self._file.truncate(len(header) + self._done * self._row)
            if self._known:
                while data := self._file.read(_AT_ONCE):
                    self._hash.update(data)
            self._file.seek(0, os.SEEK_END)
        return self

    def append(self, piece: np.ndarray) -> None:
        """Appends the next rows of the array."""
        assert (piece.dtype, piece.shape[1:]) == (self.dtype, tuple(self.shape)[1:])
        self._done += len(piece)
        if piece.nbytes:
            self._write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

    def sync(self) -> None:
        """Waits until all that was appended is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error is None and not self._known:
            self.shape = (self._done, *self.shape[1:])
            self._file.seek(0)
            self._file.write(self._header())
        self._file.close()
        if error is None:
            assert self._done == self.shape[0], "rows are missing, or too many"
            self._digest = self._hash.hexdigest() if self._known else sha256(self.path)

    def sha256(self) -> str:
        return self._digest

    def _write(self, data: Any) -> None:
        self._file.write(data)
        if self._known:  # else the header is still to change
            self._hash.update(data)

    def _header(self) -> bytes:
        """The header, which is equally long for every number of rows."""
        header = io.BytesIO()
        fields = {"descr": self.dtype.str, "fortran_order": False, "shape": tuple(self.shape)}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()
