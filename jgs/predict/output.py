"""The file that `python -m jgs.predict` writes: columns of numbers, a row for each node.

An `.npy` file is a structured array with a field for each column, of the dtypes below; a
`.csv` file has a line of names first. Columns:

    node          int32, the id in the data set
    prediction    int32, the class; of multi-label data bool `[C]`, in CSV the labels predicted,
                  with spaces between them
    probability   float32, of that class; of multi-label data `[C]`, in CSV those of the labels
                  predicted
    embedding     with `--embed`, in place of the last two: float32 `[W]`, in CSV W columns
                  `embedding_0`, `embedding_1`, ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jgs.errors import InputError
from jgs.files.writing import whole_file

ENDINGS = (".csv", ".npy")
_ROWS = 1 << 14  # at a time


def check_out(path: Path) -> None:
    """Raises `InputError` unless `path` names a file that can be written."""
    if path.suffix not in ENDINGS:
        raise InputError(
            f"--out must end in {' or '.join(ENDINGS)}", path, "Name the format by the ending."
        )
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(
            "--out must name a file in a folder that can be written", path, "Choose another."
        )


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes the columns, `[n]` or `[n, W]` each; the file is there whole or not at all."""
    try:
        with whole_file(path) as file:
            (_write_csv if path.suffix == ".csv" else _write_npy)(file, columns)
    except OSError as error:
        raise InputError(
            f"{path} must be writable, with room on its disk",
            error,
            "Free space there, or choose another --out.",
        ) from None


def _write_npy(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    dtype = np.dtype([(name, a.dtype, a.shape[1:]) for name, a in columns.items()])
    num = len(columns["node"])
    header = {"descr": dtype.descr, "fortran_order": False, "shape": (num,)}
    np.lib.format.write_array_header_1_0(file, header)
    for begin in range(0, num, _ROWS):
        rows = np.empty(min(_ROWS, num - begin), dtype)
        for name, array in columns.items():
            rows[name] = array[begin : begin + _ROWS]
        file.write(rows.tobytes())


def _write_csv(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    names, texts = [], []
    for name, array in columns.items():
        if name == "embedding":
            names += [f"{name}_{unit}" for unit in range(array.shape[1])]
        else:
            names.append(name)
        texts.append(_texts_of(name, columns))
    file.write((",".join(names) + "\n").encode())
    num = len(columns["node"])
    for begin in range(0, num, _ROWS):
        now = slice(begin, begin + _ROWS)
        lines = zip(*(text(now) for text in texts), strict=True)
        file.write("".join(",".join(line) + "\n" for line in lines).encode())


def _texts_of(name: str, columns: dict[str, np.ndarray]) -> Callable[[slice], Iterator[str]]:
    """A column's text in some rows."""
    array = columns[name]
    if array.ndim == 1:
        return lambda now: map(str, array[now])
    if name == "embedding":
        return lambda now: (",".join(map(str, row)) for row in array[now])
    predicted = columns["prediction"]
    labels = np.arange(array.shape[1])
    words = (lambda row: labels) if name == "prediction" else (lambda row: row)
    return lambda now: (
        " ".join(map(str, words(row)[there]))
        for row, there in zip(array[now], predicted[now], strict=True)
    )
