"""A `.npy` file that is written piece by piece, and whose checksum is computed on the way."""

from __future__ import annotations

import hashlib
import io
import math
from pathlib import Path
from typing import Any

import numpy as np


class ArrayFile:
    """The file `NAME.npy` in `folder`, for an array of known shape that is never all in memory.

    Pieces are appended in order, along the first axis, inside a `with`, which opens and closes
    the file. `jgs.files.storage.write_arrays`, which writes the rest of the folder, takes it in
    place of the array. Raises `OSError`.
    """

    def __init__(self, folder: Path, name: str, shape: tuple[int, ...], dtype: Any):
        self.path, self.shape, self.dtype = folder / f"{name}.npy", shape, np.dtype(dtype)
        self._left = math.prod(shape) * self.dtype.itemsize
        self._hash = hashlib.sha256()

    def __enter__(self) -> ArrayFile:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {"descr": self.dtype.str, "fortran_order": False, "shape": tuple(self.shape)},
        )
        self._file = open(self.path, "wb")
        self._write(header.getbuffer())
        return self

    def append(self, piece: np.ndarray) -> None:
        """Appends the next rows of the array."""
        assert (piece.dtype, piece.shape[1:]) == (self.dtype, tuple(self.shape)[1:])
        self._left -= piece.nbytes
        self._write(np.ascontiguousarray(piece).data)

    def _write(self, data: memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        self._file.close()
        assert error is not None or self._left == 0, "pieces are missing, or too many"

    def sha256(self) -> str:
        """The SHA-256 of the whole file, as hexadecimal digits."""
        return self._hash.hexdigest()
