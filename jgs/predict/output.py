"""The file that `python -m jgs.predict` writes: columns of numbers, a row for each node.

An `.npy` file is a structured array with a field for each column, of the dtypes below. A `.csv`
file begins with a line of column names. A `.parquet` file needs pyarrow (the extra `tables`);
each row of a matrix is a list of fixed size. The columns are:

    node          int32, the id in the data set; if the data set has ids of its own
                  (`jgs.NodeIds`), these, int64 or text
    prediction    int32, the class; for multi-label data bool `[C]`, in CSV the predicted
                  labels with spaces between them
    probability   float32, the probability of that class; for multi-label data `[C]`, in CSV
                  those of the predicted labels
    class_name    text, the name of the class, where the data set names its classes; not for
                  multi-label data
    embedding     float32 `[W]`, in CSV W columns `embedding_0`, `embedding_1`, ...; with
                  `--embed`, in place of the other columns after `node`

For a run of `--task links` a row is a pair: `source` and `target`, ids as in `node`, and
`probability`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jgs.errors import InputError
from jgs.files.writing import whole_file

ENDINGS = (".csv", ".npy", ".parquet")
_ROWS = 1 << 14  # written at a time


def check_out(path: Path) -> None:
    """Raises `InputError` unless `path` names a file that can be written."""
    if path.suffix not in ENDINGS:
        raise InputError(
            f"--out must end in {', '.join(ENDINGS)}", path, "Name the format by the ending."
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            "an --out in .parquet must have pyarrow",
            "not installed",
            "pip install 'jgs[tables]', or name a .csv or .npy file.",
        )
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(
            "--out must name a file in a folder that can be written", path, "Choose another."
        )


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes the columns, `[n]` or `[n, W]` each, to `path`. The file appears whole or not at
    all. Raises `InputError`."""
    try:
        with whole_file(path) as file:
            _WRITERS[path.suffix](file, columns)
    except OSError as error:
        raise InputError(
            f"{path} must be writable, with room on its disk",
            error,
            "Free space there, or choose another --out.",
        ) from None


def _write_npy(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    columns = {name: a.astype(str) if a.dtype == object else a for name, a in columns.items()}
    dtype = np.dtype([(name, a.dtype, a.shape[1:]) for name, a in columns.items()])
    num = _num_rows(columns)
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
    num = _num_rows(columns)
    for begin in range(0, num, _ROWS):
        now = slice(begin, begin + _ROWS)
        lines = zip(*(text(now) for text in texts), strict=True)
        file.write("".join(",".join(line) + "\n" for line in lines).encode())


def _texts_of(name: str, columns: dict[str, np.ndarray]) -> Callable[[slice], Iterator[str]]:
    """A function that yields the column's text in the rows of a slice."""
    array = columns[name]
    if array.dtype.kind in "UO":
        return lambda now: map(_quoted, array[now])
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


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _write_parquet(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    import pyarrow  # an optional dependency, and a slow import
    import pyarrow.parquet

    def column(rows: np.ndarray) -> Any:
        flat = pyarrow.array(rows.reshape(-1))
        if rows.ndim == 1:
            return flat
        return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])

    def table(begin: int) -> Any:
        now = slice(begin, begin + _ROWS)
        return pyarrow.table({name: column(array[now]) for name, array in columns.items()})

    first = table(0)
    with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for begin in range(_ROWS, _num_rows(columns), _ROWS):
            writer.write_table(table(begin))


_WRITERS = dict(zip(ENDINGS, (_write_csv, _write_npy, _write_parquet), strict=True))


def _num_rows(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))
